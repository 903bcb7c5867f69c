"""Statistics of one layer and direction: by step over sequences and units, by unit over sequences and steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from peephole.init.layouts import TORCH
from peephole.init.torch import StackedCell
from peephole.inspect.pieces import Piece
from peephole.inspect.unroll import Sequences

Array = NDArray[np.float64]
GATES = ("f", "i", "o", "z")
"""Forget, input and output gate, and z, the cell input."""
SATURATED = {"sigmoid": (0.05, 0.95), "hard_sigmoid": (0.05, 0.95), "tanh": (-0.95, 0.95), "relu": (1e-12, math.inf)}
"""Where an activation counts as saturated: its slope there is below a fifth of its largest."""
RANGES = {"sigmoid": (0.0, 1.0), "hard_sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
BINS = 40
LAGS = 200  # steps of the inputs' autocorrelation that are kept


@dataclass(frozen=True, eq=False)
class Trace:
    """What was measured of one layer in one direction, during one run: calls that hand on their state are one.

    `activations` are those of gates, cell input and output; `sizes` inputs, outputs (the units, or what they are
    projected to) and units. `steps` holds an array by step for each quantity, in the direction's own time; `units` mean
    and standard deviation of each gate by unit; `histograms` counts and edges by gate; `inputs` mean and standard
    deviation by feature; `start` is the mean square of the state it was given, 0 if none. What a prediction needs is in
    `variances`, `biases`, `power` (E[x^2]) and `autocorrelation`.
    """

    module: str
    layer: int
    direction: str
    run: int
    activations: tuple[str, str, str]
    sizes: tuple[int, int, int]
    sequences: int
    steps: dict[str, Array]
    units: dict[str, Array]
    histograms: dict[str, tuple[Array, Array]]
    inputs: dict[str, Array]
    start: float
    variances: dict[str, float]
    biases: dict[str, Array]
    power: float
    autocorrelation: Array
    projected: bool

    @property
    def name(self) -> str:
        """Where it is: `encoder.lstm, layer 1, reverse`."""
        parts = [self.module or "LSTM", f"layer {self.layer}"]
        return ", ".join(parts + ["reverse"] * (self.direction == "reverse") + [f"run {self.run}"] * (self.run > 0))

    @property
    def length(self) -> int:
        """How many steps there are."""
        return len(self.steps["var_h"])

    @property
    def decay(self) -> float:
        """The factor by which the gradient changes with each step back, fitted to all steps; NaN without a loss."""
        gradient = self.steps.get("gradient")
        if gradient is None:
            return math.nan
        usable = np.isfinite(gradient) & (gradient > 0)
        if usable.sum() < 2:
            return math.nan
        back = np.arange(len(gradient))[::-1][usable]
        logs = np.log(gradient[usable])
        centred = back - back.mean()
        return float(np.exp(centred @ (logs - logs.mean()) / (centred @ centred)))


@torch.no_grad()
def trace(name: str, run: int, piece: Piece) -> Trace:
    """All statistics of a piece."""
    seen, signals, cell = piece.seen, piece.signals, piece.seen.cell
    mask = seen.mask
    gates = {"f": signals.f, "i": signals.i, "o": signals.o, "z": signals.z}
    kinds = {gate: cell.cell_input if gate == "z" else cell.gate for gate in GATES}
    steps: dict[str, Array] = {}
    for letter, values in {"h": seen.h, "c": signals.c, **gates}.items():
        mean, var = _by_step(values, mask)
        steps |= {f"mean_{letter}": mean, f"var_{letter}": var}
    steps["between_h"], steps["between_x"] = _between(seen.h, mask), _between(seen.x, mask)
    steps["running"] = np.full(len(seen.h), float(seen.h.shape[1])) if mask is None else _numbers(mask.sum(1))
    for gate, values in gates.items():
        low, high = SATURATED.get(kinds[gate], (-math.inf, math.inf))
        closed, open_ = (_share(part, mask) for part in (values < low, values > high))
        steps |= {f"closed_{gate}": closed, f"open_{gate}": open_, f"saturated_{gate}": closed + open_}
    if piece.gradient is not None:
        steps["gradient"] = _norms(piece.gradient)
    if piece.direct is not None:
        steps["direct"] = _norms(piece.direct)
    within = [values.flatten(0, 1) if mask is None else values[mask] for values in (*gates.values(), seen.x)]
    *inside, x = within
    by_gate = dict(zip(GATES, inside, strict=True))
    units = {f"{kind}_{gate}": part for gate, values in by_gate.items() for kind, part in _columns(values)}
    variances, biases = _weights(cell)
    inputs = dict(_columns(x))
    power = float((inputs["mean"] ** 2 + inputs["sd"] ** 2).mean())
    return Trace(
        name, piece.layer, "reverse" if piece.reverse else "forward", run, (cell.gate, cell.cell_input, cell.output),
        (seen.x.shape[2], seen.h.shape[2], signals.c.shape[2]), seen.x.shape[1], steps, units,
        {gate: _histogram(values, kinds[gate]) for gate, values in by_gate.items()},
        inputs, _start(seen), variances, biases, power, _autocorrelation(seen.x, mask),
        cell.weight_hr is not None,
    )  # fmt: skip


def _start(seen: Sequences) -> float:
    """The mean square of h and c before the first step."""
    state = torch.cat([seen.before[0], seen.c[0] if seen.c.dim() == 3 else seen.c], 1)
    return float(state.square().mean())


def _by_step(values: Tensor, mask: Tensor | None) -> tuple[Array, Array]:
    """Mean and variance at each step, over units and the sequences that are still running."""
    if mask is None:
        var, mean = torch.var_mean(values, (1, 2), correction=0)
        return _numbers(mean), _numbers(var)
    count = mask.sum(1) * values.shape[2]
    mean = torch.where(mask[..., None], values, 0.0).sum((1, 2)) / count
    off = torch.where(mask[..., None], values - mean[:, None, None], 0.0)
    return _numbers(mean), _numbers(off.square().sum((1, 2)) / count)


def _between(h: Tensor, mask: Tensor | None) -> Array:
    """How much sequences differ at each step: each unit's variance over sequences, averaged over units."""
    if mask is None:
        return _numbers(h.var(1, correction=0).mean(1))
    count = mask.sum(1)[:, None]
    kept = torch.where(mask[..., None], h, 0.0)
    mean = kept.sum(1) / count
    off = torch.where(mask[..., None], h - mean[:, None], 0.0)
    return _numbers((off.square().sum(1) / count).mean(1))


def _share(where: Tensor, mask: Tensor | None) -> Array:
    if mask is None:
        return _numbers(where.float().mean((1, 2)))
    return _numbers((where & mask[..., None]).float().sum((1, 2)) / (mask.sum(1) * where.shape[2]))


def _norms(gradient: Tensor) -> Array:
    """The norm at each step, over sequences and h's parts; in units of the largest, for squares leave float32 early."""
    largest = gradient.abs().amax((1, 2))
    unit = torch.where((largest > 0) & largest.isfinite(), largest, 1.0)
    return _numbers(torch.linalg.vector_norm(gradient / unit[:, None, None], dim=(1, 2))) * _numbers(unit)


def _columns(values: Tensor) -> list[tuple[str, Array]]:
    var, mean = torch.var_mean(values, 0, correction=0)
    return [("mean", _numbers(mean)), ("sd", _numbers(var.sqrt()))]


def _histogram(values: Tensor, kind: str) -> tuple[Array, Array]:
    finite = values[values.isfinite()] if not bool(values.isfinite().all()) else values
    low, high = RANGES.get(kind) or ((float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0))
    high = high if high > low else low + 1.0
    counts = torch.histc(finite.float(), BINS, low, high)
    return _numbers(counts), np.linspace(low, high, BINS + 1)


def _weights(cell: StackedCell) -> tuple[dict[str, float], dict[str, Array]]:
    """The mean square of each gate's matrices, by the names of `theory.Variances`, and its bias unit by unit."""
    found: dict[str, float] = {}
    for letter, weight in (("w", cell.weight_ih), ("u", cell.weight_hh), ("v", cell.weight_ph)):
        if weight is not None:
            names = TORCH.peepholes if letter == "v" else TORCH.gates
            squares = (float(part.cpu().double().square().mean()) for part in weight.chunk(len(names)))
            found |= {f"{letter}_{gate}": square for gate, square in zip(names, squares, strict=True)}
    total = sum(cell.biases, cell.weight_ih.new_zeros(len(cell.weight_ih)))
    return found, {gate: _numbers(part) for gate, part in zip(TORCH.gates, total.chunk(4), strict=True)}


def _autocorrelation(x: Tensor, mask: Tensor | None) -> Array:
    """E[x_s x_t] / E[x^2] of the first steps: `theory.autocorrelation`, by one product."""
    flat, inputs = x[:LAGS], x.shape[2]
    present = None if mask is None else mask[:LAGS]
    if present is not None:
        flat = torch.where(present[..., None], flat, 0.0)
    rows = flat.flatten(1)
    largest = float(rows.abs().amax())
    if not largest > 0:
        return np.eye(len(rows))
    rows = rows / largest
    total = _numbers(rows @ rows.T)
    if present is None:
        pairs, seen = np.full_like(total, rows.shape[1]), rows.numel()
    else:
        pairs = _numbers(present.float() @ present.float().T) * inputs
        seen = int(present.sum()) * inputs
    return np.asarray(total / np.maximum(pairs, 1.0) / (np.trace(total) / seen))


def _numbers(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().cpu().double().numpy())  # not every device has double
