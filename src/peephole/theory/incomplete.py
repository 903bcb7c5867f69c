"""How gaps in the input change the variance of W x: the factor kappa of the theory's pre-activations.

A missing entry is filled with zero and its visit is multiplied by r^alpha, where r is the share of the
visit's features that were observed: x~ = r^alpha (mask * x). Then Var(sum_n w_n x~_n) = N w r^(1 + 2 alpha).
alpha = 0 is plain zero fill, alpha = 1 the rule in the author's published code, alpha = -1/2 keeps the variance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from peephole.theory.activations import Array
from peephole.theory.errors import TheoryError


def kappa(observed: float | Sequence[float], inputs: int, fill_exponent: float = 0.0, lag: bool = False) -> float:
    """E[r^(1 + 2 alpha)]: the share of the input's variance that reaches W x.

    `observed` is either the probability that an entry is observed, each on its own (r is then a binomial
    share of `inputs` features), or the shares r of real visits, over which the mean is taken. A visit of
    which nothing was observed passes nothing, whatever alpha. With `lag` the same for two different visits,
    whose masks are independent: E[r^(1 + alpha)]^2, which a covariance between steps takes.
    """
    shares = np.atleast_1d(np.asarray(observed, dtype=float))
    if shares.ndim != 1 or not np.all((shares >= 0) & (shares <= 1)):
        raise TheoryError(f"observed = {observed!r}: shares observed lie in [0, 1]")
    if np.all(shares == 1):
        return 1.0
    power = 1 + fill_exponent if lag else 1 + 2 * fill_exponent
    if isinstance(observed, int | float):
        count = np.arange(inputs + 1)
        share, weight = (
            count / inputs,
            stats.binom.pmf(count, inputs, observed) if observed < 1 else count == inputs,
        )
    else:
        share = np.asarray(observed, dtype=float)
        weight = np.full(share.shape, 1 / share.size)
    passed = np.where(share > 0, np.where(share > 0, share, 1.0) ** power, 0.0)
    mean = float(weight @ passed)
    return mean**2 if lag else mean


def visit_shares(x: ArrayLike) -> float | tuple[float, ...]:
    """The share of features observed at each visit of a batch (sequences, steps, inputs), NaN missing: `Cell.observed`.

    1 where nothing is missing. A sequence ends with its last observed visit: what follows is padding and no visit. An
    empty visit before counts as one, with share 0. Give what goes in: all visits but the last, where that is only
    forecast.
    """
    batch = np.asarray(x, dtype=float)
    if batch.ndim != 3:
        raise TheoryError(f"a batch has the shape (sequences, steps, inputs), got {batch.shape}")
    seen = ~np.isnan(batch)
    if not seen.any():
        raise TheoryError("a batch of which nothing was observed has no shares")
    visits = np.logical_or.accumulate(seen.any(-1)[:, ::-1], axis=1)[:, ::-1]
    shares = seen.mean(-1)[visits]
    return 1.0 if shares.min() == 1 else tuple(shares.tolist())


def draw_gaps(
    observed: float | Sequence[float], shape: tuple[int, ...], fill_exponent: float, rng: np.random.Generator
) -> Array:
    """What complete inputs are multiplied by: mask * r^alpha, features along the last axis of `shape`.

    Of a visit whose share was given, that many features, rounded, are seen, which ones at random.
    """
    if isinstance(observed, int | float):
        mask = rng.random(shape) < observed
    else:
        seen = np.rint(rng.choice(observed, size=(*shape[:-1], 1)) * shape[-1])
        mask = rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1) < seen
    share = mask.mean(axis=-1, keepdims=True)
    return np.asarray(mask * np.where(share > 0, np.where(share > 0, share, 1.0) ** fill_exponent, 0.0))


def column_factors(shares: ArrayLike) -> Array:
    """Per-feature factors 1 / q_n for the variances of W's columns, under plain zero fill.

    Feature n is observed in a share q_n of the visits; drawing its column with w / q_n gives every
    pre-activation the variance that complete data would. A feature never observed stays unscaled.
    """
    q = np.asarray(shares, dtype=float)
    if q.ndim != 1 or not np.all((q >= 0) & (q <= 1)):
        raise TheoryError(f"shares observed must be a list of numbers from 0 to 1, got {shares!r}")
    return np.where(q > 0, 1 / np.where(q > 0, q, 1.0), 1.0)
