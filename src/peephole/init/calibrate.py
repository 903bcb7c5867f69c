"""A start from one's own data: the weights of each layer rescaled until its signal has the scale wished for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from scipy.optimize import brentq, minimize_scalar
from torch import nn

from peephole.init.layers import Layer, Parts, Quantity, read
from peephole.init.torch import lstms, writable_cells
from peephole.theory import TheoryError
from peephole.theory.errors import check_count, check_target

_FAR = 50.0  # the log of a ratio that counts as infinite: zero signal, or one that left the range of numbers
_ALIKE = 0.01  # of two ends this near to each other, the one that changes the weights less: else saturation wins
_SAID = {"h": "Var(h)", "preactivation": "mean square of W x + U h + b"}
_SCALED = {"cell-input": "W_c, U_c", "all": "W, U of all gates"}


@dataclass(frozen=True)
class Calibration:
    """What `calibrate_` did: by layer the factor on its weights, and what was measured before and after.

    `before` is of the module as it came, `after` as it is now; `reached` says whether every layer has the target.
    """

    quantity: Quantity
    parts: Parts
    target: float
    scale: tuple[float, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    reached: bool
    message: str

    def __str__(self) -> str:
        layers = "; ".join(
            f"layer {number}: {_SCALED[self.parts]} times {scale:.4g}, {before:.4g} -> {after:.4g}"
            for number, (scale, before, after) in enumerate(zip(self.scale, self.before, self.after, strict=True))
        )
        return f"{_SAID[self.quantity]} to {self.target:.4g}: {layers}; {self.message}"


def calibrate_(
    module: nn.Module,
    x: Any,
    target: float = 1.0,
    *,
    quantity: Quantity = "h",
    parts: Parts | None = None,
    observed: Any = None,
    fill: str | None = None,
    skip: int = 0,
    tolerance: float = 1e-3,
    within: float = 1e4,
) -> Calibration:
    """Rescale an LSTM's weights in place until what it makes of the batch `x` has the scale `target`; says what it did.

    `module` is an `nn.LSTM`, a `PeepholeLSTM` or an `nn.LSTMCell`, `x` what it takes (for a cell (T, B, I), steps
    first), packed sequences too. Layers are done in order, each on the outputs of those before it as they are by then.

    `quantity` "h": the variance of h about its one mean over sequences, units and steps. Rescaled are W_c and U_c, by
    one factor a layer, as `corrected-k` does; the other gates, biases, peepholes and projections stay. tanh bounds
    what this can reach: on white noise, 64 units without much memory, to some 0.1. `parts="all"` rescales W and U of
    all gates instead, which reaches some 0.2 (0.6 with the identity as output), at the price of saturated gates.

    `quantity` "preactivation": the mean square of W x + U h + b over the four gates too, the peepholes' V c aside.
    Rescaled are W and U of all gates, by one factor a layer; not the biases.

    Both directions of a layer count together and share the factor. `skip` leaves out the first steps of each
    sequence (in the direction's own time). The factor is searched from 1 towards more signal if there is too little
    of it, else towards less, and then the other way, between 1/`within` and `within`. If none meets the target to
    the relative `tolerance`, the nearest is kept, and `reached` and `message` say so.

    NaN in x is refused. `fill="zero"` takes it as missing and puts zero there; so does `observed`, a mask shaped as x,
    wherever it is false. Nothing is drawn, no gradient kept, and dropout is off, whatever the module's mode.
    """
    parts = _checked(module, quantity, parts, target, skip, tolerance, within)
    cells = writable_cells(module)
    for name, parameter in module.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise TheoryError(f"{name} holds numbers that are not finite: initialise first")
    if isinstance(module, nn.LSTMCell) and isinstance(x, torch.Tensor) and x.dim() == 2:
        raise TheoryError(f"x has shape {tuple(x.shape)}: a cell is run over sequences, (T, B, I), steps first")
    with torch.no_grad():
        batch = read(x, observed, fill, cells[0].weight_ih, getattr(module, "batch_first", False))
        if not bool(batch.within(skip, False).any()):
            raise TheoryError(f"skip = {skip} leaves no step of x, whose longest sequence has {batch.x.shape[0]}")
        original = entering = batch
        layers = [Layer(module, number) for number in range(cells[-1].layer + 1)]
        done: list[tuple[float, float, float]] = []
        for layer in layers:
            leaving = layer.run(original)
            before, original = layer.measure(quantity, original, leaving, skip), leaving

            def measured(factor: float, layer: Layer = layer, entering: Any = entering) -> float:
                layer.rescale_(factor, parts)
                return layer.measure(quantity, entering, layer.run(entering), skip)

            scale, after = _search(measured, target, tolerance, within)
            layer.rescale_(scale, parts)
            entering = layer.run(entering)
            done.append((scale, before, after))
        for layer, (scale, _, _) in zip(layers, done, strict=True):  # not before every layer is through
            layer.rescale_(scale, parts, own=True)
    missed = [number for number, (_, _, after) in enumerate(done) if not abs(after / target - 1) <= tolerance]
    scales, befores, afters = zip(*done, strict=True)
    message = _message(missed, afters, parts, quantity, within)
    return Calibration(quantity, parts, float(target), scales, befores, afters, not missed, message)


def _checked(
    module: nn.Module, quantity: str, parts: Parts | None, target: float, skip: int, tolerance: float, within: float
) -> Parts:
    """What is rescaled; raises on what cannot be meant."""
    found = lstms(module)
    if "" not in found:
        raise TheoryError(
            f"{type(module).__name__} holds LSTMs ({', '.join(found)}): calibrate each on the inputs that it gets"
        )
    if quantity not in _SAID:
        raise TheoryError(f"quantity = {quantity!r}: 'h' or 'preactivation'")
    if parts is not None and parts not in _SCALED:
        raise TheoryError(f"parts = {parts!r}: 'cell-input' or 'all'")
    check_target(target)
    check_count("skip", skip, 0)
    if not 0 < tolerance < 1 or not 1 < within < math.inf:
        raise TheoryError(f"tolerance = {tolerance!r}, within = {within!r}: between 0 and 1, and above 1")
    return parts or ("cell-input" if quantity == "h" else "all")


def _message(missed: list[int], after: tuple[float, ...], parts: Parts, quantity: Quantity, within: float) -> str:
    if not missed:
        return "reached"
    best = ", ".join(f"{after[number]:.4g} in layer {number}" for number in missed)
    hint = "; parts='all' may reach more" if quantity == "h" and parts == "cell-input" else ""
    return f"out of reach: {best} is the best of factors from {1 / within:.4g} to {within:.4g}{hint}"


def _search(measured: Callable[[float], float], target: float, tolerance: float, within: float) -> tuple[float, float]:
    """The factor whose measure is nearest to the target, and that measure; no slope and no order is presumed."""
    seen: dict[float, tuple[float, float]] = {}

    def off(log_factor: float) -> float:
        """How far the log of the measure is off; 0 where that is little enough, which ends `brentq`."""
        value = measured(math.exp(log_factor))
        ratio = value / target
        log_ratio = _FAR if not math.isfinite(ratio) else -_FAR if ratio <= 0 else math.log(ratio)
        seen[log_factor] = (min(max(log_ratio, -_FAR), _FAR), value)
        return 0.0 if abs(ratio - 1) <= tolerance else seen[log_factor][0]

    bracket = _bracket(off, math.log(within))
    if bracket:
        brentq(off, *bracket, xtol=1e-9, maxiter=60, disp=False)
    miss = min(abs(ratio) for ratio, _ in seen.values())
    met = [log for log, (_, value) in seen.items() if abs(value / target - 1) <= tolerance]
    best = min(met or [log for log, (ratio, _) in seen.items() if abs(ratio) <= miss + _ALIKE], key=abs)
    return math.exp(best), seen[best][1]


def _bracket(off: Callable[[float], float], end: float) -> tuple[float, float] | None:
    """Two logs of factors between which the target lies, or None; by doubling from 1, first towards the target."""
    start = off(0.0)
    if start == 0:
        return None
    nearest = (abs(start), 0.0)
    for side in (1.0, -1.0) if start < 0 else (-1.0, 1.0):
        here = 0.0
        while abs(here) < end:
            there = side * min(abs(here) + math.log(2), end)
            value = off(there)
            if value * start <= 0:
                return here, there
            nearest = min(nearest, (abs(value), there))
            here = there
    # The measure may have its peak, or its dip, between two of these: a last look around the nearest.
    around = (max(nearest[1] - math.log(2), -end), min(nearest[1] + math.log(2), end))
    sign = math.copysign(1.0, start)
    peak = minimize_scalar(lambda log: sign * off(log), bounds=around, method="bounded", options={"maxiter": 12})
    return (nearest[1], float(peak.x)) if peak.fun < 0 else None
