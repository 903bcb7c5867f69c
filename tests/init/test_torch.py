"""Methods put into PyTorch's modules and ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from peephole import PeepholeLSTM, init
from peephole.init.layouts import TORCH
from peephole.theory import Cell, TheoryError, Variances, preset, propagate


def seeded(seed: int = 0) -> torch.Generator:
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def parameter(module: nn.Module, name: str) -> torch.Tensor:
    """A parameter of an LSTM, which names them at run time."""
    found = getattr(module, name)
    assert isinstance(found, torch.Tensor)
    return found.detach()


@pytest.mark.parametrize("name", init.METHODS)
def test_every_layer_and_direction(name: str) -> None:
    """Every layer and direction holds `weights` of its own cell and part, the sum of both biases included."""
    lstm = nn.LSTM(4, 6, num_layers=2, bidirectional=True, dtype=torch.float64)
    init.initialise_(lstm, name, generator=3)
    first = Cell(4, 6, peepholes=False, output="tanh")
    carried = init.output_variance(name, first)
    second = Cell(12, 6, peepholes=False, output="tanh", input_variance=carried)
    places = [(first, "l0"), (first, "l0_reverse"), (second, "l1"), (second, "l1_reverse")]
    for part, (cell, suffix) in enumerate(places):
        drawn = init.weights(name, cell, 3, part=part)
        for letter, parameter_name in (("W", "weight_ih"), ("U", "weight_hh"), ("b", "bias_ih")):
            expected = TORCH.stack(drawn, letter)
            assert np.array_equal(parameter(lstm, f"{parameter_name}_{suffix}").numpy(), expected)
        assert not parameter(lstm, f"bias_hh_{suffix}").any()


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_forget_bias(layers: int, bidirectional: bool) -> None:
    """forget-one's bias is 1, both biases summed, in every layer and direction; torch's own is not."""
    promised = torch.cat([torch.zeros(5), torch.ones(5), torch.zeros(10)])
    lstm = nn.LSTM(3, 5, layers, bidirectional=bidirectional)

    def sums() -> list[torch.Tensor]:
        suffixes = [f"l{k}{way}" for k in range(layers) for way in (("", "_reverse") if bidirectional else ("",))]
        return [parameter(lstm, f"bias_ih_{s}") + parameter(lstm, f"bias_hh_{s}") for s in suffixes]

    assert not any(torch.equal(bias, promised) for bias in sums())
    init.initialise_(lstm, "forget-one")
    assert all(torch.equal(bias, promised) for bias in sums())


def test_the_same_numbers_everywhere() -> None:
    """A seed means the same numbers in nn.LSTM, nn.LSTMCell and PeepholeLSTM without peepholes."""
    layer = init.initialise_(nn.LSTM(3, 5), "chrono", generator=1)
    cell = init.initialise_(nn.LSTMCell(3, 5), "chrono", generator=1)
    ours = init.initialise_(PeepholeLSTM(3, 5, peepholes=False), "chrono", generator=1)
    assert torch.equal(parameter(layer, "weight_hh_l0"), cell.weight_hh)
    assert torch.equal(cell.weight_hh, parameter(ours, "weight_hh_l0"))
    assert torch.equal(parameter(layer, "bias_ih_l0"), parameter(ours, "bias_l0"))


def test_peepholes() -> None:
    """PeepholeLSTM's peepholes are drawn in the order i, f, o."""
    lstm = init.initialise_(
        PeepholeLSTM(3, 5, output_activation="identity", dtype=torch.float64), "proposed-2", generator=1
    )
    drawn = init.weights("proposed-2", Cell(3, 5), 1)
    assert np.array_equal(
        parameter(lstm, "weight_ph_l0").numpy(), np.concatenate([drawn[f"V_{gate}"] for gate in "ifo"])
    )


def test_projections() -> None:
    """A projected LSTM's recurrent matrices, projection and later layers have their own fan-in."""
    lstm = init.initialise_(nn.LSTM(3, 40, 2, proj_size=10, bidirectional=True), "normalized", generator=1)
    assert parameter(lstm, "weight_hh_l1").var() * 10 == pytest.approx(1, rel=0.2)
    assert parameter(lstm, "weight_hr_l0").var() * 40 == pytest.approx(1, rel=0.3)
    assert parameter(lstm, "weight_ih_l1").var() * 20 == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("name", ["proposed-4", "corrected-4"])
def test_later_layers_see_the_earlier_layer_s_scale(name: str) -> None:
    """A second layer's W has the gates' variances on what a real first layer gives out, not on inputs of variance 1."""
    measured = []
    with torch.no_grad():
        for seed in range(10):
            lstm = init.initialise_(nn.LSTM(64, 64, 2), name, generator=seed)
            first = nn.LSTM(64, 64)
            first.load_state_dict({key: parameter(lstm, key) for key in first.state_dict()})
            h = first(torch.randn(20, 32, 64, generator=seeded(seed)))[0][-1].double()
            measured.append(float(64 * h.var() * parameter(lstm, "weight_ih_l1").double()[:64].var()))
    cell = Cell(64, 64, peepholes=False, output="tanh")
    promised = 64 * preset(name, cell).w_i
    # Sampled are the networks, each block's variance among them, and the prediction's 2000 units.
    flow = propagate(cell, preset(name, cell), steps=20, samples=2000)
    error = np.hypot(np.std(measured, ddof=1) / 10**0.5, promised * flow.se_var_h[-1] / flow.var_h[-1])
    assert abs(np.mean(measured) - promised) < 4 * error
    assert abs(np.mean(measured) * init.output_variance(name, cell) - promised) > 4 * error  # control: Var(x) = 1


def test_deep_stacks_do_not_fade() -> None:
    """Pre-activations of proposed-4 keep their scale through four layers; with Var(x) = 1 in each they fade."""

    def by_layer(lstm: nn.LSTM) -> list[float]:
        h, found = torch.randn(20, 64, 64, generator=seeded()), []
        for layer in range(4):
            found.append(float((h @ parameter(lstm, f"weight_ih_l{layer}").T).square().mean()))
            one = nn.LSTM(64, 64)
            one.load_state_dict({key: parameter(lstm, key.replace("_l0", f"_l{layer}")) for key in one.state_dict()})
            h = one(h)[0].detach()
        return found

    scales = by_layer(init.initialise_(nn.LSTM(64, 64, 4), "proposed-4", generator=0))
    assert min(scales) > 0.5 * scales[0]
    cell = Cell(64, 64, peepholes=False, output="tanh")
    control = by_layer(init.variances_(nn.LSTM(64, 64, 4), preset("proposed-4", cell), generator=0))
    assert max(control[1:]) < 0.1 * control[0]


def test_baselines_do_not_see_the_scale() -> None:
    """A baseline, which does not look at Var(x), draws later layers like the first."""
    lstm = init.initialise_(nn.LSTM(64, 64, 2), "normalized", generator=1)
    assert parameter(lstm, "weight_ih_l1").var() * 64 == pytest.approx(1, rel=0.1)


def test_what_is_kept() -> None:
    """Type and identity of the parameters stay, and the module comes back; a layer without biases works."""
    lstm = nn.LSTM(3, 5, dtype=torch.float64)
    before = list(lstm.parameters())
    assert init.initialise_(lstm, "proposed-4") is lstm
    assert all(a is b for a, b in zip(before, lstm.parameters(), strict=True))
    assert parameter(lstm, "weight_ih_l0").dtype == torch.float64
    init.initialise_(nn.LSTM(3, 5, bias=False), "chrono")


def test_the_generator_decides() -> None:
    """The same generator state gives the same bits, another state others; so does torch.manual_seed without one."""

    def weight(generator: torch.Generator | None) -> torch.Tensor:
        return parameter(init.initialise_(nn.LSTM(3, 5), "normalized", generator=generator), "weight_hh_l0")

    assert torch.equal(weight(seeded(1)), weight(seeded(1)))
    assert not torch.equal(weight(seeded(1)), weight(seeded(2)))
    torch.manual_seed(5)
    first = nn.init.normal_(torch.empty(1)), weight(None)
    torch.manual_seed(5)
    nn.init.normal_(torch.empty(1))
    lstm = nn.LSTM(3, 5)  # draws before it is drawn anew, as above
    assert torch.equal(first[1], parameter(init.initialise_(lstm, "normalized"), "weight_hh_l0"))


def test_devices_need_not_agree() -> None:
    """Of a generator only a seed is taken, on its own device: a module elsewhere, here on meta, is no error."""
    with torch.device("meta"):
        lstm = init.initialise_(nn.LSTM(3, 5), "normalized", generator=seeded(1))
        init.initialise_(nn.LSTM(3, 5), "normalized")
    assert parameter(lstm, "weight_hh_l0").device.type == "meta"


def test_any_model_that_contains_lstms() -> None:
    """Every LSTM in a model is found and named, and nothing else touched; a model without one is an error."""
    model = nn.ModuleDict(
        {"a": nn.LSTM(3, 4), "b": nn.Sequential(nn.Linear(2, 2), nn.LSTMCell(2, 2)), "p": PeepholeLSTM(2, 2)}
    )
    linear = model["b"][0].weight.clone()  # type: ignore[index]
    touched = init.initialise_(model, "forget-one", generator=1)
    assert list(touched) == ["a", "b.1", "p"]
    assert all(part is model.get_submodule(name) for name, part in touched.items())
    assert torch.equal(model["b"][0].weight, linear)  # type: ignore[index]
    drawn = init.weights("forget-one", Cell(2, 2, peepholes=False), 1, part=1)
    assert np.array_equal(parameter(touched["b.1"], "weight_hh").numpy()[:2], drawn["U_i"].astype(np.float32))
    with pytest.raises(TheoryError, match=r"no LSTM in Sequential: nn.LSTM, nn.LSTMCell and PeepholeLSTM are covered"):
        init.initialise_(nn.Sequential(nn.Linear(2, 2)), "forget-one")


def test_any_variances() -> None:
    """`variances_` draws whatever Variances it is given."""
    v = Variances(4.0, 0.01, None, 4.0, 0.01, None, 4.0, 0.01, None, 1.0, 0.0)
    lstm = init.variances_(nn.LSTM(64, 64), v, generator=seeded())
    assert parameter(lstm, "weight_ih_l0")[:64].var() == pytest.approx(4, rel=0.1)
    assert not parameter(lstm, "weight_hh_l0")[128:192].any()


COMPUTED: dict[str, Callable[[nn.Module], object]] = {
    "weight_norm": lambda lstm: nn.utils.parametrizations.weight_norm(lstm, "weight_hh_l0"),
    "orthogonal": lambda lstm: nn.utils.parametrizations.orthogonal(lstm, "weight_hh_l0"),
    "old weight_norm": lambda lstm: nn.utils.weight_norm(lstm, "weight_hh_l0"),
    "pruning": lambda lstm: prune.random_unstructured(lstm, "weight_hh_l0", 0.5),  # type: ignore[no-untyped-call]
}


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("made", [nn.LSTM, PeepholeLSTM])
@pytest.mark.parametrize("kind", COMPUTED)
def test_computed_weights_are_refused(kind: str, made: Callable[[int, int], nn.Module]) -> None:
    """A weight that is computed from others is refused by name, by calibrate_ too: the draw would be lost."""
    model = nn.Sequential(made(3, 4))
    COMPUTED[kind](model[0])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    message = f"weight_hh of layer 0 of .*{made.__name__} is not a parameter but computed from others"
    with pytest.raises(TheoryError, match=message):
        init.initialise_(model, "normalized")
    with pytest.raises(TheoryError, match=message):
        init.calibrate_(model[0], torch.randn(5, 2, 3))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_wrong_arguments() -> None:
    """Generators and modules of another kind are told apart; NumPy's whole numbers are numbers."""
    by_number = init.initialise_(nn.LSTM(2, 2), "normalized", generator=3)
    by_numpy = init.initialise_(nn.LSTM(2, 2), "normalized", generator=np.int64(3))
    assert torch.equal(parameter(by_number, "weight_hh_l0"), parameter(by_numpy, "weight_hh_l0"))
    wrong: list[Any] = [np.random.default_rng(0), 3.0, True, "0"]
    for generator in wrong:
        with pytest.raises(TheoryError, match=f"generator is a {type(generator).__name__}: a whole number"):
            init.initialise_(nn.LSTM(2, 2), "normalized", generator=generator)
    no_module: list[Any] = ["x", [nn.LSTM(2, 2)], None, nn.LSTM]
    for module in no_module:
        with pytest.raises(TheoryError, match=f"module is a {type(module).__name__}: a torch.nn.Module"):
            init.initialise_(module, "normalized")


def test_what_is_refused() -> None:
    """Unknown names, modules that are not covered and impossible requests are named in one line, weights untouched."""
    with pytest.raises(TheoryError, match="did you mean 'orthogonal'"):
        init.initialise_(nn.LSTM(2, 2), "orthogonl")
    with pytest.raises(TheoryError, match=r"no LSTM in GRU: nn.LSTM, nn.LSTMCell and PeepholeLSTM are covered"):
        init.initialise_(nn.GRU(2, 2), "normalized")
    with pytest.raises(TheoryError, match="has no peepholes"):
        init.variances_(nn.LSTM(2, 2), preset("normalized", Cell(2, 2)))
    relu = PeepholeLSTM(2, 2, cell_activation="relu")
    before = parameter(relu, "weight_ih_l0").clone()
    message = (
        r"corrected-1 cannot initialise PeepholeLSTM\(2, 2, cell_activation='relu'\): relu has no Taylor expansion"
    )
    with pytest.raises(TheoryError, match=message):
        init.initialise_(relu, "corrected-1")
    assert torch.equal(before, parameter(relu, "weight_ih_l0"))
