"""Intervals around forecasts by split conformal prediction: from what held-out subjects' forecasts missed.

For each horizon and feature the ends of an interval lie where the errors on held-out subjects did, signed, so that a
skewed feature has a skewed interval. If subjects are exchangeable and each held-out one gave n errors in all, an
interval of level a covers a new subject's value with a chance of at least a, for any model and any distribution.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from peephole.progression.history import Array

LEVELS = (0.5, 0.9)
"""The levels of the intervals around every forecast."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """How far the ends of the intervals lie from the forecast: `offsets` (levels, 2, K, N).

    `counts` (K, N) says how many errors tell so; offsets are NaN where none do.
    """

    offsets: Array
    counts: Array

    @classmethod
    def from_errors(cls, errors: Array) -> Self:
        """From truth minus forecast (..., K, N) on held-out subjects, NaN where there is no truth.

        The ends are the errors of rank floor((n + 1) (1 - a) / 2) from below and from above; where n is too small to
        have such a rank, the outermost error. The forecast itself always lies inside.
        """
        *_, K, N = errors.shape
        flat = errors.reshape(-1, K, N)
        offsets = np.full((len(LEVELS), 2, K, N), np.nan)
        counts = (~np.isnan(flat)).sum(axis=0).astype(np.float64)
        for k, n in np.argwhere(counts > 0):
            known = np.sort(flat[~np.isnan(flat[:, k, n]), k, n])
            for place, level in enumerate(LEVELS):
                rank = max(int((len(known) + 1) * (1 - level) / 2), 1) - 1
                offsets[place, :, k, n] = min(known[rank], 0.0), max(known[-1 - rank], 0.0)
        return cls(offsets, counts)

    def at(self, horizons: Array) -> Array:
        """The offsets (levels, 2, *horizons.shape, N) at horizons in visits ahead, whole or not.

        Between two horizons they are interpolated. Up to the first they are those of the first. Beyond the last, of
        which nothing is known, they grow with the square root of the horizon.
        """
        K = self.offsets.shape[2]
        within = np.clip(horizons, 1.0, float(K))
        low = np.floor(within).astype(np.intp) - 1
        share = (within - 1 - low)[..., None]
        ends = self.offsets[:, :, low], self.offsets[:, :, np.minimum(low + 1, K - 1)]
        grown: Array = np.sqrt(np.maximum(horizons / K, 1.0))[..., None]
        return (ends[0] * (1 - share) + ends[1] * share) * grown
