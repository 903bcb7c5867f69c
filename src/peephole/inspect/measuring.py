"""What the signal does inside every LSTM of a model, by step, on the user's own batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from peephole.init.torch import stacked_cells
from peephole.inspect.batches import load_batch
from peephole.inspect.errors import InspectError
from peephole.inspect.measured import Measured
from peephole.inspect.models import load_model
from peephole.inspect.pieces import goes_on, joined, pieces
from peephole.inspect.statistics import Trace, trace
from peephole.inspect.watch import Call, Loss, watch
from peephole.theory.errors import check_count


def measure(model: nn.Module, batch: Any, loss: Loss | None = None, *, sequences: int | None = None) -> Measured:
    """Measure Var(h), Var(c), the gates and, with a loss, the gradient, in every LSTM of a model.

    `model` is an `nn.LSTM`, `nn.LSTMCell` or `PeepholeLSTM`, or any module that contains some. `batch` is what it
    takes: a tensor, a PackedSequence, a tuple of arguments or a dictionary of named ones. `loss` takes what the
    model puts out and returns one number, such as `lambda output: F.mse_loss(output, targets)`; `inspect.probe`
    serves where there is none. `sequences` looks at the first so many of the batch alone (the longest, if packed);
    the loss is still that of all.

    What `nn.LSTM` does not show is computed from its weights and outputs, and must make these outputs, or an
    `InspectError` says by how much it does not. The model runs once, in evaluation mode: dropout is off; batch norm
    alone stays in the mode it is in, for before training its running statistics would tell nothing. Weights,
    gradients, buffers, tensors kept as attributes, modes and the random state are afterwards as they were.
    """
    if sequences is not None:
        check_count("sequences", sequences, 1)
    calls = watch(model, batch, loss)
    traces: list[Trace] = []
    for name in dict.fromkeys(call.name for call in calls):
        for run, together in enumerate(_runs([call for call in calls if call.name == name])):
            parts = [pieces(call, sequences) for call in together]
            traces += [trace(name, run, joined(list(same))) for same in zip(*parts, strict=True)]
    return Measured(tuple(traces))


def measure_files(model: Path | str, batch: Path | str) -> Measured:
    """`measure` of a saved LSTM on a saved batch, with `probe` as the loss: what `peephole inspect` does."""
    module = load_model(model)
    if next(module.parameters()).dtype not in (torch.float32, torch.float64):
        module = module.float()  # half precision has no kernels on every processor
    first = next(stacked_cells(module)).weight_ih
    x = load_batch(batch, first.shape[1]).to(first.dtype)
    if not bool((x.data if isinstance(x, PackedSequence) else x).isfinite().all()):
        raise InspectError(f"{batch}: values that {first.dtype}, the model's type, cannot hold; scale the features")
    if getattr(module, "batch_first", False) and isinstance(x, Tensor):
        x = x.transpose(0, 1)
    try:
        return measure(module, x, probe)
    except InspectError as error:
        raise InspectError(f"{model}: {error}") from error


def probe(output: Any) -> Tensor:
    """A loss for a model without one: its last output in a fixed random direction, averaged over the sequences.

    It shows how far back in time the last step's gradient reaches. Of an LSTM's output (y, (h, c)) it takes the last
    layer's h after the last step, in both directions; of any tensor the whole.
    """
    last = output
    if isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], tuple):
        y, (h, _) = output
        width = (y.data if isinstance(y, PackedSequence) else y).shape[-1]
        last = torch.cat(list(h[-(width // h.shape[-1]) :]), -1)
    elif isinstance(output, tuple) and len(output) == 2:
        last = output[0]  # an nn.LSTMCell's h
    if not isinstance(last, Tensor) or not last.is_floating_point():
        raise InspectError(f"probe takes an LSTM's output or a tensor, not {type(last).__name__}: give a loss")
    direction = torch.randn(last.shape[-1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value: Tensor = (last @ (direction / direction.norm()).to(last)).mean()
    return value


def _runs(calls: list[Call]) -> list[list[Call]]:
    """Calls that continue each other, together."""
    runs: list[list[Call]] = []
    for call in calls:
        if runs and goes_on(runs[-1][-1], call):
            runs[-1].append(call)
        else:
            runs.append([call])
    return runs
