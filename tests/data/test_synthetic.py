"""Made-up cohorts: what the courses, the noise, the gaps and the seed promise."""

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from peephole.data import DataError
from peephole.data.synthetic import BIOMARKERS, DIAGNOSES, ONSET_OF_MCI, cohort

RISE = np.sign([kind.change for kind in BIOMARKERS])


def gaps_of(made: Any) -> NDArray[np.bool_]:
    """What is missing (visits, N) at the visits that took place."""
    gaps: NDArray[np.bool_] = np.isnan(made.X[~np.isnan(made.times)])
    return gaps


def test_courses_are_monotone_and_visits_are_not() -> None:
    """Without noise every biomarker of every subject moves one way; with it, not."""
    made = cohort(300, seed=1, missing=0.0, dropout=0.0)
    assert (np.diff(made.truth.X, axis=1) * RISE > 0).all()
    assert not (np.diff(made.X, axis=1) * RISE > 0).all()


def test_noise_of_size_zero_shows_the_truth() -> None:
    """Without noise, gaps and drop-out the data are the truth; with noise they are off by its size and unbiased."""
    plain = cohort(50, seed=3, noise=0.0, missing=0.0, dropout=0.0)
    np.testing.assert_array_equal(plain.X, plain.truth.X)
    noisy = cohort(2000, seed=3, missing=0.0, dropout=0.0)
    error = (noisy.X - noisy.truth.X) / [kind.noise for kind in BIOMARKERS]
    count = error[..., 0].size
    assert (np.abs(error.mean(axis=(0, 1))) < 5 / np.sqrt(count)).all()
    assert (np.abs((error**2).mean(axis=(0, 1)) - 1) < 5 * np.sqrt(2 / count)).all()


def test_diagnosis_follows_from_latent_time() -> None:
    """CN, MCI and AD are the stretches of the disease time; they never go back, and all three occur."""
    made = cohort(300, seed=1)
    expected = np.where(made.truth.latent < ONSET_OF_MCI, "CN", np.where(made.truth.latent < 0, "MCI", "AD"))
    assert (made.truth.diagnosis == expected).all()
    order = np.searchsorted([ONSET_OF_MCI, 0.0], made.truth.latent)
    assert (np.diff(order, axis=1) >= 0).all()
    shares = [np.mean(made.truth.diagnosis[:, 0] == name) for name in DIAGNOSES]
    assert min(shares) > 0.1


def test_onset_and_speed_are_each_subjects_own() -> None:
    """Latent time is linear in the months with each subject's speed and onset, and these differ."""
    truth = cohort(40, seed=5).truth
    np.testing.assert_allclose(truth.latent, truth.speed[:, None] * (truth.times / 12 - truth.onset[:, None]))
    assert len(np.unique(truth.speed.round(6))) > 30
    assert len(np.unique(truth.onset.round(6))) == 40


def test_biomarkers_are_correlated_and_of_different_scale() -> None:
    """Any two biomarkers are correlated as the disease moves them; their means span a factor of a hundred."""
    made = cohort(1000, seed=2, missing=0.0)
    values = made.X[~np.isnan(made.times)]
    correlation = np.corrcoef(values.T) * np.outer(RISE, RISE)
    assert correlation.min() > 0.4
    means = values.mean(axis=0)
    assert means.max() / means.min() > 100
    assert (values > 0).all()


def test_visits_are_a_year_apart_with_jitter() -> None:
    """Visits are within 4 months of their anniversaries; the first is at 0, and without jitter all are on them."""
    made = cohort(200, seed=1, dropout=0.0)
    off = made.times - 12 * np.arange(10)
    assert (off[:, 0] == 0).all()
    assert (np.abs(off) <= 4).all()
    assert abs(off[:, 1:].std() - 1.0) < 5 / np.sqrt(2 * off[:, 1:].size)
    assert (cohort(200, seed=1, jitter=0.0, dropout=0.0).times == 12 * np.arange(10)).all()


@pytest.mark.parametrize("mechanism", ["random", "not-random"])
@pytest.mark.parametrize("whole_visits", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("missing", [0.0, 0.3, 0.8])
def test_share_missing(missing: float, whole_visits: float, mechanism: Any) -> None:
    """The share that is missing is the one asked for, whichever the mechanism, and whole visits among it."""
    made = cohort(1000, seed=1, missing=missing, whole_visits=whole_visits, mechanism=mechanism)
    gaps = gaps_of(made)
    error = gaps.mean(axis=1).std() / np.sqrt(len(gaps))  # a visit's gaps hang together, visits' do not
    assert abs(gaps.mean() - missing) <= 5 * error
    if missing and whole_visits == 1:
        assert (gaps.all(axis=1) == gaps.any(axis=1)).all()
    elif missing:
        assert not (gaps.all(axis=1) == gaps.any(axis=1)).all()


def test_gaps_not_at_random_are_of_the_worse() -> None:
    """Not at random, the worse miss far more, and leave earlier; at random they miss as much as others."""
    shares = {}
    for mechanism in ("random", "not-random"):
        made = cohort(2000, seed=1, mechanism=mechanism)
        worse = made.truth.latent[~np.isnan(made.times)] > 0
        gaps = gaps_of(made).mean(axis=1)
        error = gaps.std() * np.sqrt(1 / worse.sum() + 1 / (~worse).sum())
        gone = np.isnan(made.times[:, -1])
        late = made.truth.onset[gone].mean() - made.truth.onset[~gone].mean()
        shares[mechanism] = (gaps[worse].mean() - gaps[~worse].mean()) / error, late
    assert abs(shares["random"][0]) < 5
    assert shares["not-random"][0] > 50
    assert shares["not-random"][1] < -3 < shares["random"][1]


def test_dropout() -> None:
    """Who leaves does not come back, nobody leaves before the second visit, and without drop-out nobody does."""
    here = ~np.isnan(cohort(500, seed=1, dropout=0.3).times)
    assert here[:, :2].all()
    assert (here[:, 1:] <= here[:, :-1]).all()
    left = here[:, 1:-1].sum(), (here[:, 1:-1] & ~here[:, 2:]).sum()
    assert abs(left[1] / left[0] - 0.3) < 5 * np.sqrt(0.3 * 0.7 / left[0])
    assert not np.isnan(cohort(500, seed=1, dropout=0.0).times).any()


def test_seed() -> None:
    """The same seed gives the same cohort to the bit, another one another."""
    one, same, other = (cohort(20, seed=seed) for seed in (7, 7, 8))
    assert one.X.tobytes() == same.X.tobytes()
    assert one.table.equals(same.table)
    assert one.X.tobytes() != other.X.tobytes()


def test_first_numbers_stay() -> None:
    """A seed's cohort is the same from release to release: these numbers are pinned."""
    made = cohort(3, 3, seed=0, missing=0.0)
    np.testing.assert_array_equal(made.times, [[0.0, 12.14, 24.84], [0.0, 10.43, 23.28], [0.0, 8.58, 24.6]])
    np.testing.assert_allclose(
        1e4 * made.X[:, :, 1],
        [[28.077437, 28.819356, 27.043377], [34.624617, 31.03272, 29.249088], [40.24219, 40.076248, 39.628952]],
        rtol=1e-6,
    )


def test_gaps_are_nested_and_values_stay() -> None:
    """What is missing at one share is missing at any larger, and the values that remain are the same."""
    made = [cohort(50, seed=1, missing=share, mechanism="not-random") for share in (0.0, 0.2, 0.5, 0.8)]
    for less, more in pairwise(made):
        assert (np.isnan(less.X) <= np.isnan(more.X)).all()
        seen = ~np.isnan(more.X)
        assert (less.X[seen] == more.X[seen]).all()
        assert np.isnan(less.X).sum() < np.isnan(more.X).sum()


def test_table_and_arrays_are_the_same() -> None:
    """The table has a row for each visit that took place, with the values of the arrays."""
    made = cohort(30, 5, seed=1, features=8)
    assert made.features[6:] == ("Ventricles_ICV_2", "Hippocampus_ICV_2")
    assert list(made.table.columns) == ["id", "time", *made.features, "diagnosis", "age"]
    who, when = np.nonzero(~np.isnan(made.times))
    np.testing.assert_array_equal(made.table[list(made.features)], made.X[who, when])
    np.testing.assert_array_equal(made.table["time"], made.times[who, when])
    assert made.table["diagnosis"].tolist() == made.truth.diagnosis[who, when].tolist()
    assert made.table["id"].tolist() == [f"S{j + 1:02d}" for j in who]
    assert made.table.groupby("id")["age"].nunique().eq(1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subjects": 0}, "subjects = 0: expected at least 1"),
        ({"visits": 0}, "visits = 0: expected at least 1"),
        ({"features": 0}, "features = 0: expected at least 1"),
        ({"missing": 1.0}, "missing = 1: expected a share from 0 to below 1"),
        ({"dropout": -0.1}, "dropout = -0.1: expected a share from 0 to below 1"),
        ({"whole_visits": 1.1}, "whole_visits = 1.1: expected a share from 0 to 1"),
        ({"noise": -1}, "noise = -1: expected a finite number not below 0"),
        ({"jitter": np.inf}, "jitter = inf: expected a finite number not below 0"),
        ({"mechanism": "MCAR"}, "mechanism 'MCAR': expected 'random' or 'not-random'"),
    ],
)
def test_wrong_numbers_are_refused(options: dict[str, Any], message: str) -> None:
    """A number out of its range is refused in one line; the least cohort is one visit of one subject."""
    with pytest.raises(DataError, match=re.escape(message)):
        cohort(**{"subjects": 5, "seed": 0, **options})
    assert cohort(1, 1, features=1, seed=0).X.shape == (1, 1, 1)
