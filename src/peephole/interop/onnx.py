"""An LSTM to ONNX and back: the operator of that name, run beside the module before the file is kept."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from peephole.init.methods import Array
from peephole.init.torch import StackedCell, stacked_cells
from peephole.interop import graph, reading
from peephole.interop.errors import DisagreementError, InteropError
from peephole.interop.writing import replacing
from peephole.nn import PeepholeLSTM

__all__ = ["export", "load"]

LARGEST = 2**31 - 2**20  # bytes: a protobuf ends at 2 GiB
# How far ONNX Runtime may be off: this much of an output's root mean square; as many times what rounding to float32
# does to the module itself, for a trained network may be worse conditioned than a random one; and, as a gate near 0 or
# 1 is known to some float32 epsilons only, this much of the greatest cell state that it may have multiplied.
CLOSE, TIMES, GATE = 1e-5, 10.0, 1e-6
LEAST_SURE = 1e-3  # where rounding alone does more, in units of the root mean square, agreement would mean nothing


def export(module: PeepholeLSTM | nn.LSTM, path: str | os.PathLike[str]) -> float:
    """Write a PeepholeLSTM or `torch.nn.LSTM` of float32 as ONNX; returns how far ONNX Runtime was from the module.

    The file's inputs are `x`, (T, B, I) or (B, T, I) as the module has it, and three that may be left out: `h0` and
    `c0` (layers directions, B, H), zero by default, and `lengths` (B), whole numbers, of which -1 is the whole
    sequence; outputs `y`, `h` and `c`. T and B are free. Dropout is left out, as in evaluation.

    Before the file is kept, ONNX Runtime runs it on random input beside the module, in units of each output's root
    mean square; where they disagree there is a `DisagreementError` and no file.
    """
    _needs_onnx()
    cells = _cells(module)
    model = graph.write(cells, bool(module.batch_first))
    with replacing(path) as unfinished:
        unfinished.write_bytes(model.SerializeToString())
        return _compare(module, unfinished, len(cells), cells[0])


def load(path: str | os.PathLike[str]) -> PeepholeLSTM:
    """The LSTM in an ONNX file, as a PeepholeLSTM on the CPU; with peepholes if the file has them.

    Covered is a chain of LSTM operators with constant weights, such as `export` writes: the first reads the input,
    each reads what the one before put out, the last one's is the first output. Anything else is an `InteropError`
    that names it. The file is only read: no operator of it is run.
    """
    _needs_onnx()
    return reading.read(os.fspath(path))


def _cells(module: Any) -> list[StackedCell]:
    """The module's cells, or why they cannot be written."""
    if not isinstance(module, (PeepholeLSTM, nn.LSTM)):
        raise InteropError(
            f"{type(module).__name__} is no LSTM: PeepholeLSTM and torch.nn.LSTM are exported here, a model that "
            "contains one by torch.onnx.export"
        )
    if getattr(module, "proj_size", 0):
        raise InteropError(f"proj_size = {module.proj_size}: ONNX's LSTM has no projections")
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32:
            raise InteropError(f"{name} is {parameter.dtype}: ONNX Runtime's LSTM is float32, so export module.float()")
        if parameter.is_meta or not parameter.isfinite().all():
            raise InteropError(f"{name} holds {'no numbers' if parameter.is_meta else 'NaN or infinity'}")
    if sum(4 * parameter.numel() for parameter in module.parameters()) > LARGEST:
        raise InteropError("the weights are larger than the 2 GiB that an ONNX file can hold")
    return list(stacked_cells(module))


def _compare(module: Any, path: os.PathLike[str], cells: int, cell: StackedCell) -> float:
    """How far ONNX Runtime's outputs are from the module's at most; an error if too far."""
    session = _session(path)
    single = copy.deepcopy(module).cpu().eval()
    double = copy.deepcopy(single).double()
    farthest = 0.0
    for given in _inputs(cells, len(cell.weight_hh) // 4, cell.weight_ih.shape[1], single.batch_first):
        try:
            theirs = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
        except Exception as error:  # its errors have no class in common but this
            raise InteropError(f"ONNX Runtime cannot run the model: {' '.join(str(error).split())}") from error
        true, rounded = _run(double, given), _run(single, given)
        floor = GATE * max(1.0, float(np.abs(true[-1]).max()))
        for name, got, wanted, ours in zip(graph.OUTPUTS, theirs, true, rounded, strict=True):
            farthest = max(farthest, _distance(name, got, wanted, ours, floor))
    return farthest


def _distance(name: str, got: Array, wanted: Array, ours: Array, floor: float) -> float:
    """The greatest difference over the root mean square; an error beyond what rounding explains."""
    scale = float(np.sqrt(np.mean(wanted**2)))
    finite = all(bool(np.isfinite(values).all()) for values in (wanted, ours))
    off, own = (float(np.abs(values - wanted).max()) if finite else np.inf for values in (got, ours))
    if not own <= LEAST_SURE * scale + floor:
        raise InteropError(
            f"{name} cannot be checked: its root mean square on random input is {scale:.2g}, and rounding to float32 "
            f"alone moves it by {own:.2g}"
        )
    if not off <= CLOSE * scale + TIMES * own + floor:
        raise DisagreementError(
            f"ONNX Runtime's {name} differs from the module's by {off:.2g}, its root mean square being {scale:.2g}; "
            "no file was written"
        )
    return off / scale if scale else 0.0


def _inputs(cells: int, units: int, width: int, batch_first: bool) -> Iterator[dict[str, Tensor]]:
    """Random input of two sizes: x by itself, and with everything that may be left out.

    Few steps, for chaotic networks are networks too; more would show no more of the layout.
    """
    draw = torch.Generator().manual_seed(0)
    for (steps, batch), whole in (((3, 3), True), ((4, 4), False)):
        x = torch.randn((batch, steps, width) if batch_first else (steps, batch, width), generator=draw)
        h, c = torch.randn((2, cells, batch, units), generator=draw)
        yield {"x": x} if whole else {"x": x, "h0": h, "c0": c, "lengths": torch.tensor([2, 4, 1, 3])}


def _run(module: Any, given: Mapping[str, Tensor]) -> list[Array]:
    """The module's own y, h and c."""
    kind = next(module.parameters()).dtype
    x: Any = given["x"].to(kind)
    state = (given["h0"].to(kind), given["c0"].to(kind)) if "h0" in given else None
    if "lengths" in given:
        x = pack_padded_sequence(x, given["lengths"], module.batch_first, enforce_sorted=False)
    with torch.no_grad():
        y, (h, c) = module(x, state)
    if "lengths" in given:
        y, _ = pad_packed_sequence(y, module.batch_first)
    return [tensor.numpy() for tensor in (y, h, c)]


def _session(path: os.PathLike[str]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it would warn of the inputs that may be left out
    try:
        return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InteropError(f"ONNX Runtime refuses the model: {' '.join(str(error).split())}") from error


def _needs_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # type: ignore[import-untyped, unused-ignore]  # noqa: F401
    except ImportError as error:
        raise ImportError(f"ONNX cannot be imported ({error}): pip install 'peephole[onnx]' brings it") from error
