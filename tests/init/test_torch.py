"""Methods put into PyTorch's modules, gate by gate."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from peephole import init
from peephole.theory import Cell, TheoryError, Variances, preset

ROWS = "ifco"


def seeded(seed: int = 0) -> torch.Generator:
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def parameter(module: nn.Module, name: str) -> torch.Tensor:
    """A parameter of an LSTM, which names them at run time."""
    found = getattr(module, name)
    assert isinstance(found, torch.Tensor)
    return found


def z_score(block: torch.Tensor, promised: float) -> float:
    """How many standard errors the mean square of normal numbers lies from the promised variance."""
    squares = float((block.detach().double() ** 2).mean())
    return abs(squares / promised - 1) / math.sqrt(2 / block.numel())


@pytest.mark.parametrize("name", init.METHODS)
@pytest.mark.parametrize("hidden", [7, 64, 256])
def test_each_gate_s_variance(name: str, hidden: int) -> None:
    """In each layer and direction each gate's block has the promised variance, its own fan-in counted."""
    lstm = init.initialise_(nn.LSTM(20, hidden, num_layers=2, bidirectional=True), name, generator=seeded())
    for layer, inputs in ((0, 20), (1, 2 * hidden)):
        v = preset(name, Cell(inputs, hidden, peepholes=False, output="tanh"))
        for direction in ("", "_reverse"):
            for row, gate in enumerate(ROWS):
                block = slice(row * hidden, (row + 1) * hidden)
                w = parameter(lstm, f"weight_ih_l{layer}{direction}")[block]
                u = parameter(lstm, f"weight_hh_l{layer}{direction}")[block]
                assert z_score(w, v.w(gate)) < 4.5
                if name == "orthogonal":
                    assert torch.allclose(torch.linalg.svdvals(u), torch.ones(hidden), atol=1e-5)
                else:
                    assert z_score(u, v.u(gate)) < 4.5


def test_the_stacked_matrix_fails() -> None:
    """Control: torch's `orthogonal_` on the stacked matrix leaves each gate a quarter of the variance."""
    stacked = nn.init.orthogonal_(torch.empty(256, 64), generator=seeded())
    assert z_score(stacked[:64], 1 / 64) > 20
    assert z_score(stacked[:64], 1 / 256) < 4.5


def test_biases_are_zero_and_everything_else_is_kept() -> None:
    """Both biases become zero; type, device and identity of the parameters stay."""
    lstm = nn.LSTM(3, 5, dtype=torch.float64)
    before = list(lstm.parameters())
    assert init.initialise_(lstm, "proposed-4") is lstm
    assert all(a is b for a, b in zip(before, lstm.parameters(), strict=True))
    assert not parameter(lstm, "bias_ih_l0").any()
    assert not parameter(lstm, "bias_hh_l0").any()
    assert parameter(lstm, "weight_ih_l0").dtype == torch.float64
    init.initialise_(nn.LSTM(3, 5, bias=False), "proposed-4")


def test_the_generator_decides() -> None:
    """The same generator state gives the same bits, in a cell and in a layer; another state does not."""
    layer = init.initialise_(nn.LSTM(3, 5), "normalized", generator=seeded(1))
    cell = init.initialise_(nn.LSTMCell(3, 5), "normalized", generator=seeded(1))
    other = init.initialise_(nn.LSTMCell(3, 5), "normalized", generator=seeded(2))
    assert torch.equal(parameter(layer, "weight_hh_l0"), cell.weight_hh)
    assert not torch.equal(cell.weight_hh, other.weight_hh)


def test_any_variances() -> None:
    """`variances_` draws whatever Variances it is given."""
    v = Variances(4.0, 0.01, None, 4.0, 0.01, None, 4.0, 0.01, None, 1.0, 0.0)
    lstm = init.variances_(nn.LSTM(64, 64), v, generator=seeded())
    assert z_score(parameter(lstm, "weight_ih_l0")[:64], 4.0) < 4.5
    assert not parameter(lstm, "weight_hh_l0")[128:192].any()


def test_what_is_refused() -> None:
    """Unknown names, modules and projections are named in one line."""
    for module, name, message in (
        (nn.LSTM(2, 2), "orthogonl", "did you mean 'orthogonal'"),
        (nn.GRU(2, 2), "normalized", "GRU is not covered: nn.LSTM and nn.LSTMCell are"),
        (nn.LSTM(2, 4, proj_size=2), "normalized", "projections are not covered yet"),
    ):
        with pytest.raises(TheoryError, match=message):
            init.initialise_(module, name)
    with pytest.raises(TheoryError, match="has no peepholes"):
        init.variances_(nn.LSTM(2, 2), preset("normalized", Cell(2, 2)))


def test_peepholes_are_drawn_without_a_framework() -> None:
    """`draw` gives every matrix of the paper's cell as NumPy arrays."""
    cell = Cell(3, 400)
    weights = init.draw(cell, preset("proposed-1", cell), np.random.default_rng(0))
    assert {name for name in weights if name.startswith("V")} == {"V_f", "V_i", "V_o"}
    assert weights["W_f"].shape == (400, 3)
    assert z_score(torch.from_numpy(weights["V_o"]), 1.0) < 4.5
