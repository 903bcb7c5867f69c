"""The fused kernels against the loop, in outputs and in every gradient, on each instruction set."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from peephole.nn import functional, kernel
from tests.nn.cases import DTYPES, ISAS, Answer, Case, assert_close, distance, draw, gradients, run

SIZES = (1, 2, 3, 7, 16, 63, 64, 65)
STEPS = (1, 2, 5, 18)  # chunks of backward have 16 to 128 steps
ROLES = ("gate", "cell input", "output")

pytestmark = pytest.mark.parametrize("isa", ISAS)


@pytest.fixture(autouse=True)
def _poisoned(isa: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One instruction set, and fresh memory full of NaN."""
    monkeypatch.setattr(kernel, "_wish", isa)
    kernel.poison(True)
    yield
    kernel.poison(False)


@cache
def expected(case: Case) -> Answer:
    """What the loop answers in float64."""
    return run(case, draw(case), "reference")


def check(case: Case, dtype: torch.dtype) -> None:
    """The kernels answer as the loop does."""
    assert_close(run(case, draw(case, dtype)), expected(case), dtype, case)


def square(k: int, j: int) -> Case:
    """A field of a Latin square: each pair of sizes meets once, and what else there is to choose is drawn."""
    pick = random.Random(8 * k + j)
    units, inputs, batch = SIZES[k], SIZES[j], SIZES[(k + j) % 8]
    replicas = pick.choice((None, 1, 2, 5)) if units * inputs < 1000 else pick.choice((None, 1, 2))
    return Case(
        steps=pick.choice(STEPS),
        batch=batch,
        inputs=inputs,
        units=units,
        replicas=replicas,
        own=replicas is not None and pick.random() < 0.5,
        peepholes=pick.random() < 0.8,
        bias=pick.random() < 0.8,
        state=pick.random() < 0.8,
        lengths=pick.random() < 0.3,
        seed=8 * k + j,
    )


def test_the_instruction_set_is_the_one_asked_for(isa: str) -> None:
    """Each test here runs on the instruction set of its name."""
    assert kernel.instruction_set()[0] == isa


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", range(8))
def test_sizes(k: int, dtype: torch.dtype) -> None:
    """Any number of units, inputs and sequences, about the widths of vectors and tiles too."""
    for j in range(8):
        check(square(k, j), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(300, 70, 1, 1), (130, 5, 3, 2), (129, 33, 1, 6), (35, 3, 65, 64)])
def test_many_steps(sizes: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    """More steps than one chunk of backward holds, with and without lengths."""
    for lengths in (False, True):
        check(Case(*sizes, lengths=lengths), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("replicas", [1, 2, 5])
@pytest.mark.parametrize("own", [False, True])
def test_replicas(replicas: int, own: bool, dtype: torch.dtype) -> None:
    """Any number of networks, on one x or each on its own."""
    check(Case(6, 37, 3, 5, replicas, own), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", ["peepholes", "bias", "state"])
def test_without(part: str, dtype: torch.dtype) -> None:
    """Peepholes, bias and initial state may be missing, and each of them counts where it is there."""
    whole = Case(6, 37, 3, 5, 2)
    without = replace(whole, **{part: False})  # type: ignore[arg-type]
    check(without, dtype)
    assert distance(expected(without)["y"], expected(whole)["y"]) > 1e-3


@pytest.mark.parametrize("name", kernel.ACTIVATIONS)
@pytest.mark.parametrize("role", range(3), ids=ROLES)
def test_activations(name: str, role: int) -> None:
    """Every activation in every role."""
    activations = ["sigmoid", "tanh", "tanh"]
    activations[role] = name
    for lengths in (False, True):
        case = Case(5, 35, 3, 4, 2, lengths=lengths, activations=(activations[0], activations[1], activations[2]))
        for dtype in DTYPES:
            check(case, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_saturation(dtype: torch.dtype) -> None:
    """Inputs that saturate every gate, to the largest numbers there are."""
    case = Case(3, 35, 2, 4)
    for scale in (30.0, 1e4, 1e30):
        leaves = {name: leaf.double() for name, leaf in draw(case, torch.float32).items()}
        leaves["x"] = leaves["x"].mul(scale).float().double()
        taken = {name: leaf.to(dtype) for name, leaf in leaves.items()}
        got, wanted = run(case, taken), run(case, leaves, "reference")
        # A gradient through a saturated gate is a difference of nearly equal numbers; it is small in both.
        names = ("y", "h", "c")
        assert_close({name: got[name] for name in names}, {name: wanted[name] for name in names}, dtype, scale)
        assert all(value.isfinite().all() for value in got.values())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("leaf", ["x", "weight_ih", "weight_hh", "weight_ph", "bias", "h0", "c0"])
def test_nan_stays_nan(leaf: str, dtype: torch.dtype) -> None:
    """NaN in a weight, a state or an input is NaN in what depends on it, as in the loop, and crashes nothing."""
    case = Case(4, 35, 3, 4)
    leaves = draw(case, dtype)
    leaves[leaf].view(-1)[0] = torch.nan
    got, wanted = run(case, leaves), run(case, leaves, "reference")
    assert all(torch.equal(got[name].isnan(), wanted[name].isnan()) for name in wanted)
    assert got["y"].isnan().any()


def losses(case: Case, dtype: torch.dtype, backend: str, observed: bool, junk: float = 0.0, **options: Any) -> Answer:
    """The next-step loss and its gradients."""
    leaves = draw(case, dtype)
    taken = {name: leaves[name].requires_grad_() for name in leaves if name.startswith(("weight", "bias"))}
    mask, x = None, leaves["x"]
    if observed:
        mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.7
        mask[..., 1, 0, 0] = True  # a network without a single target has no loss
        x = torch.where(mask, x, junk)
    gate, cell, output = case.activations
    loss = functional.next_step_loss(
        x,
        **taken,
        observed=mask,
        gate_activation=gate,
        cell_activation=cell,
        output_activation=output,
        backend=backend,
        **options,
    )
    torch.autograd.backward(loss, torch.arange(1.0, loss.numel() + 1, dtype=dtype).view(loss.shape))
    return {"loss": loss.detach()} | gradients(taken)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("output", ["identity", "tanh"])
def test_next_step_loss(output: str, observed: bool, dtype: torch.dtype) -> None:
    """Loss and gradients in one pass, of one network and of many, over more steps than a chunk and few."""
    for k, (replicas, own) in enumerate([(None, False), (1, True), (2, False), (5, True)]):
        for steps, batch, units in [(2, 1, 1), (140, 70, 1), (9, 33, 6), (20, 17, 17)]:
            case = Case(
                steps, batch, units, units, replicas, own, bias=k != 2, peepholes=k != 1,
                activations=("sigmoid", "tanh", output),
            )  # fmt: skip
            wanted = losses(case, torch.float64, "reference", observed)
            assert_close(losses(case, dtype, "fused", observed), wanted, dtype, case)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("detached", [False, True])
def test_own_estimates(detached: bool, dtype: torch.dtype) -> None:
    """So is the loss of networks that fill their gaps themselves, also where fresh memory is full of NaN."""
    how: dict[str, Any] = {"fill": "model", "detach_fill": detached}
    for k, (replicas, own) in enumerate([(None, False), (2, True), (3, False)]):
        for steps, batch, units in [(2, 1, 1), (140, 70, 1), (9, 33, 6), (5, 17, 17)]:
            case = Case(
                steps, batch, units, units, replicas, own, bias=k != 2, peepholes=k != 1,
                activations=("sigmoid", "tanh", "tanh" if k == 1 else "identity"),
            )  # fmt: skip
            wanted = losses(case, torch.float64, "reference", True, **how)
            kernel.poison(True)
            try:
                got = losses(case, dtype, "fused", True, torch.nan, **how)
            finally:
                kernel.poison(False)
            assert_close(got, wanted, dtype, case)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("junk", [1e30, torch.inf, torch.nan])
def test_nothing_shows_through_the_mask(junk: float, dtype: torch.dtype) -> None:
    """What lies under the mask changes no bit of the loss or of a gradient."""
    case = Case(9, 33, 3, 3, 2)
    for backend in ("fused", "reference"):
        clean, dirty = losses(case, dtype, backend, True), losses(case, dtype, backend, True, junk)
        assert all(torch.equal(clean[name], dirty[name]) for name in clean)
