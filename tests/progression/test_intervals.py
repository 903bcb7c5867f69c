"""Split conformal intervals and diagnoses by linear discriminants."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from peephole.progression.diagnosis import Diagnosis
from peephole.progression.intervals import LEVELS, Intervals

NAN = float("nan")


def test_coverage_on_new_errors() -> None:
    """Skewed errors of any scale are covered at each level, within three standard errors; other errors are not."""
    rng = np.random.default_rng(0)
    scale = np.array([[1.0, 10.0], [2.0, 20.0]])
    known, new = (rng.exponential(size=(4000, 2, 2)) * scale - scale / 2 for _ in range(2))
    intervals = Intervals.from_errors(known)
    for place, level in enumerate(LEVELS):
        low, high = intervals.offsets[place]
        inside = ((low < new) & (new < high)).mean(axis=0)
        se = np.sqrt(2 * level * (1 - level) / 4000)
        assert inside == pytest.approx(np.full((2, 2), level), abs=3 * se)
        assert (((low < 2 * new) & (2 * new < high)).mean(axis=0) < level - 3 * se).all()


def test_finite_sample_ranks() -> None:
    """With n errors the ends are those of rank (n + 1)(1 - a)/2 from either side; too few give the outermost."""
    errors = np.arange(-9.0, 10.0)[:, None, None]  # n = 19: 90% takes the first rank, 50% the fifth
    offsets = Intervals.from_errors(errors).offsets[:, :, 0, 0]
    assert offsets.tolist() == [[-5.0, 5.0], [-9.0, 9.0]]
    assert Intervals.from_errors(errors[:3]).offsets[1, :, 0, 0].tolist() == [-9.0, 0.0]  # the forecast is inside
    assert np.isnan(Intervals.from_errors(np.full((3, 1, 1), NAN)).offsets).all()


def test_between_and_beyond_horizons() -> None:
    """Offsets are interpolated, level below the first horizon, and grow with the root of time beyond the last."""
    intervals = Intervals(np.array([1.0, 3.0]).reshape(1, 1, 2, 1), np.ones((2, 1)))
    found = intervals.at(np.array([0.5, 1.0, 1.5, 2.0, 8.0]))[0, 0, :, 0]
    assert found.tolist() == [1.0, 1.0, 2.0, 3.0, 6.0]


@pytest.mark.parametrize("classes", [("a", "b"), ("a", "b", "c")])
def test_diagnosis_is_scikit_learn_s(classes: tuple[str, ...]) -> None:
    """The probabilities are those of its LDA; unknown diagnoses and gaps are left out."""
    rng = np.random.default_rng(1)
    truth = rng.choice(classes, 120)
    features = rng.standard_normal((120, 4)) + (truth == "b")[:, None] - 2 * (truth == "c")[:, None]
    peer = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(features[2:], truth[2:])
    truth[0], features[1, 2] = "", NAN
    found = Diagnosis.fit(features, truth)
    assert found is not None
    np.testing.assert_allclose(found.probabilities(features[2:]), peer.predict_proba(features[2:]), atol=1e-10)


def test_no_diagnosis() -> None:
    """Fewer than two diagnoses give none."""
    assert Diagnosis.fit(np.zeros((4, 2)), np.array(["a", "a", "", "a"])) is None
