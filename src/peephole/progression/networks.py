"""An ensemble of peephole LSTMs that forecast standardised visits: what goes in, and what comes out.

Weights lead with the replica axis R, one entry a network, so that all run in one call. Two architectures share the
manners of `Networks`: `Residual`, the default, and `Paper`, where h itself is the forecast of the next visit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from peephole.nn import functional, missing
from peephole.progression.history import Array, carried, mean_so_far

OLD = 5.0  # visits: older values are all alike
LSTM = ("weight_ih", "weight_hh", "weight_ph", "bias")
State = tuple[Tensor, Tensor]
HEAD = ("head_weight", "head_bias")


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums and products by PyTorch's own operators, whose bits depend on the number of threads, on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, eq=False)
class Networks(ABC):
    """R trained networks that forecast up to `horizons` visits at once. `weights` are stacked by name."""

    weights: dict[str, Tensor] = field(repr=False)
    fill: str
    horizons: int

    def only(self, networks: NDArray[np.bool_]) -> Self:
        """Some of them."""
        return replace(self, weights={name: w[torch.from_numpy(networks)] for name, w in self.weights.items()})

    def forecasts(self, X: Array, horizons: int) -> Array:
        """The networks' mean forecast (J, T, K, N) from every visit of X (J, T, N), of the K visits that follow.

        Beyond the horizons that they forecast at once, the networks run on with their own forecasts as visits.
        """
        if horizons <= self.horizons:
            return self.at_once(X)[:, :, :horizons]
        J, T, N = X.shape
        who, when = (place.ravel() for place in np.indices((J, T)))
        return self.run_on(X[who], when, horizons, self.horizons).reshape(J, T, horizons, N)

    def run_on(self, X: Array, last: NDArray[np.intp], horizons: int, at_once: int) -> Array:
        """Forecasts (J, K, N) from each subject's visit `last`, whatever X has beyond it.

        After every `at_once` visits the forecasts so far become visits themselves; 1 is free running step by step.
        """
        J, T, N = X.shape
        at_once = min(at_once, self.horizons)
        series = np.concatenate([X, np.full((J, horizons, N), np.nan)], axis=1)
        series[np.arange(T + horizons) > last[:, None]] = np.nan
        found = np.empty((J, horizons, N))
        every = np.arange(J)
        for done in range(0, horizons, at_once):
            new = self.at_once(series)[every, last + done, : min(at_once, horizons - done)]
            for k in range(new.shape[1]):
                found[:, done + k] = series[every, last + done + k + 1] = new[:, k]
        return found

    @torch.no_grad()
    def at_once(self, X: Array) -> Array:
        """The networks' mean forecast (J, T, K, N) of as many visits as they were trained for."""
        with one_thread():
            mean: Array = self.run(X).mean(0).transpose(0, 1).double().numpy()
        return mean

    @abstractmethod
    def run(self, X: Array) -> Tensor:
        """Each network's forecasts (R, T, J, K, N)."""


class Paper(Networks):
    """The paper's cell: M = N, sigma_h the identity, no output layer, h(t) the estimate of x(t + 1)."""

    def run(self, X: Array) -> Tensor:
        """Each network's forecasts (R, T, J, 1, N)."""
        x = steps_first(X)
        seen = missing.observed(x)
        if self.fill != "model":
            return self._h(missing.fill(x, seen, self.fill))[0].unsqueeze(-2)
        h = x.new_zeros(len(self.weights["bias"]), *x.shape[1:])
        state, outputs = None, []
        for visit, here in zip(x, seen, strict=True):
            y, state = self._h(torch.where(here, visit, h).unsqueeze(-3), state)
            h = y[:, 0]
            outputs.append(h)
        return torch.stack(outputs, 1).unsqueeze(-2)

    def _h(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        return lstm(self.weights, x, state, "identity")


class Residual(Networks):
    """The default: h and the inputs go through a linear head, which forecasts changes from the filled visit."""

    def run(self, X: Array) -> Tensor:
        """Each network's forecasts (R, T, J, K, N)."""
        return residual(self.weights, Inputs.of(X, self.fill), self.horizons)


@dataclass(frozen=True, eq=False)
class Inputs:
    """What goes in at each visit: the filled `visit` (T, J, N), and what else is known of each feature (T, J, I - N).

    That is whether it was observed, how many visits ago last (5 at most), the mean of its values so far, and once for
    all features the visit's number.
    `own` (T, J, N) marks the gaps that the network fills with its own forecast, whatever stands there; else None.
    """

    visit: Tensor
    known: Tensor
    own: Tensor | None

    @classmethod
    def of(cls, X: Array, fill: str) -> Inputs:
        """From standardised visits X (J, T, N), NaN where nothing was observed."""
        x = steps_first(X)
        seen = missing.observed(x)
        own = fill == "model" and not bool(seen.all())
        visit = missing.fill(x, seen, "forward" if fill == "model" else fill)  # a start, until there are forecasts
        age = np.nan_to_num(np.minimum(carried(X)[1], OLD), nan=OLD) / OLD
        number = np.broadcast_to(np.arange(X.shape[1])[None, :, None] / OLD, (*X.shape[:2], 1))
        parts = [~np.isnan(X), age, mean_so_far(X), number]
        return cls(visit, steps_first(np.concatenate(parts, axis=-1)), ~seen if own else None)

    @property
    def size(self) -> int:
        """I, how many numbers go in."""
        return self.visit.shape[-1] + self.known.shape[-1]


def residual(weights: dict[str, Tensor], inputs: Inputs, horizons: int) -> Tensor:
    """The forecasts (R, T, J, K, N) of the default architecture."""
    return filling(weights, inputs, horizons)[0]


def filling(weights: dict[str, Tensor], inputs: Inputs, horizons: int) -> tuple[Tensor, Tensor]:
    """The forecasts, and the visits (R or 1, T, J, N) as they were filled on the way."""
    if inputs.own is None:
        u = torch.cat([inputs.visit, inputs.known], -1)
        forecasts = inputs.visit.unsqueeze(-2) + head(weights, features(weights, u)[0], horizons)
        return forecasts, inputs.visit.unsqueeze(0)
    replicas = len(weights["bias"])
    estimate = torch.zeros(replicas, *inputs.visit.shape[1:])
    state, outputs, visits = None, [], []
    for visit, known, gap in zip(inputs.visit, inputs.known, inputs.own, strict=True):
        filled = torch.where(gap, estimate, visit)
        u = torch.cat([filled, known.expand(replicas, *known.shape)], -1).unsqueeze(-3)
        h, state = features(weights, u, state)
        outputs.append(filled.unsqueeze(-2) + head(weights, h, horizons)[:, 0])
        visits.append(filled)
        estimate = outputs[-1][..., 0, :]
    return torch.stack(outputs, 1), torch.stack(visits, 1)


def features(weights: dict[str, Tensor], u: Tensor, state: State | None = None) -> tuple[Tensor, State]:
    """What the head sees (R, T, J, H + I): h, and beside it the inputs `u`; and the last state."""
    h, state = lstm(weights, u, state, "tanh")
    return torch.cat([h, u.expand(*h.shape[:-1], u.shape[-1])], -1), state


def lstm(weights: dict[str, Tensor], x: Tensor, state: State | None, output: str) -> tuple[Tensor, State]:
    """The LSTMs' outputs (R, T, J, H), and the last state."""
    w_ih, w_hh, w_ph, b = (weights[name] for name in LSTM)
    return functional.peephole_lstm(x, w_ih, w_hh, w_ph, b, state, output_activation=output)


def head(weights: dict[str, Tensor], seen: Tensor, horizons: int) -> Tensor:
    """The linear head's changes (R, T, J, K, N)."""
    R, T, J, F = seen.shape
    changes = torch.baddbmm(
        weights["head_bias"].unsqueeze(1), seen.reshape(R, T * J, F), weights["head_weight"].transpose(1, 2)
    )
    return changes.view(R, T, J, horizons, -1)


def steps_first(X: Array | NDArray[np.bool_]) -> Tensor:
    """(J, T, ...) as a tensor (T, J, ...) of single precision."""
    return torch.from_numpy(np.ascontiguousarray(np.swapaxes(X, 0, 1), dtype=np.float32))
