"""The kernels as PyTorch operators: what torch.library asks of them, and torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from peephole.nn import functional, kernel, loss, operators
from tests.nn.cases import DTYPES, Case, assert_close, distance, draw, run

CASES = [Case(4, 5, 3, 2, 1), Case(3, 40, 2, 3, 2), Case(3, 5, 2, 3, 2, True, peepholes=False, bias=False)]
LSTM = [0, 1, 1]  # sigmoid, tanh, tanh


def operands(case: Case, dtype: torch.dtype, requires_grad: bool = False) -> dict[str, Any]:
    """Tensors as the operators want them, each with its replica axis."""
    leaves = draw(case, dtype)
    leaves["x"] = leaves["x"] if case.own else leaves["x"][None]
    return {name: leaf.requires_grad_(requires_grad) for name, leaf in leaves.items()}


def lstm_arguments(leaves: dict[str, Any], lengths: Tensor | None, keep: bool) -> tuple[Any, ...]:
    """The arguments of the forward operator."""
    names = ("x", "weight_ih", "weight_hh", "weight_ph", "bias", "h0", "c0")
    return *(leaves.get(name) for name in names), lengths, LSTM, keep


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ends", [False, True])
def test_opcheck_lstm(ends: bool, case: Case, dtype: torch.dtype) -> None:
    """The forward operator keeps its promises: schema, shapes without data, autograd, tracing."""
    lengths = torch.arange(case.batch) % case.steps + 1 if ends else None
    torch.library.opcheck(operators.lstm_operator, lstm_arguments(operands(case, dtype, True), lengths, True))
    torch.library.opcheck(operators.lstm_operator, lstm_arguments(operands(case, dtype), lengths, False))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("x_gradient", [False, True])
def test_opcheck_lstm_backward(x_gradient: bool, case: Case, dtype: torch.dtype) -> None:
    """So does the backward operator."""
    leaves = operands(case, dtype)
    y, h, c, tape = operators.lstm(*lstm_arguments(leaves, None, True))
    x, w_ih, w_hh, w_ph, _, h0, c0, *_ = lstm_arguments(leaves, None, True)
    for upstream in ((y, h, c), (y, None, None), (None, h, c)):
        arguments = (*upstream, x, w_ih, w_hh, w_ph, h0, c0, None, tape, LSTM, x_gradient)
        torch.library.opcheck(operators.lstm_backward_operator, arguments)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("differentiate", [False, True])
def test_opcheck_next_step_loss(differentiate: bool, weighted: bool, dtype: torch.dtype) -> None:
    """So does the loss."""
    for case in (Case(4, 5, 3, 3, 1), Case(3, 40, 2, 2, 2), Case(3, 5, 2, 2, 2, True)):
        leaves = operands(case, dtype)
        weights = [leaves[name] for name in ("weight_ih", "weight_hh", "weight_ph", "bias")]
        for weight in weights:
            weight.requires_grad_(differentiate)
        x = leaves["x"]
        weight = torch.full_like(x, 0.25) if weighted else None
        arguments = (x, x.roll(-1, 1), weight, *weights, [0, 1, 2], differentiate)
        torch.library.opcheck(loss.next_step_loss_operator, arguments)
        if weighted:
            own = (torch.where(x > 0, x, torch.nan), *arguments[1:], kernel.ESTIMATE)
            torch.library.opcheck(loss.next_step_loss_operator, own)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [Case(5, 7, 3, 4), Case(5, 40, 3, 4, 2), Case(5, 7, 3, 4, 2, True, lengths=True)])
def test_compiled_whole(case: Case, dtype: torch.dtype) -> None:
    """torch.compile takes the function without a break, and outputs and gradients stay what they were."""
    leaves = draw(case, dtype)
    eager = run(case, leaves)
    torch._dynamo.reset()
    original = functional.peephole_lstm
    compiled = torch.compile(original, fullgraph=True, backend="aot_eager")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, "peephole_lstm", compiled)
        assert_close(run(case, leaves), eager, dtype, case)
        with torch.no_grad():
            weights = [leaves[name] for name in ("weight_ih", "weight_hh", "weight_ph", "bias")]
            y, _ = compiled(leaves["x"], *weights)
            wanted, _ = original(leaves["x"], *weights)
    assert distance(y, wanted) < 1e-12


def test_compiled_loss() -> None:
    """So does the loss, with gradients."""
    leaves = draw(Case(6, 9, 3, 3, 2))
    names = ("weight_ih", "weight_hh", "weight_ph", "bias")

    def answer(function: Any) -> list[Tensor]:
        weights = [leaves[name].detach().requires_grad_() for name in names]
        loss = function(leaves["x"], *weights)
        return [loss, *torch.autograd.grad(loss.sum(), weights)]

    torch._dynamo.reset()
    compiled = torch.compile(functional.next_step_loss, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(answer(compiled), answer(functional.next_step_loss), strict=True):
        assert distance(got.detach(), wanted.detach()) < 1e-12


def test_without_gradients() -> None:
    """Under no_grad, and for leaves that want none, the outputs are the same and nothing is kept for backward."""
    leaves = draw(Case(5, 40, 3, 4))
    weights = [leaves[name] for name in ("weight_ih", "weight_hh", "weight_ph", "bias")]
    wanted, _ = functional.peephole_lstm(leaves["x"].clone().requires_grad_(), *weights)
    assert wanted.grad_fn is not None
    with torch.no_grad():
        y, _ = functional.peephole_lstm(leaves["x"].clone().requires_grad_(), *weights)
    plain, _ = functional.peephole_lstm(leaves["x"], *weights)
    for got in (y, plain):
        assert got.grad_fn is None
        assert torch.equal(got, wanted)
    *_, tape = operators.lstm(*lstm_arguments(operands(Case(5, 40, 3, 4, 1), torch.float64), None, False))
    assert tape.numel() == 0


@pytest.mark.parametrize("used", ["y", "h", "c"])
def test_one_output_alone(used: str) -> None:
    """Gradients through one output, where the others are not used, are those of the loop."""
    leaves = draw(Case(5, 40, 3, 4))

    def gradients(backend: str) -> list[Tensor]:
        taken = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
        call: dict[str, Any] = {name: leaf for name, leaf in taken.items() if name not in ("h0", "c0")}
        y, (h, c) = functional.peephole_lstm(**call, state=(taken["h0"], taken["c0"]), backend=backend)
        chosen = {"y": y, "h": h, "c": c}[used]
        return list(torch.autograd.grad(chosen.square().sum(), list(taken.values())))

    for got, wanted in zip(gradients("fused"), gradients("reference"), strict=True):
        assert distance(got, wanted) < 1e-12
