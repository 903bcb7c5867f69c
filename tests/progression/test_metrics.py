"""What judges forecasts, beside scikit-learn and beside definitions."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, mean_absolute_error, mean_squared_error, roc_auc_score

from peephole.progression import ProgressionError, metrics

NAN = float("nan")
CLASSES = ("CN", "MCI", "AD")


def diagnoses(n: int, seed: int, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Made-up truths and probabilities that know something of them."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(CLASSES, n, p=[0.5, 0.3, 0.2])
    scores = rng.standard_normal((n, 3)) + 1.2 * (truth[:, None] == np.array(CLASSES))
    chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    if ties:
        chances = np.round(chances, 1) + 0.1
        chances /= chances.sum(1, keepdims=True)
    return truth, chances


@pytest.mark.parametrize("ties", [False, True])
def test_mauc_is_that_of_scikit_learn(ties: bool) -> None:
    """The mAUC equals roc_auc_score(multi_class="ovo"), with ties too; shuffled truths are near one half."""
    truth, chances = diagnoses(200, 0, ties)
    order = np.argsort(CLASSES)  # scikit-learn wants the classes sorted
    peer = roc_auc_score(truth, chances[:, order], multi_class="ovo", labels=np.array(CLASSES)[order])
    assert metrics.mauc(truth, chances, CLASSES) == pytest.approx(peer, abs=1e-12)
    assert abs(metrics.mauc(np.roll(truth, 1), chances, CLASSES) - 0.5) < 0.15 < peer - 0.5


def test_mauc_without_some_class() -> None:
    """Pairs of which one class never occurs are left out; with a single class there is no area."""
    truth, chances = diagnoses(100, 1)
    two = truth != "AD"
    pair = metrics.mauc(truth[two], chances[two][:, :2], CLASSES[:2])
    assert metrics.mauc(truth[two], chances[two], CLASSES) == pytest.approx(pair)
    assert np.isnan(metrics.mauc(["CN"], [[1.0, 0.0, 0.0]], CLASSES))


def test_bca() -> None:
    """Sensitivity and specificity are averaged over classes; for two classes that is scikit-learn's balanced one."""
    truth, chances = diagnoses(150, 2)
    guess = np.array(CLASSES)[chances.argmax(1)]
    two = np.where(truth == "CN", "CN", "AD"), np.where(guess == "CN", "CN", "AD")
    assert metrics.bca(*two, ("CN", "AD")) == pytest.approx(balanced_accuracy_score(*two))
    assert metrics.bca(truth, truth, CLASSES) == 1.0
    assert metrics.bca(["CN", "CN"], ["CN", "CN"], ("CN", "AD")) == pytest.approx((1 + 0.5 + 0.5 + 1) / 4)


def test_errors_leave_out_what_is_missing() -> None:
    """MAE and MSE of each feature equal scikit-learn's on the entries that have a truth."""
    rng = np.random.default_rng(3)
    truth, guess = rng.standard_normal((2, 5, 4, 3))
    gaps = rng.random(truth.shape) < 0.3
    holey = np.where(gaps, NAN, truth)
    for n in range(3):
        seen = ~gaps[..., n]
        pair = truth[..., n][seen], guess[..., n][seen]
        assert metrics.mae(holey, guess)[n] == pytest.approx(mean_absolute_error(*pair))
        assert metrics.mse(holey, guess, 2.0)[n] == pytest.approx(mean_squared_error(*pair) / 4)
    assert np.isnan(metrics.mae([[NAN]], [[1.0]])).all()


def test_intervals_are_judged() -> None:
    """WES weighs errors by one over the width, a width of zero by the least other; CPA is |coverage - 1/2|."""
    truth, guess, low, high = [1.0, 2.0, 3.0, NAN], [1.0, 4.0, 4.0, 0.0], [0.0, 3.0, 2.0, 0.0], [2.0, 5.0, 6.0, 0.0]
    assert metrics.wes(truth, guess, low, high) == pytest.approx((2 / 2 + 1 / 4) / (1 / 2 + 1 / 2 + 1 / 4))
    assert metrics.wes([0.0, 0.0], [1.0, 3.0], [1.0, 1.0], [1.0, 5.0]) == pytest.approx(2.0)
    assert metrics.coverage(truth, low, high) == pytest.approx(2 / 3)
    assert metrics.cpa(truth, low, high) == pytest.approx(1 / 6)
    assert metrics.coverage([1.0], [1.0], [2.0]) == 0.0  # strictly inside


def test_wrong_shapes_are_refused() -> None:
    """Arrays that do not belong together give an error that names their shapes."""
    with pytest.raises(ProgressionError, match="the same is needed"):
        metrics.mae([1.0], [1.0, 2.0])
    with pytest.raises(ProgressionError, match="none of CN"):
        metrics.mauc(["XX"], [[1.0, 0.0]], ("CN", "AD"))
    with pytest.raises(ProgressionError, match="lower end"):
        metrics.wes([1.0], [1.0], [2.0], [1.0])
