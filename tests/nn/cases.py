"""Problems for the tests of `peephole.nn`, what the loop makes of them, and how two answers are compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from peephole.nn import functional, kernel

DTYPES = (torch.float32, torch.float64)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
ISAS = tuple(kernel.instruction_sets())
Answer = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """Sizes and parts of a problem; without `replicas` there is no such axis, with `own` each has its own x."""

    steps: int
    batch: int
    inputs: int
    units: int
    replicas: int | None = None
    own: bool = False
    peepholes: bool = True
    bias: bool = True
    state: bool = True
    lengths: bool = False
    activations: tuple[str, str, str] = ("sigmoid", "tanh", "tanh")
    seed: int = 0


def draw(case: Case, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """Leaves that float32 holds exactly, so that both precisions answer the same question."""
    generator = torch.Generator().manual_seed(case.seed)
    lead = () if case.replicas is None else (case.replicas,)
    H = case.units

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(shape, generator=generator)).to(dtype)

    leaves = {
        "x": normal(*(lead if case.own else ()), case.steps, case.batch, case.inputs),
        "weight_ih": normal(*lead, 4 * H, case.inputs, scale=0.7 * case.inputs**-0.5),
        "weight_hh": normal(*lead, 4 * H, H, scale=0.7 * H**-0.5),
    }
    if case.peepholes:
        leaves["weight_ph"] = normal(*lead, 3 * H, scale=0.5)
    if case.bias:
        leaves["bias"] = normal(*lead, 4 * H, scale=0.5)
    if case.state:
        leaves["h0"], leaves["c0"] = normal(*lead, case.batch, H), normal(*lead, case.batch, H)
    return leaves


def run(case: Case, leaves: dict[str, Any], backend: str = "fused") -> Answer:
    """Outputs, last state and the gradients of all leaves under fixed upstream gradients."""
    taken: dict[str, Any] = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
    call = {name: leaf for name, leaf in taken.items() if name not in ("h0", "c0")}
    state = (taken["h0"], taken["c0"]) if case.state else None
    gate, cell, output = case.activations
    y, (h, c) = functional.peephole_lstm(
        **call,
        state=state,
        gate_activation=gate,
        cell_activation=cell,
        output_activation=output,
        lengths=lengths(case) if case.lengths else None,
        backend=backend,
    )
    generator = torch.Generator().manual_seed(case.seed + 1)
    answer = {"y": y, "h": h, "c": c}
    upstream = [torch.randn(out.shape, generator=generator).to(out.dtype) for out in answer.values()]
    torch.autograd.backward(list(answer.values()), upstream)
    return {name: out.detach() for name, out in answer.items()} | gradients(taken)


def gradients(taken: dict[str, Any]) -> Answer:
    """The gradients of leaves, by name."""
    return {f"grad_{name}": leaf.grad for name, leaf in taken.items() if leaf.grad is not None}


def lengths(case: Case) -> Tensor:
    """Lengths from 1 to all steps, the longest not first."""
    return 1 + torch.arange(case.batch) * 7 % case.steps


def distance(got: Tensor, wanted: Tensor) -> float:
    """Norm of the difference over the norm of what is wanted; NaN counts as infinitely far."""
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    assert got.isfinite().all(), "not finite"
    norm = wanted.norm().item()
    return float((got.to(wanted.dtype) - wanted).norm().item() / (norm or 1.0))


def assert_close(got: Answer, wanted: Answer, dtype: torch.dtype, case: object = None) -> None:
    """Every tensor of an answer is within its precision's tolerance."""
    assert got.keys() == wanted.keys()
    far = {name: d for name in wanted if not (d := distance(got[name], wanted[name])) <= TOLERANCE[dtype]}
    assert not far, f"{far} in {dtype}: {case}"


def assert_same(got: Answer, wanted: Answer) -> None:
    """Every tensor of an answer has the same bits, whatever they mean."""
    assert got.keys() == wanted.keys()
    differ = [name for name in wanted if not torch.equal(bits(got[name]), bits(wanted[name]))]
    assert not differ, f"other bits in {differ}"


def bits(tensor: Tensor) -> Tensor:
    """The numbers' bits as integers, so that NaN equals itself and -0 is not 0."""
    whole = {torch.float32: torch.int32, torch.float64: torch.int64}
    return tensor.contiguous().view(whole[tensor.dtype])


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Another number of threads, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
