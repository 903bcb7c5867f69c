"""A training is recorded as it is measured, and not disturbed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from peephole import inspect

X, Y = (torch.randn(12, 8, width, generator=torch.Generator().manual_seed(width)) for width in (3, 5))


def loss(output: Any) -> Tensor:
    """Against fixed targets."""
    return nn.functional.mse_loss(output[0], Y)


def train(lstm: nn.LSTM, recorder: inspect.Recorder | None, steps: int) -> list[float]:
    """Losses of a training with dropout, whose random numbers a recorder must not touch."""
    torch.manual_seed(0)
    optimiser = torch.optim.SGD(lstm.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss(lstm(X))
        value.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(value.item())
        if recorder is not None:
            recorder.step(X, loss)
    return losses


@pytest.fixture
def lstm() -> nn.LSTM:
    """Two layers with dropout between them."""
    torch.manual_seed(1)
    return nn.LSTM(3, 5, 2, dropout=0.3)


@pytest.mark.parametrize("to", ["folder", "signals.csv"])
def test_a_csv_file(lstm: nn.LSTM, tmp_path: Path, to: str) -> None:
    """The file holds the frame of each n-th step, and the training is bit for bit the one without a recorder."""
    alone = train(copy.deepcopy(lstm), None, 7)
    recorder = inspect.Recorder(lstm, every=3, to=tmp_path / to)
    assert train(lstm, recorder, 7) == alone
    table = pd.read_csv(tmp_path / to if to.endswith("csv") else tmp_path / to / "inspect.csv")
    assert table["training_step"].unique().tolist() == [0, 3, 6]
    assert recorder.last is not None
    expected = recorder.last.frame
    last = table[table["training_step"] == 6].drop(columns="training_step").reset_index(drop=True)
    assert list(last.columns) == list(expected.columns)
    np.testing.assert_allclose(last["gradient"], expected["gradient"])
    np.testing.assert_allclose(last["var_c"], inspect.measure(lstm, X, loss).frame["var_c"], rtol=1e-5)


class Coder(nn.Module):
    """A model that steps a cell itself, of which `direct` cannot be told, after an LSTM of which it can."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.cell = nn.LSTM(3, 5), nn.LSTMCell(3, 5)

    def forward(self, x: Tensor) -> Any:
        """Outputs by step."""
        _, (h, c) = self.lstm(x)
        state, outputs = (h[0], c[0]), []
        for step in x:
            state = self.cell(step, state)
            outputs.append(state[0])
        return torch.stack(outputs), None


def test_columns_never_move(tmp_path: Path) -> None:
    """A record with a loss, one without, LSTMs with `direct` and without: each number stands under its name."""
    model = Coder()
    recorder = inspect.Recorder(model, every=1, to=tmp_path / "r.csv")
    frames = [measured.frame for given in (None, loss, None) if (measured := recorder.step(X, given))]
    table = pd.read_csv(tmp_path / "r.csv")
    assert len(frames) == 3
    assert set(frames[1].columns) == set(table.columns) - {"training_step"}
    for number, frame in enumerate(frames):
        rows = table[table["training_step"] == number].reset_index(drop=True)
        for name in table.columns.drop("training_step"):
            expected = frame[name] if name in frame else pd.Series(np.nan, rows.index)
            if expected.dtype == object or str(expected.dtype).startswith("str"):
                assert rows[name].tolist() == expected.tolist()
            else:
                np.testing.assert_allclose(rows[name].astype(float), expected.astype(float))


def test_tensorboard(lstm: nn.LSTM, tmp_path: Path) -> None:
    """TensorBoard gets scalars at the recorded steps, and what is wrong as text."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with torch.no_grad():
        lstm.get_parameter("bias_ih_l0")[5:10] = -9
    writer = SummaryWriter(str(tmp_path))
    recorder = inspect.Recorder(lstm, every=2, to=writer)
    train(lstm, recorder, 4)
    writer.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    tags = events.Tags()
    assert "inspect/var_h/LSTM, layer 0" in tags["scalars"]
    scalars = events.Scalars("inspect/mean_f/LSTM, layer 0")
    assert [event.step for event in scalars] == [0, 2]
    assert scalars[0].value < 0.01
    assert any("inspect/advice" in tag for tag in tags["tensors"])


def test_a_lost_training_is_warned_of_once(lstm: nn.LSTM, tmp_path: Path) -> None:
    """NaN in the weights ends no training: one warning says which step is not recorded."""
    recorder = inspect.Recorder(lstm, every=1, to=tmp_path)
    recorder.step(X, loss)
    with torch.no_grad():
        lstm.get_parameter("weight_ih_l0").fill_(torch.nan)
    with pytest.warns(UserWarning, match="step 1 is not recorded: weight_ih_l0 holds"):
        recorder.step(X, loss)
    assert recorder.step(X, loss) is None


def test_few_sequences_are_looked_at(lstm: nn.LSTM, tmp_path: Path) -> None:
    """What is recomputed is of the first sequences alone; the loss is of all."""
    found = inspect.Recorder(lstm, to=tmp_path, sequences=2).step(X, loss)
    assert found is not None
    assert {trace.sequences for trace in found.traces} == {2}
