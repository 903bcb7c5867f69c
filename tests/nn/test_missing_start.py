"""The start follows the gaps: kappa from the data's own mask, against the fills that networks are trained with."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from peephole import theory
from peephole.data import synthetic
from peephole.init.layouts import TORCH
from peephole.init.weights import weights
from peephole.nn import functional, missing

ALPHA = {"zero": 0.0, "scaled": 1.0, "unit-variance": -0.5}
N, DRAWS = 6, 12
Array = NDArray[np.float64]
every_fill = pytest.mark.parametrize("fill", ALPHA)


@cache
def gappy(dropout: float, subjects: int = 4000) -> Array:
    """A cohort (subjects, visits, 6), standardised: single values missing, whole visits, and those who left."""
    x = synthetic.cohort(subjects, 8, missing=0.4, whole_visits=0.5, dropout=dropout, seed=3).X
    return np.asarray((x - np.nanmean(x, (0, 1))) / np.nanstd(x, (0, 1)))


def filled(x: Array, fill: str) -> Array:
    """As the network sees it."""
    steps_first = torch.from_numpy(np.ascontiguousarray(x.swapaxes(0, 1)))
    return np.asarray(missing.fill(steps_first, missing.observed(steps_first), fill).numpy().swapaxes(0, 1))


def through(x: Array, fill: str, w: Array) -> tuple[Array, int]:
    """The sums of (w x~)^2 over each subject's visits, w (draws, N) drawn anew for each, and the number of visits."""
    share = theory.visit_shares(x)
    assert isinstance(share, tuple)
    w = w.reshape(len(x), -1, x.shape[-1])
    return np.mean(np.einsum("btn,bdn->btd", filled(x, fill), w) ** 2, axis=2).sum(1), len(share)


@every_fill
def test_kappa_of_a_cohort(fill: str) -> None:
    """Var(W x~) of a cohort is kappa of its own shares, within 4 standard errors between subjects; others' are not."""
    x = gappy(dropout=0.1)
    cell = theory.Cell(N, N, observed=theory.visit_shares(x), fill_exponent=ALPHA[fill])
    w = np.random.default_rng(0).standard_normal((len(x) * DRAWS, N)) / N**0.5
    sums, visits = through(x, fill, w)
    shares = np.where(np.isnan(x), 0.0, 1.0).mean(-1)
    passed = np.where(shares > 0, np.where(shares > 0, shares, 1.0) ** (1 + 2 * ALPHA[fill]), 0.0).sum(1)
    error = np.std(sums - passed) * len(x) ** 0.5 / visits
    measured = sums.sum() / visits
    assert abs(measured - cell.kappa) < 4 * error
    # The controls: no gaps at all, gaps of the same share that fall on single values alone, another fill.
    single = theory.kappa(float(np.mean(cell.observed)), N, ALPHA[fill])
    others = [1.0, *([single] if fill != "zero" else []), theory.kappa(cell.observed, N, ALPHA[fill] + 0.5)]
    assert all(abs(measured - other) > 8 * error for other in others)


@every_fill
def test_the_start_follows_the_gaps(fill: str) -> None:
    """Drawn for the cell with gaps, the inputs' part of a pre-activation has the variance that complete data give."""
    x = gappy(dropout=0.1)
    whole = theory.Cell(N, N)
    cell = theory.Cell(N, N, observed=theory.visit_shares(x), fill_exponent=ALPHA[fill])
    wanted = N * theory.preset("proposed-1", whole).w("f")

    def measured(of: theory.Cell) -> tuple[float, float]:
        w = np.concatenate([weights("proposed-1", of, seed, only="W")["W_f"] for seed in range(len(x) * DRAWS // N)])
        sums, visits = through(x, fill, w)
        return float(sums.sum() / visits), float(np.std(sums) * len(x) ** 0.5 / visits)

    mean, error = measured(cell)
    assert abs(mean - wanted) < 4 * error
    mean, error = measured(whole)
    assert abs(mean - wanted) > 8 * error


@every_fill
def test_networks_on_gaps(fill: str) -> None:
    """Var(h) of real networks on white data with a cohort's mask is what `wide` predicts for the cell with its shares.

    The control: the cell without gaps is predicted another Var(h).
    """
    mask = ~np.isnan(gappy(dropout=0.0, subjects=400))
    x = np.where(mask, np.random.default_rng(1).standard_normal(mask.shape), np.nan)
    steps, units, networks = x.shape[1], 64, 48
    cell = theory.Cell(N, units, peepholes=False, observed=theory.visit_shares(x), fill_exponent=ALPHA[fill])
    v = theory.preset("normalized", theory.Cell(N, units, peepholes=False))
    drawn = [weights("normalized", cell, seed, variances=v) for seed in range(networks)]
    w_ih, w_hh = (torch.from_numpy(np.stack([TORCH.stack(one, letter) for one in drawn])) for letter in "WU")
    inputs = torch.from_numpy(np.ascontiguousarray(filled(x, fill).swapaxes(0, 1)))
    y, _ = functional.peephole_lstm(inputs, w_ih, w_hh, output_activation="identity")
    power = y.square().mean((-2, -1)).numpy()  # (networks, steps)
    for of, agrees in ((cell, True), (theory.Cell(N, units, peepholes=False), False)):
        predicted = theory.propagate(of, v, steps=steps, finite=True)
        error = np.hypot(power.std(0) / networks**0.5, predicted.se_var_h)
        far = np.abs(power.mean(0) - predicted.var_h) / error
        assert (far.max() < 4) if agrees else (far.max() > 8)
