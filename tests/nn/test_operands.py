"""The operators called by themselves: what does not fit is refused, for a kernel reads memory as it is told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from peephole.nn import kernel, loss, operators, passes
from tests.nn.cases import ISAS, Case, draw

T, B, I, H, R = 3, 4, 3, 3, 2
LSTM = [0, 1, 1]
NAMES = ("x", "weight_ih", "weight_hh", "weight_ph", "bias", "h0", "c0")


def operands() -> dict[str, Any]:
    """What the forward operator takes."""
    return draw(Case(T, B, I, H, R, True)) | {"lengths": torch.tensor([1, 2, 3, 3])}


def forward(of: dict[str, Any], activations: list[int] = LSTM) -> tuple[Tensor, ...]:
    """The operator's outputs."""
    found: tuple[Tensor, ...] = operators.lstm_operator(*(of[name] for name in NAMES), of["lengths"], activations, True)
    return found


def backward(of: dict[str, Any], upstream: tuple[Tensor, ...], tape: Tensor) -> tuple[Tensor, ...]:
    """The backward operator's."""
    x, w_ih, w_hh, w_ph, _, h0, c0 = (of[name] for name in NAMES)
    found: tuple[Tensor, ...] = operators.lstm_backward_operator(
        *upstream, x, w_ih, w_hh, w_ph, h0, c0, of["lengths"], tape, LSTM, True
    )  # fmt: skip
    return found


def test_strides_do_not_matter() -> None:
    """Transposed operands and upstream gradients give the bits of their contiguous copies."""
    of = operands()
    y, h, c, tape = forward(of)
    turned = {name: leaf.mT.contiguous().mT if leaf.dim() > 1 else leaf for name, leaf in of.items()}
    assert not turned["x"].is_contiguous()
    assert torch.equal(forward(turned)[0], y)
    upstream = tuple(out.mT.contiguous().mT for out in (y, h, c))
    for got, wanted in zip(backward(turned, upstream, tape), backward(of, (y, h, c), tape), strict=True):
        assert torch.equal(got, wanted)


WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "shape": lambda leaf: leaf[..., :-1],
    "rank": lambda leaf: leaf[0],
    "dtype": lambda leaf: leaf.to(torch.float32 if leaf.is_floating_point() else torch.int32),
}


@pytest.mark.parametrize("name", [*NAMES, "lengths"])
@pytest.mark.parametrize("how", WRONG)
def test_what_does_not_fit(how: str, name: str) -> None:
    """A wrong shape, rank or dtype of any operand is an error, forward and back, never a crash."""
    of = operands()
    y, h, c, tape = forward(of)
    bad = of | {name: WRONG[how](of[name])}
    with pytest.raises(ValueError, match=r"wanted, got"):
        forward(bad)
    if name != "bias":
        with pytest.raises(ValueError, match=r"wanted, got"):
            backward(bad, (y, h, c), tape)


def test_what_does_not_fit_the_loss() -> None:
    """So is a target or a weight that does not fit."""
    of = operands()
    weights = [of[name] for name in NAMES[1:5]]
    loss.next_step_loss_operator(of["x"], of["x"], of["x"], *weights, LSTM, True)
    for target, weight in ((of["x"][:, 1:], None), (of["x"], of["x"].float())):
        with pytest.raises(ValueError, match="is wanted"):
            loss.next_step_loss_operator(of["x"], target, weight, *weights, LSTM, True)


@pytest.mark.parametrize("own", [-1, 1, 2, 3])
def test_own_estimates_of_other_inputs(own: int) -> None:
    """NaN in x is filled by h only where there are as many units as inputs, and in ways that exist."""
    of = operands()
    wide = [torch.cat((of[name], of[name]), -1) for name in ("x", "weight_ih")]
    with pytest.raises(ValueError, match=f"own = {own}"):
        loss.next_step_loss_operator(
            wide[0], of["x"], of["x"], wide[1], *(of[name] for name in NAMES[2:5]), LSTM, True, own
        )


@pytest.mark.parametrize("activations", [[9, 9, 9], [-1, 0, 0], [0], []])
def test_activations_by_number(activations: list[int]) -> None:
    """Three numbers of activations that exist."""
    with pytest.raises(ValueError, match="three activations"):
        forward(operands(), activations)


def test_nothing() -> None:
    """An operator takes no empty tensor: the functions do not ask."""
    of = operands()
    with pytest.raises(ValueError, match=r"got \(2, 3, 0, 3\)"):
        forward(of | {"x": of["x"][:, :, :0]})


def test_a_tape_of_another_problem() -> None:
    """A tape that is too short is refused, by the operator and by the function behind it."""
    of = operands()
    y, h, c, tape = forward(of)
    x, w_ih, w_hh, w_ph, _, h0, c0 = (of[name] for name in NAMES)
    with pytest.raises(ValueError, match=r"holds 5 numbers, \d+ are wanted"):
        backward(of, (y, h, c), tape[:5])
    with pytest.raises(ValueError, match=r"holds 0 numbers"):
        passes.backward(y, h, c, x, w_ih, w_hh, w_ph, h0, c0, None, tape[:0], LSTM, True)


# torch itself, when it loads what forward mode needs, calls what it has deprecated.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_no_tangent_is_lost() -> None:
    """The operator under forward mode refuses: a tangent that it dropped would be a wrong answer."""
    of = operands()

    def outputs(w: Tensor) -> Tensor:
        return forward(of | {"weight_ih": w})[0]

    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        torch.func.jvp(outputs, (of["weight_ih"],), (of["weight_ih"],))


@pytest.mark.parametrize("batch", [1, 3, 16, 17, 40, 200])
@pytest.mark.parametrize("units", [1, 3, 4, 17])
def test_one_tape_for_every_machine(units: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size in a graph does not depend on the instruction set, suffices for each, and the rest of it is zero."""
    eager: Any = operators.lstm
    for dtype in (torch.float32, torch.float64):
        leaves = draw(Case(2, batch, 2, units, 1), dtype)
        leaves["x"] = leaves["x"][None]
        for isa in ISAS:
            monkeypatch.setattr(kernel, "_wish", isa)
            of: dict[str, Any] = leaves | {"lengths": None}
            *_, tape = forward(of)
            assert tape.numel() == passes.tape_size(1, 2, batch, units, dtype.itemsize)
            *_, own = eager(*map(of.get, NAMES), None, LSTM, True)
            assert torch.equal(tape[: own.numel()], own)
            assert not tape[own.numel() :].any()
