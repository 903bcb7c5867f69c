"""Bad starts are told by the right sentence, good ones by none; each threshold has its case and its control."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from peephole import PeepholeLSTM, init, inspect
from peephole.inspect.advice import THRESHOLDS

T, B, I, H = 50, 16, 6, 32
Change = Callable[[nn.LSTM], Any]


def noise(steps: int = T, inputs: int = I) -> Tensor:
    """White noise of variance 1."""
    return torch.randn(steps, B, inputs, generator=torch.Generator().manual_seed(0))


def good(layers: int = 1) -> nn.LSTM:
    """A start that nothing is said of."""
    return init.initialise_(nn.LSTM(I, H, layers), "forget-one", generator=0)


def rules(model: nn.Module, x: Any, loss: Any = inspect.probe, **how: Any) -> set[str]:
    """The rules that something is said by."""
    return {line.rule for line in inspect.advise(inspect.measure(model, x, loss), **how)}


@pytest.mark.parametrize("name", ["forget-one", "chrono"])
@pytest.mark.parametrize("kind", ["nn.LSTM", "two layers", "both directions", "peepholes", "batch first"])
def test_a_good_start_gets_no_sentence(name: str, kind: str) -> None:
    """Methods that start the forget gate well, on scaled inputs: nothing is said."""
    makers: dict[str, Callable[[], nn.Module]] = {
        "nn.LSTM": lambda: nn.LSTM(I, H), "two layers": lambda: nn.LSTM(I, H, 2),
        "both directions": lambda: nn.LSTM(I, H, bidirectional=True), "peepholes": lambda: PeepholeLSTM(I, H),
        "batch first": lambda: nn.LSTM(I, H, batch_first=True),
    }  # fmt: skip
    module = makers[kind]()
    x = noise().transpose(0, 1) if kind == "batch first" else noise()
    init.initialise_(module, name, generator=0, steps=T)
    assert inspect.advise(inspect.measure(module, x, inspect.probe)) == []


def ragged(*lengths: int) -> PackedSequence:
    """Sequences of these lengths, of which one may be longer than all others."""
    return pack_sequence([noise(length)[:, k] for k, length in enumerate(lengths)], enforce_sorted=False)


def test_ragged_batches_are_good_too() -> None:
    """Where one sequence is longer than all others its outputs differ from none; that is nothing wrong."""
    for module in (good(), PeepholeLSTM(I, H, bidirectional=True, init="forget-one")):
        assert rules(module, ragged(20, 50, 11, 33)) == set()
    assert rules(good(), noise()[:, :1]) == set()


def test_losses_at_every_step_are_good_too() -> None:
    """A loss on all outputs, or on the first alone, is no explosion and no vanishing."""
    assert rules(good(2), noise(), lambda output: output[0].square().mean()) == set()
    assert rules(good(), noise(), lambda output: output[0][0].sum()) == set()


@torch.no_grad()
def bias(lstm: nn.LSTM, gate: int, value: float) -> nn.LSTM:
    """One gate's bias (0 input, 1 forget, 3 output)."""
    lstm.get_parameter("bias_ih_l0")[gate * H : (gate + 1) * H] = value
    return lstm


@torch.no_grad()
def times(lstm: nn.LSTM, factor: float, *, only: str = "") -> nn.LSTM:
    """Weights times a factor."""
    for name, parameter in lstm.named_parameters():
        if only in name:
            parameter.mul_(factor)
    return lstm


BAD: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "forget bias -5": (
        lambda: bias(good(), 1, -5), "forget-closed", r"forget gate is stuck closed in 100% .* averages 0\.00\d\d"
    ),
    "weights times 30": (
        lambda: times(good(), 30), "saturated", r"gates are saturated \(forget \d\d%, input \d\d%, output \d\d%"
    ),
    "zero weights": (lambda: times(good(), 0), "silent", r"Var\(h\) = 0 at step 50.* all weights are zero"),
    "input gate shut": (
        lambda: bias(good(), 0, -9), "input-closed", r"input gate is stuck closed in 100% .* averages 0\.0001"
    ),
    "output gate shut": (
        lambda: bias(good(), 3, -9), "output-closed", r"output gate is stuck closed in 100% .* averages 0\.0001"
    ),
    "input gate open": (lambda: bias(good(), 0, 9), "input-open", "input gate is stuck open in 100%"),
    "output gate open": (lambda: bias(good(), 3, 9), "output-open", "output gate is stuck open in 100%"),
    "forget gate open": (lambda: bias(good(), 1, 12), "forget-open", "forgets nothing of 50 steps"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_start_is_told(name: str) -> None:
    """Each deliberately bad model gets its sentence, with its figure; the good one that it was made from gets none."""
    made, rule, said = BAD[name]
    torch.manual_seed(0)
    lines = inspect.advise(inspect.measure(made(), noise(), inspect.probe))
    assert rule in {line.rule for line in lines}
    text = next(str(line) for line in lines if line.rule == rule)
    assert text.startswith("LSTM, layer 0: ")
    assert re.search(said, text), text


def test_which_gates_are_saturated() -> None:
    """Only the gates that switch are named."""
    lstm = good()
    with torch.no_grad():
        lstm.get_parameter("weight_ih_l0")[3 * H :] *= 40
    (text,) = [str(line) for line in inspect.advise(inspect.measure(lstm, noise())) if line.rule == "saturated"]
    assert "output" in text
    assert "forget" not in text


def test_saturated_by_peepholes() -> None:
    """Peepholes that are too large are named, with a factor above 1 that, taken, silences the sentence."""
    lstm = PeepholeLSTM(I, H, init="forget-one")
    with torch.no_grad():
        lstm.get_parameter("weight_ph_l0").normal_(generator=torch.Generator().manual_seed(0)).mul_(30)
    (text,) = [str(line) for line in inspect.advise(inspect.measure(lstm, noise())) if line.rule == "saturated"]
    told = re.search("most of it by the peepholes; peepholes (.*) times smaller", text)
    assert told, text
    assert float(told[1]) > 1
    with torch.no_grad():
        lstm.get_parameter("weight_ph_l0").div_(float(told[1]))
    assert "saturated" not in rules(lstm, noise())


def test_which_weights_saturate() -> None:
    """The weights named are those that were made too large; where none are, nothing smaller is advised."""
    for part, named in (("weight_ih", "input weights"), ("weight_hh", "recurrent weights")):
        said = inspect.advise(inspect.measure(times(good(), 30, only=part), noise()))
        (text,) = [str(line) for line in said if line.rule == "saturated"]
        assert re.search(rf"by the {named}; {named}.* times smaller", text), text
    eager = replace(THRESHOLDS, saturated=1e-9, switching=1e-9)
    said = inspect.advise(inspect.measure(good(), noise()), thresholds=eager)
    (text,) = [str(line) for line in said if line.rule == "saturated"]
    assert "smaller" not in text, text


def test_a_layer_of_many() -> None:
    """The sentence names the layer, the direction and the module."""
    model = nn.ModuleDict({"lstm": PeepholeLSTM(I, H, 2, bidirectional=True, init="forget-one")})

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Any:
            return self.parts["lstm"](x)

    with torch.no_grad():
        model["lstm"].get_parameter("bias_l1_reverse")[:H] = -9
    found = {(line.rule, line.where) for line in inspect.advise(inspect.measure(Wrapped(), noise()))}
    assert ("input-closed", "parts.lstm, layer 1, reverse") in found
    assert not any("layer 0" in where for _, where in found)


def scaled(factor: float) -> Tensor:
    """Inputs of another scale."""
    return factor * noise()


def test_inputs() -> None:
    """Unscaled, tiny and constant inputs are told, each by its own sentence; a single unscaled feature too."""
    assert "large" in rules(good(), scaled(1000))
    one = noise()
    one[..., 2] *= 1000
    text = str(inspect.advise(inspect.measure(good(), one))[0])
    assert "feature 2 has mean" in text
    assert "large" not in rules(good(), scaled(5))
    assert "small" in rules(good(), scaled(1e-4))
    assert "small" not in rules(good(), scaled(0.1))
    assert "constant" in rules(good(), torch.ones(T, B, I))
    assert "constant" not in rules(good(), torch.cat([torch.ones(T, B, I - 1), noise(inputs=1)], 2))


def test_one_hot_inputs_are_not_tiny() -> None:
    """A vector of 20 000 features, one of which is 1, has length 1; a hundred times smaller it is tiny."""
    hot = nn.functional.one_hot(torch.arange(40).view(10, 4) * 400, 20000).float()
    lstm = nn.LSTM(20000, 4)
    assert "small" not in rules(lstm, hot)
    assert "small" in rules(lstm, 0.009 * hot)


class Decoder(nn.Module):
    """Fed zeros, from the state that an encoder put out, or from none."""

    def __init__(self, handed: bool) -> None:
        super().__init__()
        self.encoder, self.decoder, self.handed = good(), good(), handed

    def forward(self, x: Tensor) -> Tensor:
        """Outputs of the decoder."""
        _, state = self.encoder(x)
        y: Tensor = self.decoder(torch.zeros_like(x), state if self.handed else None)[0]
        return y


def test_zeros_into_a_decoder() -> None:
    """A decoder fed zeros lives by the state it was handed: only without one its inputs are constant."""
    assert not {"constant", "small", "alike"} & rules(Decoder(True), noise(20), lambda y: y.square().mean())
    assert "constant" in rules(Decoder(False), noise(20), lambda y: y.square().mean())


def test_one_vector_is_not_constant() -> None:
    """Of one step of one sequence nothing is said; of two that are the same it is."""
    assert rules(good(), noise(1)[:, :1]) == set()
    assert "constant" in rules(good(), noise(1)[:, :1].expand(2, 1, I))


class Normalised(nn.Module):
    """Batch norm before the LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.lstm = nn.BatchNorm1d(I), good()

    def forward(self, x: Tensor) -> Tensor:
        """Outputs for (T, B, I)."""
        y: Tensor = self.lstm(self.norm(x.flatten(0, 1)).view_as(x))[0]
        return y


def test_fresh_batch_norm() -> None:
    """Batch norm that has seen nothing yet normalises as in training, and learns nothing by it; in eval it does not."""
    model, x = Normalised(), 300 + 100 * noise()
    assert rules(model, x, lambda y: y.square().mean()) == set()
    kept = model.norm.state_dict()
    assert not kept["num_batches_tracked"]
    assert not kept["running_mean"].any()
    assert "large" in rules(model.eval(), x, lambda y: y.square().mean())


def test_memory() -> None:
    """Half the memory gone at each of 500 steps is told with a remedy that, taken, silences it."""
    lstm = nn.LSTM(I, H)
    (line,) = [line for line in inspect.advise(inspect.measure(lstm, noise(500))) if line.rule == "memory"]
    assert "half the memory is gone each step" in str(line)
    assert "sequences have 500 steps" in str(line)
    advised = float(str(line).split("a forget bias of ")[1].split(",")[0])
    assert "memory" not in rules(bias(good(), 1, advised), noise(500))
    assert "memory" not in rules(init.initialise_(nn.LSTM(I, H), "chrono", generator=0, steps=500), noise(500))
    assert "memory" not in rules(nn.LSTM(I, H), noise(20))


def test_vanishing() -> None:
    """A gradient that is lost on its way back is told with both steps; a short sequence has none."""
    torch.manual_seed(0)
    lstm = nn.LSTM(I, H)
    (line,) = inspect.advise(inspect.measure(lstm, noise(80), inspect.probe))
    assert line.rule == "vanishing"
    assert line.figure < 1e-9
    assert "of that at step 80" in str(line)
    assert ", from the last output alone: " in str(line)
    weights = torch.logspace(-12, 0, 80)[:, None, None]  # a loss at every step, of which the last count
    said = inspect.advise(inspect.measure(lstm, noise(80), lambda output: (weights * output[0]).sum()))
    (text,) = [str(line) for line in said if line.rule == "vanishing"]
    assert "alone" not in text
    assert "cannot be learned" not in text
    assert rules(lstm, noise(10)) == set()


def test_exploding() -> None:
    """Recurrent weights that amplify are told; the same weights without recurrence are not."""
    lstm = times(good(), 6, only="weight_hh")
    assert "exploding" in rules(lstm, noise())
    assert "exploding" not in rules(times(lstm, 0.1, only="weight_hh"), noise())


def test_a_detached_layer() -> None:
    """A layer whose output the loss does not see is told."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = good(), good()

        def forward(self, x: Tensor) -> Tensor:
            self.idle(x)
            y: Tensor = self.used(x)[0]
            return y

    (line,) = inspect.advise(inspect.measure(Two(), noise(), lambda y: y.square().mean()))
    assert (line.rule, line.where) == ("detached", "idle, layer 0")


def test_swollen_and_overflow() -> None:
    """A cell state that grows without bound is told; one that has left the range of numbers too."""
    lstm = bias(bias(good(), 1, 12), 0, 9)
    with torch.no_grad():
        lstm.get_parameter("bias_ih_l0")[2 * H : 3 * H] = 3
        lstm.get_parameter("bias_ih_l0")[2 * H : 2 * H + H // 2] = -3
    assert "swollen" in rules(lstm, noise())
    assert "swollen" not in rules(good(), noise())
    wild = PeepholeLSTM(I, H, output_activation="identity", cell_activation="identity")
    with torch.no_grad():
        for parameter in wild.parameters():
            parameter.mul_(30)
    assert "overflow" in rules(wild, noise(200))


def test_alike() -> None:
    """Outputs that are the same for every sequence are told."""
    lstm = good()
    with torch.no_grad():
        lstm.get_parameter("bias_ih_l0")[2 * H : 3 * H] = torch.linspace(-1, 1, H)
        lstm.get_parameter("weight_ih_l0").mul_(1e-5)
    assert "alike" in rules(lstm, noise())
    assert "alike" in rules(lstm, ragged(20, 50, 11, 33))
    assert "alike" not in rules(good(), noise())


def test_the_same_sequences_are_alike() -> None:
    """Outputs that are the same because the inputs are is no fault of the start."""
    assert rules(good(), noise()[:, :1].expand(T, B, I)) == set()


def test_target() -> None:
    """Targets of another scale than h are told, of a similar one not."""
    assert "target" in rules(good(), noise(), target=100.0)
    assert "target" not in rules(good(), noise(), target=0.1)


@pytest.fixture(scope="module")
def cases() -> list[inspect.Measured]:
    """A good start and several bad ones, measured."""
    models = [
        good(), bias(good(), 1, -5), bias(good(), 1, 12), times(good(), 30), bias(good(), 0, -9), bias(good(), 3, 9)
    ]  # fmt: skip
    return [inspect.measure(model, noise(), inspect.probe) for model in models]


@pytest.mark.parametrize("field", list(vars(THRESHOLDS)))
def test_every_threshold_decides(field: str, cases: list[inspect.Measured]) -> None:
    """Each threshold, moved to where everything crosses it or nothing does, changes what is said of some start."""
    said = []
    for value in (1e-12, 1e12):
        limits = replace(THRESHOLDS, **{field: value})
        found = [inspect.advise(measured, target=0.1, thresholds=limits) for measured in cases]
        said.append([[line.rule for line in lines] for lines in found])
    assert said[0] != said[1]


def test_figures_are_numbers() -> None:
    """Each finding carries the figure that crossed its threshold."""
    for made, rule, _ in BAD.values():
        for line in inspect.advise(inspect.measure(made(), noise(), inspect.probe)):
            if line.rule == rule:
                assert np.isfinite(line.figure)
