"""A larger model that contains a PeepholeLSTM goes through `torch.onnx.export` by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from peephole import PeepholeLSTM
from peephole.interop import onnx as ours
from peephole.nn import exported, functional

I, H = 3, 5


class Model(nn.Module):
    """Convolution, LSTM, a linear layer: what a user might have."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.before = nn.Conv1d(2, I, 3, padding=1)
        self.lstm = PeepholeLSTM(I, H, batch_first=True, **options)
        self.after = nn.Linear(H * (1 + self.lstm.bidirectional), 2)
        for name, parameter in self.lstm.named_parameters():
            nn.init.normal_(parameter, std=0.5 if "_ph_" in name else 0.3)

    def forward(self, x: Tensor) -> Tensor:
        """From (B, 2, T) to (B, T, 2)."""
        y, (h, c) = self.lstm(torch.tanh(self.before(x)).transpose(1, 2))
        out: Tensor = torch.tanh(self.after(y)) + h.mean() * c.mean()
        return out


def traced(model: nn.Module, path: Path, *given: Tensor, dynamic: Any) -> Any:
    """The model by torch's exporter, opened by ONNX Runtime."""
    torch.onnx.export(model, given, path, dynamo=True, dynamic_shapes=dynamic, verbose=False)
    return onnxruntime.InferenceSession(path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2, "bidirectional": True, "dropout": 0.5},
        {"peepholes": False, "bias": False, "backend": "reference"},
        {"gate_activation": "hard_sigmoid", "cell_activation": "relu", "output_activation": "identity"},
    ],
)
def test_a_larger_model(options: dict[str, Any], tmp_path: Path) -> None:
    """ONNX Runtime's outputs are the model's to 1e-5, at other batches and lengths than those that were traced."""
    model = Model(**options).eval()
    session = traced(model, tmp_path / "m.onnx", torch.randn(2, 2, 6), dynamic=({0: Dim("batch"), 2: Dim("steps")},))
    for batch, steps in ((2, 6), (5, 17), (1, 2)):
        x = torch.randn(batch, 2, steps)
        wanted = model(x).detach().numpy()
        got = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
        assert np.abs(got - wanted).max() < 1e-5


class Ended(nn.Module):
    """The function itself, with sequences that end early."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = PeepholeLSTM(I, H)

    def forward(self, x: Tensor, h: Tensor, c: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and the last c."""
        w_ih, w_hh, w_ph, bias = self.lstm.all_weights[0]
        y, (_, last) = functional.peephole_lstm(x, w_ih, w_hh, w_ph, bias, (h, c), lengths=lengths)
        return y, last


def test_states_and_lengths(tmp_path: Path) -> None:
    """States and lengths become the operator's own."""
    model, (T, B) = Ended().eval(), (7, 3)
    given = torch.randn(T, B, I), torch.randn(B, H), torch.randn(B, H), torch.tensor([7, 2, 5])
    session = traced(model, tmp_path / "m.onnx", *given, dynamic=None)
    names = [value.name for value in session.get_inputs()]
    got = session.run(None, dict(zip(names, (tensor.numpy() for tensor in given), strict=True)))
    for wanted, theirs in zip(model(*given), got, strict=True):
        assert np.abs(wanted.detach().numpy() - theirs).max() < 1e-6


def test_a_wrong_order_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: with the peepholes' blocks left as they are the outputs are far off."""
    monkeypatch.setattr(exported, "_reordered", lambda stacked, given, wanted: (
        stacked if len(given) == 3 else torch.cat([stacked.chunk(4)[given.index(gate)] for gate in wanted])
    ))  # fmt: skip
    model = Model().eval()
    x = torch.randn(2, 2, 6)
    session = traced(model, tmp_path / "m.onnx", x, dynamic=None)
    assert (
        np.abs(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0] - model(x).detach().numpy()).max() > 1e-3
    )


@pytest.mark.parametrize("options", [{"bidirectional": True, "num_layers": 2}, {"batch_first": True, "bias": False}])
@pytest.mark.parametrize("dynamic", [None, ({0: Dim("first"), 1: Dim("second")},)])
def test_torch_s_own_files(options: dict[str, Any], dynamic: Any, tmp_path: Path) -> None:
    """What torch's exporter makes of an `nn.LSTM`, `load` reads: weights of `from_torch`, bit for bit."""
    module = nn.LSTM(I, H, **options).eval()
    torch.onnx.export(module, (torch.randn(2, 6, I),), tmp_path / "a.onnx", dynamic_shapes=dynamic, verbose=False,
                      external_data=False)  # fmt: skip
    back, wanted = ours.load(tmp_path / "a.onnx"), PeepholeLSTM.from_torch(module, peepholes=False)
    assert repr(back) == repr(wanted)
    for name, parameter in wanted.named_parameters():
        assert torch.equal(back.get_parameter(name), parameter)
