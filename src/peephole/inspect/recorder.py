"""The same measurements every n steps of a training, into a CSV file or TensorBoard."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import nn

from peephole.inspect.advice import advise
from peephole.inspect.errors import InspectError
from peephole.inspect.measured import COLUMNS, Measured, columns_of, summarised
from peephole.inspect.measuring import measure
from peephole.inspect.statistics import GATES
from peephole.inspect.watch import Loss
from peephole.theory.errors import check_count

HEADER = ("training_step", *COLUMNS)


@runtime_checkable
class Writer(Protocol):
    """What is used of a `torch.utils.tensorboard.SummaryWriter`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """One number."""

    def add_text(self, tag: str, text_string: str, global_step: int) -> Any:
        """A text."""


class Recorder:
    """Measures a model every `every` steps of its training; `to` is a .csv file, a folder or a SummaryWriter.

    Call `step(batch, loss)` once after each training step, with the batch and the loss of `measure`. A CSV file has the
    rows of `Measured.frame`, led by the training step (in a folder it is `inspect.csv`); it is begun anew, and its
    columns are always the same: what a record has not, such as gradients without a loss, is left empty. TensorBoard
    gets the last step's variances, each gate's mean and saturated share, the gradient's ratio and decay as scalars, and
    what `advise` says as text.

    A record costs about two training steps: the model runs on the whole batch once more, forward and back, and
    what `nn.LSTM` hides is recomputed for the first `sequences` of it. So with `every=50` a training takes less than
    a twentieth longer. Weights that are no longer finite are told in a warning, once, and end no training.
    """

    def __init__(self, model: nn.Module, *, every: int = 50, to: Path | str | Writer, sequences: int = 16) -> None:
        check_count("every", every, 1)
        check_count("sequences", sequences, 1)
        self.model, self.every, self.sequences = model, every, sequences
        self.last: Measured | None = None
        self._count, self._warned = 0, False
        self._writer = to if isinstance(to, Writer) else None
        self._path: Path | None = None
        if not isinstance(to, Writer):
            path = Path(to)
            self._path = path if path.suffix == ".csv" else path / "inspect.csv"
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("w", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, HEADER).writeheader()

    def step(self, batch: Any, loss: Loss | None = None) -> Measured | None:
        """Count a training step; on the first and on every n-th after it measure, write and return what was found."""
        number, self._count = self._count, self._count + 1
        if number % self.every:
            return None
        try:
            measured = measure(self.model, batch, loss, sequences=self.sequences)
        except InspectError as error:
            if not self._warned:
                warnings.warn(f"step {number} is not recorded: {error}", stacklevel=2)
            self._warned = True
            return None
        self.last = measured
        if self._writer is not None:
            _write_scalars(self._writer, measured, number)
        else:
            self._append(measured, number)
        return measured

    def _append(self, measured: Measured, number: int) -> None:
        assert self._path is not None
        with self._path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, HEADER)  # what a trace has not is left empty
            for trace in measured.traces:
                columns = {"training_step": number} | columns_of(trace)
                parts = [part if isinstance(part, np.ndarray) else [part] * trace.length for part in columns.values()]
                writer.writerows(dict(zip(columns, row, strict=True)) for row in zip(*parts, strict=True))


def _write_scalars(writer: Writer, measured: Measured, number: int) -> None:
    quantities = ("var_h", "var_c", *(f"{kind}_{gate}" for gate in GATES for kind in ("mean", "saturated")))
    for trace in measured.traces:
        row = summarised(trace)
        for name in (*quantities, "gradient_ratio", "decay"):
            if name in row:
                writer.add_scalar(f"inspect/{name}/{trace.name}", row[name], number)
    sentences = "\n\n".join(str(line) for line in advise(measured))
    if sentences:
        writer.add_text("inspect/advice", sentences, number)
