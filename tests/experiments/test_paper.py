"""The paper's comparison as data: the fourth column, the linear peers, the variances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from peephole.data import DataWarning, adni
from peephole.experiments import paper
from peephole.experiments.training import Material
from peephole.theory import preset
from tests.data import test_adni as files


def material(gaps: float) -> Material:
    """Random walks of two features, with gaps."""
    rng = np.random.default_rng(4)
    walks = rng.normal(size=(80, 12, 2)).cumsum(1) @ np.array([[1.0, 0.4], [0.0, 1.0]])
    walks[rng.random(walks.shape) < gaps] = np.nan
    return Material("walks", walks[:60].astype(np.float32), walks[60:].astype(np.float32), "", "")


def lags(series: NDArray[np.float32], order: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The last values before each step, latest first, one series and one step after the other."""
    x, y = [], []
    for one in series.astype(np.float64):
        for t in range(1, len(one)):
            before = [np.nan_to_num(one[t - k]) if t >= k else np.zeros(one.shape[1]) for k in range(1, order + 1)]
            x.append(np.concatenate(before))
            y.append(one[t])
    return np.array(x), np.array(y)


@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("order", [1, 2])
def test_autoregression_is_scikit_learns(order: int, gaps: float) -> None:
    """AR(1) and AR(2) have the error of scikit-learn's least squares, weighed by visit and subject."""
    m = material(gaps)
    (x, y), (test_x, test_y) = lags(m.train, order), lags(m.test, order)
    errors = np.zeros(m.test[:, 1:].shape)
    for n in range(2):
        seen, asked = ~np.isnan(y[:, n]), ~np.isnan(test_y[:, n])
        fitted = LinearRegression().fit(x[seen], y[seen, n])
        errors[..., n].flat[np.flatnonzero(asked)] = (fitted.predict(test_x[asked]) - test_y[asked, n]) ** 2
    seen = ~np.isnan(m.test[:, 1:])
    visits = [[e[s].mean() for e, s in zip(*both, strict=True) if s.any()] for both in zip(errors, seen, strict=True)]
    wanted = np.mean([np.mean(one) for one in visits if one])  # of subjects, each of its visits, each of its features
    assert paper.peers(m)[f"AR({order})"] == pytest.approx(wanted, rel=1e-9)


def test_persistence_carries_forward() -> None:
    """Persistence is the last observed value, by hand, and the mean, zero, before there is one."""
    nan = np.nan
    series = np.array([[nan, 1, nan, 4, 2]], np.float32)[..., None]
    m = Material("", series, series, "", "")
    assert paper.peers(m)["persistence"] == pytest.approx(np.mean([(0 - 1) ** 2, (1 - 4) ** 2, (4 - 2) ** 2]))


def test_the_cohort_is_made_up() -> None:
    """Without a file the fourth column is as large as the paper's and says what it is; it is the same every time."""
    m = paper.cohort()
    assert m.name not in paper.TABLE_2["proposed-1"]
    assert "synthetic" in m.name
    assert "made up" in m.source
    assert (m.train.shape, m.test.shape) == ((332, 10, 6), (51, 10, 6))
    visits = (~np.isnan(np.concatenate([m.train, m.test]))).any(-1).sum(1)
    assert (visits.min(), visits.max()) == paper.VISITS
    assert np.nanmean(m.train, axis=(0, 1)) == pytest.approx(0, abs=1e-5)
    assert np.nanstd(m.train, axis=(0, 1)) == pytest.approx(1, abs=1e-5)
    assert m.sha256 == paper.cohort().sha256 == "b9a072cb8cc299e7c96fc4ef7c4630ed9b8a22d241e45f7e3fd1145bb72e0185"


def test_adni_takes_its_place(tmp_path: Path) -> None:
    """With an ADNIMERGE file the fourth column is the paper's ADNI, split as it was; those with two visits drop out."""
    rng = np.random.default_rng(1)
    rows = [
        files.row(rid, 12 * year, **{name: round(1000 * (rid % 7 + 5 + rng.random())) for name in adni.SIX})
        for rid in range(10, 50)
        for year in range(2 if rid == 10 else 4)
    ]
    path = files.write(tmp_path / "ADNIMERGE.csv", rows)
    with pytest.warns(DataWarning, match="1 subject"):
        m = paper.cohort(path)
    assert m.name == "ADNI"
    assert m.name in paper.TABLE_2["proposed-1"]
    assert str(path) in m.source
    assert (len(m.train), len(m.test)) == (34, 5)


def test_variances_are_the_papers() -> None:
    """Networks start from Table 1 as printed, though the theory's own would allow for gaps."""
    cell = paper.cohort().cell()
    assert (cell.inputs, cell.units, cell.output) == (6, 6, "identity")
    assert preset("proposed-4", cell).u_o == pytest.approx(4 / 6)
