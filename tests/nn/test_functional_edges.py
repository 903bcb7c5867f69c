"""What the functions make of the unusual: nothing at all, lists, views, padding, tensors without numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from peephole.nn import functional
from tests.nn.cases import Answer, Case, assert_close, assert_same, distance, draw, gradients

T, B, I, H, R = 6, 4, 2, 3, 2
both = pytest.mark.parametrize("backend", ["fused", "reference"])


def answer(leaves: dict[str, Any], upstream: float = 1.0, **options: Any) -> Answer:
    """Outputs and the gradients of all leaves."""
    taken = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
    call = dict(taken)
    state = (call.pop("h0"), call.pop("c0")) if "h0" in call else None
    y, (h, c) = functional.peephole_lstm(**call, state=state, **options)
    torch.autograd.backward([y, h, c], [torch.full_like(out, upstream) for out in (y, h, c)])
    return {"y": y.detach(), "h": h.detach(), "c": c.detach()} | gradients(taken)


@both
@pytest.mark.parametrize("replicas", [None, R])
def test_no_sequences(replicas: int | None, backend: str) -> None:
    """B = 0 gives empty outputs and states, and gradients that are zero, as nn.LSTM does."""
    leaves = draw(Case(T, 0, I, H, replicas))
    found = answer(leaves, backend=backend)
    lead = () if replicas is None else (replicas,)
    assert found["y"].shape == (*lead, T, 0, H)
    assert found["h"].shape == found["c"].shape == (*lead, 0, H)
    assert all(
        found[f"grad_{name}"].shape == leaf.shape and not found[f"grad_{name}"].any() for name, leaf in leaves.items()
    )


@pytest.mark.parametrize("name", ["x", "weight_ih", "weight_hh", "weight_ph", "bias", "observed", "state", "h0"])
def test_no_tensors(name: str) -> None:
    """A list or an array in a tensor's place is a TypeError that says what was met; so is a state of None."""
    leaves = draw(Case(T, B, H, H, state=False))
    function: Any = functional.next_step_loss if name == "observed" else functional.peephole_lstm
    there = leaves.get(name, leaves["x"])
    for other, met in ((there.tolist(), "list"), (there.numpy(), "ndarray")):
        given = {"state": (other, other)} if name == "h0" else {name: 7 if name == "state" else other}
        met = "int" if name == "state" else met
        with pytest.raises(TypeError, match=f"{name} must be a .*got {met}"):
            function(**leaves | given)
    with pytest.raises(TypeError, match="h0 must be a tensor, got NoneType"):
        functional.peephole_lstm(**leaves, state=(None, None))  # type: ignore[arg-type]


@both
def test_nothing_shows_beyond_the_end(backend: str) -> None:
    """What x holds beyond a sequence's end changes no bit of an output or gradient, and has no gradient."""
    leaves = draw(Case(T, B, I, H, R))
    lengths = torch.tensor([T, 2, 1, 4])
    beyond = torch.arange(T)[:, None] >= lengths
    clean = answer(leaves, lengths=lengths, backend=backend)
    assert clean["grad_x"][~beyond].all()
    assert not clean["grad_x"][beyond].any()
    for junk in (1e300, torch.inf, torch.nan):
        dirty = leaves | {"x": leaves["x"].masked_fill(beyond[..., None], junk)}
        assert_same(answer(dirty, lengths=lengths, backend=backend), clean)


@both
def test_the_minus_of_a_view(backend: str) -> None:
    """A lazily negated view, as the imaginary part of a conjugate is, counts as its numbers: as input and gradient."""
    leaves = draw(Case(T, B, I, H))
    lazy = {name: torch.complex(leaf, -leaf).conj().imag for name, leaf in leaves.items()}
    assert lazy["x"].is_neg()
    found = answer(lazy, backend=backend)
    assert_same(found, answer(leaves, backend=backend))
    square = draw(Case(T, B, H, H, state=False))
    views = {name: torch.complex(leaf, -leaf).conj().imag for name, leaf in square.items()}
    losses = [functional.next_step_loss(**given, backend=backend) for given in (square, views)]
    assert torch.equal(*losses)
    w = leaves["weight_ih"].requires_grad_()
    y, _ = functional.peephole_lstm(leaves["x"], w, leaves["weight_hh"], backend=backend)
    (wanted,) = torch.autograd.grad(-y.sum(), w, retain_graph=True)
    (got,) = torch.autograd.grad(y, w, torch.complex(y, torch.ones_like(y)).conj().imag.detach())
    assert torch.equal(got, wanted)


def masked() -> tuple[dict[str, Any], Tensor]:
    """A call of the loss, and a mask."""
    leaves = draw(Case(T, B, H, H, state=False))
    return leaves, torch.rand(T, B, H, generator=torch.Generator().manual_seed(1)) < 0.7


def test_a_mask_in_a_graph() -> None:
    """The loss of what is observed compiles whole, to the same number; where nothing is observed it is zero."""
    leaves, mask = masked()
    torch._dynamo.reset()
    compiled = torch.compile(functional.next_step_loss, fullgraph=True, backend="aot_eager")
    wanted = functional.next_step_loss(**leaves, observed=mask)
    assert distance(compiled(**leaves, observed=mask), wanted) < 1e-12
    assert compiled(**leaves, observed=torch.zeros_like(mask)) == 0


def test_many_masks_at_once() -> None:
    """So does torch.func.vmap over masks, and tensors without numbers have a loss without one."""
    leaves, mask = masked()
    masks = torch.stack((mask, ~mask))
    got = torch.func.vmap(lambda m: functional.next_step_loss(**leaves, observed=m))(masks)
    wanted = torch.stack([functional.next_step_loss(**leaves, observed=m) for m in masks])
    assert_close({"loss": got}, {"loss": wanted}, torch.float64)
    meta = {name: leaf.to("meta") for name, leaf in leaves.items()}
    assert functional.next_step_loss(**meta, observed=mask.to("meta")).shape == ()


def test_another_default_device() -> None:
    """What a call makes for itself lies where its tensors lie, whatever the default device is."""
    leaves, mask = masked()
    lengths = torch.tensor([T, 2, 1, 4])
    wanted = answer(leaves, lengths=lengths), functional.next_step_loss(**leaves, observed=mask)
    with torch.device("meta"):
        got = functional.peephole_lstm(**leaves, lengths=lengths)[0], functional.next_step_loss(**leaves, observed=mask)
    assert torch.equal(got[0], wanted[0]["y"])
    assert torch.equal(got[1], wanted[1])


def test_a_loop_under_autocast() -> None:
    """Autocast to half precision does not reach into the loop."""
    leaves = draw(Case(T, B, I, H, state=False), torch.float32)
    wanted, _ = functional.peephole_lstm(**leaves, backend="reference")
    for function in (functional.peephole_lstm, torch.compile(functional.peephole_lstm, backend="aot_eager")):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, _ = function(**leaves, backend="reference")
        assert y.dtype == torch.float32
        assert distance(y, wanted) < 1e-6
