"""The plain loop, which defines the cell: against torch's LSTM, finite differences and itself in pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from peephole.nn import kernel, reference
from tests.nn.cases import Answer, Case, assert_close, distance, draw, lengths, run

Outputs = tuple[Tensor, Tensor, Tensor]
COMBINATIONS = [
    ("sigmoid", "tanh", "tanh"),
    ("sigmoid", "tanh", "identity"),
    ("hard_sigmoid", "tanh", "sigmoid"),
    ("sigmoid", "relu", "relu"),
    ("tanh", "identity", "hard_sigmoid"),
    ("identity", "sigmoid", "tanh"),
    ("relu", "hard_sigmoid", "identity"),
]


def loop(case: Case, leaves: dict[str, Any], x: Tensor, h: Tensor, c: Tensor) -> Outputs:
    """The loop on a problem's weights."""
    gate, cell, output = case.activations
    w_ih, w_hh, w_ph, b = (leaves.get(name) for name in ("weight_ih", "weight_hh", "weight_ph", "bias"))
    assert w_ih is not None
    assert w_hh is not None
    ends = lengths(case) if case.lengths else None
    return reference.peephole_lstm(
        x, w_ih, w_hh, w_ph, b, h, c, gate=gate, cell_input=cell, output=output, lengths=ends
    )


@pytest.mark.parametrize("activations", COMBINATIONS)
@pytest.mark.parametrize("ends", [False, True])
def test_gradients_are_derivatives(activations: tuple[str, str, str], ends: bool) -> None:
    """Every gradient equals finite differences in float64, with lengths too."""
    case = Case(3, 2, 2, 2, 2, lengths=ends, activations=activations)
    leaves = {name: leaf.requires_grad_() for name, leaf in draw(case).items()}

    def function(*values: Tensor) -> Outputs:
        named = dict(zip(leaves, values, strict=True))
        return loop(case, named, named["x"], named["h0"], named["c0"])

    assert torch.autograd.gradcheck(function, tuple(leaves.values()))


def test_every_activation_is_differentiated() -> None:
    """The combinations above hold each activation in each role but those that explode or are alike."""
    used = {name for combination in COMBINATIONS for name in combination}
    assert used == set(kernel.ACTIVATIONS) == set(reference.ACTIVATIONS)


def against_torch(weight_ph: float) -> float:
    """How far the loop is from torch's LSTM, in outputs and gradients, with these peepholes."""
    case = Case(7, 5, 3, 4)
    leaves = draw(case)
    leaves["weight_ph"] = torch.full_like(leaves["weight_ph"], weight_ph)
    ours = run(case, leaves, "reference")
    theirs = torch.nn.LSTM(3, 4, dtype=torch.float64)
    with torch.no_grad():
        for name, leaf in zip(("ih_l0", "hh_l0"), (leaves["weight_ih"], leaves["weight_hh"]), strict=True):
            theirs.get_parameter(f"weight_{name}").copy_(leaf)
        theirs.get_parameter("bias_ih_l0").copy_(leaves["bias"])
        theirs.get_parameter("bias_hh_l0").zero_()
    inputs = {name: leaves[name].requires_grad_() for name in ("x", "h0", "c0")}
    y, (h, c) = theirs(inputs["x"], (inputs["h0"][None], inputs["c0"][None]))
    generator = torch.Generator().manual_seed(case.seed + 1)
    upstream = [torch.randn(shape, generator=generator).double() for shape in (y.shape, h.shape[1:], c.shape[1:])]
    torch.autograd.backward([y, h[0], c[0]], upstream)
    wanted = {"y": y.detach(), "h": h[0].detach(), "c": c[0].detach()}
    wanted |= {f"grad_{name}": leaf.grad for name, leaf in inputs.items() if leaf.grad is not None}
    for name in ("weight_ih", "weight_hh", "bias_ih"):
        gradient = theirs.get_parameter(f"{name}_l0").grad
        assert gradient is not None
        wanted[f"grad_{name.removesuffix('_ih') if name == 'bias_ih' else name}"] = gradient
    assert wanted.keys() | {"grad_weight_ph"} == ours.keys()
    return max(distance(ours[name], wanted[name]) for name in wanted)


def test_torch_at_zero_peepholes() -> None:
    """Without peepholes' weights it is torch's LSTM, forward and backward; with a small one it is not."""
    assert against_torch(0.0) < 1e-13
    assert against_torch(1e-6) > 1e-8


def test_peepholes_see_what_the_paper_says() -> None:
    """One unit by hand: f and i see c(t-1), o sees c(t), and z sees no peephole."""
    one = torch.ones(1, 1, dtype=torch.float64)
    p_i, p_f, p_o, c0 = 0.3, -0.7, 1.1, 0.9
    _, h, c = reference.peephole_lstm(
        torch.zeros(1, 1, 1, dtype=torch.float64),
        torch.zeros(4, 1, dtype=torch.float64),
        torch.zeros(4, 1, dtype=torch.float64),
        torch.tensor([p_i, p_f, p_o], dtype=torch.float64),
        torch.tensor([0.0, 0.0, 0.5, 0.0], dtype=torch.float64),
        0 * one,
        c0 * one,
        gate="identity",
        cell_input="identity",
        output="identity",
    )
    after = p_f * c0 * c0 + p_i * c0 * 0.5
    assert c.item() == pytest.approx(after, rel=1e-14)
    assert h.item() == pytest.approx(p_o * after * after, rel=1e-14)


def test_a_sequence_in_two_parts() -> None:
    """Split anywhere, with the state carried on, it is the whole; with the state forgotten it is not."""
    case = Case(9, 5, 3, 4)
    leaves = draw(case)
    x, h0, c0 = leaves["x"], leaves["h0"], leaves["c0"]
    y, h, c = loop(case, leaves, x, h0, c0)
    whole: Answer = {"y": y, "h": h, "c": c}
    for cut in range(1, 9):
        y_1, h_1, c_1 = loop(case, leaves, x[:cut], h0, c0)
        y_2, h_2, c_2 = loop(case, leaves, x[cut:], h_1, c_1)
        assert_close({"y": torch.cat((y_1, y_2)), "h": h_2, "c": c_2}, whole, torch.float64, cut)
        forgotten, _, _ = loop(case, leaves, x[cut:], h0, c0)
        assert distance(forgotten, y[cut:]) > 1e-3


@pytest.mark.parametrize("own", [False, True])
def test_replicas_are_separate_calls(own: bool) -> None:
    """Networks stacked along a leading axis answer as one by one."""
    case = Case(6, 5, 3, 4, 3, own)
    leaves = draw(case)
    y, h, c = loop(case, leaves, leaves["x"], leaves["h0"], leaves["c0"])
    for r in range(3):
        one = {name: leaf if name == "x" and not own else leaf[r] for name, leaf in leaves.items()}
        alone = loop(replace(case, replicas=None), one, one["x"], one["h0"], one["c0"])
        got = {"y": y[r], "h": h[r], "c": c[r]}
        assert_close(got, dict(zip("yhc", alone, strict=True)), torch.float64, r)
    assert distance(y[0], y[1]) > 0.1


def test_a_length_is_where_a_sequence_ends() -> None:
    """With lengths, each sequence is as if cut there, and zeros follow."""
    case = Case(6, 5, 3, 4, lengths=True)
    leaves = draw(case)
    y, h, c = loop(case, leaves, leaves["x"], leaves["h0"], leaves["c0"])
    ends = lengths(case).tolist()
    assert len(set(ends)) > 2
    for b, end in enumerate(ends):
        state = leaves["h0"][b : b + 1], leaves["c0"][b : b + 1]
        y_b, h_b, c_b = loop(replace(case, lengths=False), leaves, leaves["x"][:end, b : b + 1], *state)
        got = {"y": y[:end, b], "h": h[b], "c": c[b]}
        assert_close(got, {"y": y_b[:, 0], "h": h_b[0], "c": c_b[0]}, torch.float64, b)
        assert not y[end:, b].any()
