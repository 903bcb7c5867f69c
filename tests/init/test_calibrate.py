"""`calibrate_`: the scale of the signal, measured again from outside, on every kind of module and batch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from peephole import init
from peephole.nn import PeepholeLSTM
from peephole.theory import TheoryError

T, B, N, M = 20, 12, 5, 16
PROJECTED = pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch's own, of its oneDNN


def white(seed: int = 0, *shape: int) -> Tensor:
    """White noise (T, B, N)."""
    return torch.randn(shape or (T, B, N), generator=torch.Generator().manual_seed(seed))


def outputs(module: nn.Module, x: Any) -> Any:
    """What the module itself says, in evaluation."""
    with torch.no_grad():
        return copy.deepcopy(module).eval()(x)[0]


def var_h(module: nn.Module, x: Any) -> float:
    """The variance of all that comes out of the last layer."""
    y = outputs(module, x)
    return float((y.data if isinstance(y, PackedSequence) else y).double().var(unbiased=False))


def drawn(module: Any, name: str = "normalized", seed: int = 3) -> Any:
    """The module with weights of its own."""
    return init.initialise_(module, name, generator=seed)


def values(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter as it is now."""
    return {name: value.detach().clone() for name, value in module.named_parameters()}


@pytest.mark.parametrize("peepholes", [True, False])
@pytest.mark.parametrize("name", init.METHODS)
def test_every_method(name: str, peepholes: bool) -> None:
    """From each method's weights the layer's own outputs get the variance asked for, which they did not have."""
    lstm = drawn(PeepholeLSTM(N, M, peepholes=peepholes, output_activation="identity"), name)
    before = var_h(lstm, white())
    done = init.calibrate_(lstm, white(), 0.8 * before)
    assert done.reached
    assert done.before[0] == pytest.approx(before, rel=1e-5)
    assert done.after[0] == pytest.approx(var_h(lstm, white()), rel=1e-5)
    assert var_h(lstm, white()) == pytest.approx(0.8 * before, rel=2e-3)


MODULES: dict[str, Callable[[], Any]] = {
    "two layers, both directions": lambda: nn.LSTM(N, M, 2, bidirectional=True),
    "no bias, batch first": lambda: nn.LSTM(N, M, 3, bias=False, batch_first=True),
    "peepholes": lambda: PeepholeLSTM(N, M, 2, bidirectional=True, output_activation="identity"),
    "peepholes, batch first": lambda: PeepholeLSTM(N, M, 2, bias=False, batch_first=True, dropout=0.5),
    "projection": lambda: nn.LSTM(N, M, 2, proj_size=4, bidirectional=True),
}


@PROJECTED
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize(("quantity", "target"), [("h", 0.01), ("preactivation", 0.5)])
def test_every_module(kind: str, quantity: Any, target: float) -> None:
    """Each layer's measure is the target; only what may be rescaled is, by the factor told; nothing else is touched."""
    lstm = drawn(MODULES[kind]())
    x = white().transpose(0, 1) if lstm.batch_first else white()
    old, state, parameters = values(lstm), torch.get_rng_state(), list(lstm.parameters())
    done = init.calibrate_(lstm, x, target, quantity=quantity)
    assert done.reached
    assert torch.equal(torch.get_rng_state(), state)
    assert lstm.training
    assert all(a is b and a.grad is None for a, b in zip(parameters, lstm.parameters(), strict=True))
    assert done.after == pytest.approx([target] * lstm.num_layers, rel=1e-3)
    if quantity == "h":
        assert var_h(lstm, x) == pytest.approx(target, rel=1.1e-3)
    rows = slice(2 * M, 3 * M) if quantity == "h" else slice(None)
    for name, value in values(lstm).items():
        expected = old[name].clone()
        if name.startswith(("weight_ih", "weight_hh")):
            expected[rows] *= done.scale[int(name.split("_l")[1][0])]
            assert not torch.equal(value, old[name])
        assert torch.equal(value, expected)


def test_a_cell_step_by_step() -> None:
    """A cell's measure is that of its own steps, and is the target afterwards."""
    cell = drawn(nn.LSTMCell(N, M))
    done = init.calibrate_(cell, white(), 0.02)
    state, steps = None, []
    with torch.no_grad():
        for x in white():
            state = cell(x, state)
            steps.append(state[0])
    assert done.reached
    assert float(torch.stack(steps).var(unbiased=False)) == pytest.approx(done.after[0], rel=1e-5)


def test_preactivations_are_those_of_the_state() -> None:
    """The mean square is that of W x + U h + b, written out with a bias and both directions."""
    lstm = nn.LSTM(N, M, bidirectional=True)
    done = init.calibrate_(lstm, white(), 0.3, quantity="preactivation")
    y, found = outputs(lstm, white()), []
    for end, h in (("", y[..., :M]), ("_reverse", y[..., M:].flip(0))):
        x = white().flip(0) if end else white()
        w_ih, w_hh, b_ih, b_hh = (
            getattr(lstm, f"{name}_l0{end}").detach() for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        before = torch.cat([torch.zeros_like(h[:1]), h[:-1]])
        found.append(x @ w_ih.T + before @ w_hh.T + b_ih + b_hh)
    assert float(torch.stack(found).square().mean()) == pytest.approx(done.after[0], rel=1e-5)
    assert float((found[0] - b_ih).square().mean()) != pytest.approx(done.after[0], rel=1e-3)


@pytest.mark.parametrize("quantity", ["h", "preactivation"])
@pytest.mark.parametrize("make", [nn.LSTM, PeepholeLSTM])
def test_packed(make: Any, quantity: Any) -> None:
    """Packed sequences count for their own lengths: the same as each alone, and not the same as with padding."""
    long, short = white(1, T, N), white(2, 4, N)
    lstm = drawn(make(N, M, 2, bidirectional=True))
    packed, padded = copy.deepcopy(lstm), copy.deepcopy(lstm)
    batch = pack_sequence([short, long], enforce_sorted=False)
    done = init.calibrate_(packed, batch, 0.03, quantity=quantity)
    assert done.reached
    if quantity == "h":
        together = torch.cat([outputs(packed, short), outputs(packed, long)])
        assert float(together.double().var(unbiased=False)) == pytest.approx(0.03, rel=2e-3)
    with_padding = nn.utils.rnn.pad_sequence([short, long])
    assert init.calibrate_(padded, with_padding, 0.03, quantity=quantity).scale != pytest.approx(done.scale, rel=0.01)


def test_unbatched_is_a_batch_of_one() -> None:
    """(T, N) gives the same factor as (T, 1, N); so does any dtype of x, for the weights' counts."""
    one, two = drawn(nn.LSTM(N, M)), drawn(nn.LSTM(N, M))
    first = init.calibrate_(one, white()[:, 0].double(), 0.02)
    assert first == init.calibrate_(two, white()[:, :1], 0.02)
    assert one.weight_ih_l0.dtype == torch.float32


def test_out_of_reach() -> None:
    """A Var(h) that tanh cannot give is said to be so, and the nearest is kept; `parts` then reaches more."""
    lstm = drawn(nn.LSTM(N, M, 2))
    start = var_h(lstm, white())
    done = init.calibrate_(lstm, white(), 1.0)
    assert not done.reached
    assert start < done.after[1] < 1
    assert done.after[1] == pytest.approx(var_h(lstm, white()), rel=1e-5)
    assert "out of reach" in done.message
    assert "layer 0" in str(done)
    more = init.calibrate_(drawn(nn.LSTM(N, M, 2)), white(), 1.0, parts="all")
    assert more.after[0] > 1.5 * done.after[0]
    assert "\n" not in str(more)


def test_a_bias_alone_above_the_target() -> None:
    """Biases are not rescaled: a mean square below theirs is out of reach, from above."""
    lstm = drawn(nn.LSTM(N, M), "forget-one")
    done = init.calibrate_(lstm, white(), 0.1, quantity="preactivation")
    assert not done.reached
    assert done.after[0] == pytest.approx(0.25, rel=0.02)


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_units_of_the_data(size: float) -> None:
    """Inputs a thousand times too small or too large still give the pre-activations asked for."""
    lstm = drawn(PeepholeLSTM(N, M))
    assert init.calibrate_(lstm, size * white(), quantity="preactivation").reached


def test_a_network_that_explodes() -> None:
    """A cell that overflows as it comes is brought down to the target."""
    lstm = drawn(PeepholeLSTM(N, M, cell_activation="identity", output_activation="identity", peepholes=False))
    with torch.no_grad():
        lstm.weight_hh_l0.mul_(100)
    done = init.calibrate_(lstm, white(), 0.5)
    assert not math.isfinite(done.before[0]) or done.before[0] > 1e6
    assert done.reached


def test_hooks_and_modes_are_not_for_these_runs() -> None:
    """A module's own hooks do not see the runs, nor does its mode change what is measured."""
    lstm = drawn(PeepholeLSTM(N, M, 2, dropout=0.9))
    calls: list[int] = []
    lstm.register_forward_hook(lambda *_: calls.append(1))
    training = init.calibrate_(lstm, white(), 0.02)
    assert not calls
    assert training == init.calibrate_(drawn(PeepholeLSTM(N, M, 2, dropout=0.9)).eval(), white(), 0.02)


def test_skipped_steps_do_not_count() -> None:
    """With `skip` the measure is that of the later steps, in each direction's own time."""
    lstm = drawn(nn.LSTM(N, M, bidirectional=True))
    done = init.calibrate_(lstm, white(), 0.03, skip=5)
    y = outputs(lstm, white())
    later = torch.cat([y[5:, :, :M], y[:-5, :, M:]]).double()
    assert float(later.var(unbiased=False)) == pytest.approx(0.03, rel=1.1e-3)
    assert var_h(lstm, white()) != pytest.approx(done.after[0], rel=0.02)


@pytest.mark.parametrize("name", ["x", "packed"])
def test_missing_entries(name: str) -> None:
    """NaN is refused with its place; as zero, or under a mask with anything, it gives the factor of zero fill."""
    x = white()
    gaps = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.3
    gaps[:3] = False
    gaps[3, 2, 1] = True
    gaps[3, :2] = False

    def kind(x: Tensor) -> Any:
        sequences = [x[: T - 2 * b, b] for b in (1, 0, 2)]
        return pack_sequence(sequences, enforce_sorted=False) if name == "packed" else x

    where = "step 3, sequence 2, input 1" if name == "packed" else r"\[3, 2, 1\]"
    gaps[3, 2, 0] = False
    old = values(lstm := drawn(nn.LSTM(N, M)))
    with pytest.raises(TheoryError, match=f"NaN in the batch without missing-value support: x is nan first at {where}"):
        init.calibrate_(lstm, kind(x.masked_fill(gaps, math.nan)), 0.02)
    assert all(torch.equal(old[n], v) for n, v in values(lstm).items())
    zero = init.calibrate_(drawn(nn.LSTM(N, M)), kind(x.masked_fill(gaps, 0)), 0.02)
    assert zero == init.calibrate_(drawn(nn.LSTM(N, M)), kind(x.masked_fill(gaps, math.nan)), 0.02, fill="zero")
    payload = x.masked_fill(gaps, math.inf)
    assert zero == init.calibrate_(drawn(nn.LSTM(N, M)), kind(payload), 0.02, observed=kind(~gaps))
    assert zero != init.calibrate_(drawn(nn.LSTM(N, M)), kind(x), 0.02)
    with pytest.raises(TheoryError, match="infinity in the batch: x is inf first"):
        init.calibrate_(lstm, kind(payload), 0.02, fill="zero")


def test_what_cannot_be_meant() -> None:
    """Wrong shapes, names, numbers and modules are refused in one line with what was met."""
    lstm = drawn(nn.LSTM(N, M))
    wrong: list[tuple[str, Any, dict[str, Any]]] = [
        (r"shape \(20, 12, 4\).*I = 5", white()[..., :4], {}),
        (r"shape \(0, 12, 5\)", white()[:0], {}),
        ("x is a list", [1.0], {}),
        ("observed is", white(), {"observed": torch.ones(3)}),
        ("nothing in x is observed", white(), {"observed": torch.zeros(T, B, N)}),
        ("nothing in x is observed", white() * math.nan, {"fill": "zero"}),
        ("x is 0 wherever it is observed", 0 * white(), {}),
        ("fill = 'mean'", white(), {"fill": "mean"}),
        ("quantity = 'c'", white(), {"quantity": "c"}),
        ("parts = 'o'", white(), {"parts": "o"}),
        ("target = -1", white(), {"target": -1}),
        ("skip = 20 leaves no step", white(), {"skip": T}),
        ("within", white(), {"within": 0.5}),
    ]
    for message, x, kwargs in wrong:
        with pytest.raises(TheoryError, match=message) as error:
            init.calibrate_(lstm, x, **kwargs)
        assert "\n" not in str(error.value)
    with pytest.raises(TheoryError, match=r"Sequential holds LSTMs \(0\)"):
        init.calibrate_(nn.Sequential(lstm), white())
    with pytest.raises(TheoryError, match="no LSTM in Linear"):
        init.calibrate_(nn.Linear(2, 2), white())
    with pytest.raises(TheoryError, match=r"shape \(12, 5\): a cell is run over sequences, \(T, B, I\), steps first"):
        init.calibrate_(drawn(nn.LSTMCell(N, M)), white(0, B, N))
    with torch.no_grad():
        lstm.weight_hh_l0[0, 0] = math.nan
    with pytest.raises(TheoryError, match="weight_hh_l0 holds numbers that are not finite: initialise first"):
        init.calibrate_(lstm, white())
