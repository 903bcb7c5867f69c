"""Measured beside predicted: the theory sees the same cell, weights and inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from peephole import PeepholeLSTM, init, inspect, theory
from peephole.inspect.comparison import cell_of
from peephole.inspect.errors import InspectError

H, STEPS = 64, 16


def walk(steps: int = STEPS) -> Tensor:
    """AR(1) inputs (T, B, 8) of variance 1, strongly correlated."""
    generator = torch.Generator().manual_seed(0)
    x = [torch.randn(64, 8, generator=generator)]
    for _ in range(steps - 1):
        x.append(0.9 * x[-1] + (1 - 0.81) ** 0.5 * torch.randn(64, 8, generator=generator))
    return torch.stack(x)


@pytest.mark.parametrize("name", ["normalized", "forget-one", "chrono"])
def test_measured_is_as_predicted(name: str) -> None:
    """Averaged over networks, Var(h) is the predicted one; the prediction for white inputs is off."""
    ratios = []
    for seed in range(5):
        lstm = init.initialise_(nn.LSTM(8, H), name, generator=seed, steps=STEPS)
        measured = inspect.measure(lstm, walk())
        table = inspect.compare(measured, inspect.predict(measured, samples=2000))
        last = table[(table["step"] == STEPS) & (table["quantity"] == "var_h")]
        ratios.append(float(last["ratio"].iloc[0]))
    error = np.std(ratios, ddof=1) / np.sqrt(len(ratios))
    # A twentieth on top, for all networks see the same 64 sequences of 8 features.
    assert abs(np.mean(ratios) - 1) < 4 * error + 0.05
    if name != "normalized":
        (trace,) = measured.traces
        cell, v = cell_of(trace), theory.Variances.build(cell_of(trace), trace.variances)
        white = theory.propagate(cell, v, steps=STEPS, samples=2000)
        assert trace.steps["var_h"][-1] / white.var_h[-1] > 1.3


def test_the_cell_and_its_inputs() -> None:
    """The cell has the module's sizes, activations and biases, unit by unit; the autocorrelation is the batch's own."""
    module = PeepholeLSTM(8, 16, 2, output_activation="identity")
    init.initialise_(module, "chrono", generator=0, steps=30)
    x = walk()
    first, second = inspect.measure(module, x).traces
    cell = cell_of(first)
    assert (cell.inputs, cell.units, cell.peepholes, cell.output) == (8, 16, True, "identity")
    assert cell.forget_bias == pytest.approx(module.get_parameter("bias_l0")[16:32].tolist())
    assert cell.input_variance == pytest.approx(float(x.square().mean()))
    assert first.variances["v_o"] == pytest.approx(
        float(module.get_parameter("weight_ph_l0").detach()[32:].square().mean())
    )
    own = theory.autocorrelation(x.transpose(0, 1).double().numpy())
    np.testing.assert_allclose(first.autocorrelation, own, atol=1e-5)
    assert cell_of(second).inputs == 16
    lengths = torch.tensor([STEPS] * 32 + [12] * 32)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
    gaps = x.transpose(0, 1).double().numpy().copy()
    gaps[32:, 12:] = np.nan
    (again, _) = inspect.measure(module, packed).traces
    np.testing.assert_allclose(again.autocorrelation, theory.autocorrelation(gaps), atol=1e-5)


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch speaks of its own kernels
def test_what_cannot_be_compared() -> None:
    """Names that were not measured, steps beyond all and projections are told."""
    measured = inspect.measure(nn.LSTM(8, 16), walk())
    (flow,) = inspect.predict(measured).values()
    with pytest.raises(InspectError, match="nothing was measured of 'x'"):
        inspect.compare(measured, {"x": flow})
    with pytest.raises(InspectError, match="from 1 to 200"):
        inspect.predict(measured, steps=201)
    with pytest.raises(theory.TheoryError, match="no layer has a prediction"):
        inspect.compare(inspect.measure(nn.LSTM(8, 16, proj_size=4), walk(), inspect.probe))
