"""Statistics and words: what the records show, what they contradict, and what they cannot show."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest, wilcoxon

from peephole.experiments import claims
from peephole.experiments.findings import Findings, gather, quantile

METHODS = [*claims.PROPOSED, *claims.BASELINES]
PAPER = {m: {"FordA": 0.04 if m in claims.PROPOSED else 0.5, "Crop": 0.08} for m in METHODS}
MARKS = [0, 1, 2, 4]


def record(dataset: str, method: str, seed: int, score: float | None, *, loss: float | None = None) -> dict[str, Any]:
    """A run whose test error falls as 4, 2, 1.5, 1 times the last; None diverged in the second epoch."""
    lost = score is None
    test = [4.0, None, None, None] if score is None else [score * k for k in (4, 2, 1.5, 1)]
    loss = score if loss is None else loss
    train = [9.0, 8.0, None, None, None] if loss is None else [9.0, 8.0, 7.0, 6.0, loss]
    return {
        "job": {"dataset": dataset, "data": "ab12", "method": method, "seed": seed, "epochs": 4},
        "key": f"{dataset}-{method}-{seed}",
        "train": train,
        "marks": MARKS,
        "validation": test,
        "test": test,
        "final": {"train": train[-1], "validation": test[-1], "test": test[-1]},
        "diverged": 2 if lost else -1,
        "provenance": {"seconds": 1.5, "versions": {"torch": "2"}},
    }


def make(ratios: dict[str, float], *, seeds: int = 14, dataset: str = "FordA", noise: float = 0.02) -> list[Any]:
    """Runs whose errors differ between seeds by far more than between methods, whose `ratios` hold for each seed."""
    rng = np.random.default_rng(5)
    common = np.exp(rng.normal(0, 1, seeds))
    return [
        record(dataset, m, k, float(0.04 * common[k] * ratios.get(m, 1.0) * np.exp(rng.normal(0, noise))))
        for m in METHODS
        for k in range(seeds)
    ]


def found(records: list[Any], **more: Any) -> Findings:
    """The findings beside a paper that has FordA and Crop."""
    return gather(records, paper_table=PAPER, **more)


@pytest.mark.parametrize("n", [3, 8, 20, 30])
def test_signed_rank_is_scipys(n: int) -> None:
    """Without ties the exact p and the rank-biserial are those of scipy's statistic."""
    d = np.random.default_rng(n).normal(-0.3, 1, n)
    p, biserial = claims.signed_rank(d)
    theirs = wilcoxon(d, method="exact")
    assert p == pytest.approx(theirs.pvalue, rel=1e-12)
    below = wilcoxon(d, alternative="less", method="exact").statistic  # the ranks of those above 0
    assert biserial == pytest.approx(1 - 2 * below / (n * (n + 1) / 2))


def test_signed_rank_with_ties_is_the_sum_over_all_signs() -> None:
    """With ties, zeros and infinite differences p is the share of all sign changes that are as extreme."""
    d = np.array([-np.inf, 0.5, -0.5, 0.0, np.inf, -np.inf, 0.25, -1.0, -0.5])
    ranks = np.array([7, 3, 3, 7, 7, 1, 5, 3])  # by hand, of the absolute values without the zero
    above = np.array([0, 1, 0, 1, 0, 1, 0, 0]) @ ranks
    sums = np.array([np.array(signs) @ ranks for signs in product((0, 1), repeat=8)])
    expected = np.mean(np.abs(sums - 18) >= abs(above - 18))
    p, biserial = claims.signed_rank(d)
    assert p == pytest.approx(expected)
    assert biserial == pytest.approx((36 - 2 * above) / 36)


def test_nothing_differs() -> None:
    """Where all differences are zero, p is 1 and there is no effect."""
    assert claims.signed_rank(np.zeros(8)) == (1.0, 0.0)


def test_holm_is_the_textbooks() -> None:
    """Four p of a textbook example, corrected by hand; the order does not matter, and none exceeds 1."""
    assert claims.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert claims.holm([0.9, 0.6]) == [1.0, 1.0]
    assert claims.holm([]) == []


@pytest.mark.parametrize("n", [6, 8, 13, 20])
def test_interval_is_what_the_test_leaves(n: int) -> None:
    """Scipy's test rejects a shift just outside either end at 5%, and does not reject one just inside."""
    d = np.random.default_rng(n).normal(0.2, 1, n)
    estimate, low, high = claims.walsh(d)
    assert low < estimate < high

    def p(shift: float) -> float:
        return float(wilcoxon(d - shift, method="exact").pvalue)

    for end, outwards in ((low, -1e-9), (high, 1e-9)):
        assert p(end + outwards) <= 0.05 < p(end - outwards)


def test_interval_covers() -> None:
    """Over many samples the interval holds the truth in at least 95% of them, and not always."""
    rng = np.random.default_rng(1)
    trials, inside = 2000, 0
    for _ in range(trials):
        _, low, high = claims.walsh(rng.normal(0.7, 1, 10))
        inside += low <= 0.7 <= high
    assert binomtest(inside, trials, 0.95, alternative="less").pvalue > 1e-4
    assert inside < trials


def test_interval_with_diverged_runs() -> None:
    """Infinite differences widen the interval and leave no NaN; five seeds have no interval at all."""
    d = np.random.default_rng(3).normal(0, 1, 12)
    _, low, high = claims.walsh(d)
    estimate, lower, higher = claims.walsh(np.array([*d, np.inf, -np.inf]))
    assert lower <= low
    assert higher >= high
    assert np.isfinite(estimate)
    assert claims.walsh(np.arange(5.0))[1:] == (-np.inf, np.inf)


def test_seeds_needed() -> None:
    """The smallest p of so many seeds, corrected, is at most 5%, and with one seed fewer it is not."""
    for family in (1, 8, 33, 44):
        n = claims.seeds_needed(family)
        assert claims.signed_rank(-np.arange(1.0, n + 1))[0] * family <= 0.05
        assert claims.signed_rank(-np.arange(1.0, n))[0] * family > 0.05


def test_a_claim_that_holds() -> None:
    """Where each proposed run beats its baselines' and the fourth all, both claims hold, and the words say so."""
    ratios = dict.fromkeys(claims.PROPOSED, 0.5) | {claims.BEST: 0.4}
    f = found(make(ratios))
    (d,) = f.datasets
    assert [claim.verdict for claim in d.claims] == ["holds", "holds"]
    assert [len(claim.comparisons) for claim in d.claims] == [8, 5]
    assert len(d.comparisons) == f.family == 11
    first = d.comparisons[0]
    assert (first.wins, first.losses, first.rank_biserial) == (14, 0, 1.0)
    assert first.low < np.log(0.5) < first.high < 0
    assert "beats both baselines is shown (8 of 8 comparisons hold)" in d.sentence
    assert [line for line in d.notes if "In the paper" in line] == []
    assert "Contradicted: none" in f.summary[1]


def test_a_claim_that_is_contradicted() -> None:
    """One baseline that always wins contradicts the first claim; the words name it."""
    f = found(make(dict.fromkeys(claims.PROPOSED, 1.0) | {"orthogonal": 0.5, "normalized": 3.0}))
    (d,) = f.datasets
    assert [claim.verdict for claim in d.claims] == ["contradicted", "contradicted"]
    assert d.claims[0].count("holds") == 4
    assert "Orthogonal beats Proposed 1" in d.sentence
    assert "Reproduced: none" in f.summary[0]


def test_identical_methods_show_nothing() -> None:
    """Methods with the same errors give p = 1, no effect and the verdict "not shown"."""
    f = found([r | {"job": r["job"] | {"method": m}} for m in METHODS for r in make({})[:14]])
    assert {c.verdict for c in f.datasets[0].comparisons} == {"not shown"}
    assert {(c.p, c.rank_biserial, c.wins) for c in f.datasets[0].comparisons} == {(1.0, 0.0, 0)}


def test_pairing_matters() -> None:
    """A difference small beside that between seeds is shown seed by seed, and lost when the seeds are shuffled."""
    records = make(dict.fromkeys(claims.PROPOSED, 0.9))
    assert found(records).datasets[0].claims[0].verdict == "holds"
    order = random.Random(0).sample(range(14), 14)
    for r in records:
        if r["job"]["method"] in claims.BASELINES:
            r["job"]["seed"] = order[r["job"]["seed"]]
    claim = found(records).datasets[0].claims[0]
    assert (claim.verdict, claim.count("holds")) == ("not shown", 0)


def test_too_few_seeds() -> None:
    """With 8 seeds even a method that always wins is not shown, and the words say how many it takes."""
    f = found(make(dict.fromkeys(claims.PROPOSED, 0.1), seeds=8))
    assert {c.verdict for c in f.datasets[0].comparisons} == {"not shown"}
    assert min(c.p for c in f.datasets[0].comparisons) == 2 / 2**8
    assert f.datasets[0].needed == claims.seeds_needed(11) == 9
    assert any("On FordA 8 seeds are too few" in line and "at least 9" in line for line in f.summary)
    assert "8 seeds are too few" in f.datasets[0].sentence


def test_seeds_of_each_family() -> None:
    """A family of fewer comparisons needs fewer seeds: 9 are too few for two sets, and enough for one."""
    f = found(make({}, seeds=9) + make({}, seeds=9, dataset="Crop") + make({}, seeds=9, dataset="synthetic cohort"))
    assert [(d.family, d.needed) for d in f.datasets] == [(22, 10), (22, 10), (11, 9)]
    assert ["too few" in d.sentence for d in f.datasets] == [True, True, False]
    alone = found(make({}, seeds=8, dataset="Tiny"))
    assert any("On Tiny 8 seeds are too few" in line for line in alone.summary)


def test_methods_left_out() -> None:
    """With methods left out no claim holds, though each comparison that was made does; one method makes none."""
    ratios = {"proposed-1": 0.5}
    f = found([r for r in make(ratios) if r["job"]["method"] in ("proposed-1", "normalized")])
    (claim,) = f.claims
    assert (claim.verdict, claim.count("holds"), claim.total) == ("not tested in full", 1, 8)
    assert "Reproduced: none" in f.summary[0]
    assert any(line.startswith("Not tested in full") for line in f.summary)
    (d,) = found([r for r in make(ratios, dataset="Crop") if r["job"]["method"] == "normalized"]).datasets
    assert d.sentence == "Crop: none of the paper's claims can be tested with these methods."


def test_the_papers_own_best() -> None:
    """Where the paper's own numbers have another configuration below its fourth, a note names both numbers."""
    paper = {m: {"FordA": 0.037 if m == "proposed-2" else 0.038} for m in METHODS}
    (d,) = gather(make({}), paper_table=paper).datasets
    assert "In the paper Proposed 4 is not the best here: 0.038, and 0.037 for Proposed 2." in d.notes


def test_diverged_runs_are_runs() -> None:
    """A diverged run counts, ranks last, makes the mean infinite and is no stuck one; a stuck one did not diverge."""
    scores = [1.0, 2.0, 3.0, None]
    records = [record("Crop", "proposed-1", k, s, loss=s and 1.0 + 0.4 * k) for k, s in enumerate(scores)]
    (row,) = found(records).datasets[0].rows
    assert (row.seeds, row.diverged, row.stuck) == (4, 1, 1)
    assert (row.mean, row.rest_mean, row.median, row.worst) == (np.inf, 2.0, 2.5, np.inf)
    assert row.upper == np.inf


def test_above_its_own_start_is_diverged() -> None:
    """A run that ends above the loss it began with diverged, however little; one just below is stuck."""
    records = [record("Crop", "proposed-1", k, 1.0, loss=loss) for k, loss in enumerate((1.0, 8.9, 9.1, 256.0))]
    (d,) = found(records).datasets
    assert (d.rows[0].stuck, d.rows[0].diverged) == (1, 2)
    assert d.runs["proposed-1"].diverged.tolist() == [False, False, True, True]


def test_both_diverged_is_a_tie() -> None:
    """Two methods that diverge with the same seed are equal there; one alone loses by more than any other."""
    d = claims.log_ratios([np.inf, 1.0, np.inf], [np.inf, np.inf, 1.0])
    assert d.tolist() == [0.0, -np.inf, np.inf]


@pytest.mark.parametrize("q", [0.25, 0.5, 0.75])
def test_quantile_is_numpys(q: float) -> None:
    """Finite values have NumPy's quantiles along the first axis; infinite ones give infinity, never NaN."""
    values: NDArray[np.float64] = np.random.default_rng(0).normal(size=(7, 3))
    np.testing.assert_allclose(quantile(values, q), np.quantile(values, q, axis=0))
    assert float(quantile([1.0, np.inf, np.inf, np.inf], q)) == np.inf


def test_nearest_epochs() -> None:
    """The mark whose medians equal the paper's is found, at no distance; at the end the distance is what it is."""
    paper = {m: {"Crop": 0.08} for m in METHODS}
    f = gather([record("Crop", m, k, 0.04) for m in METHODS for k in range(3)], paper_table=paper)
    assert f.nearest is not None
    assert (f.nearest.epochs, f.nearest.last) == (1, 4)
    assert f.nearest.distance == pytest.approx(0, abs=1e-12)
    assert f.nearest.at_end == pytest.approx(np.log(2))
    assert f.datasets[0].nearest == f.nearest


def test_verdicts_at_the_nearest_epoch() -> None:
    """The epoch nearest to the paper's numbers has claims of its own; a verdict that differs there is said."""
    records = make(dict.fromkeys(claims.PROPOSED, 0.5))
    assert any("every claim has the same verdict" in line for line in found(records).summary)
    for r in records:
        r["test"] = [r["test"][0], 0.04, *r["test"][2:]]
    (d,) = (f := gather(records, paper_table={m: {"FordA": 0.04} for m in METHODS})).datasets
    assert (f.nearest is not None, d.claims[0].verdict) == (True, "holds")
    assert any("beats both baselines is not shown on FordA" in line for line in f.summary)


def test_pace() -> None:
    """The epoch at which a run is within 1.05 times the best loss is found; a method that mostly is not never is."""
    fast = [record("Crop", "proposed-1", k, 0.1, loss=7.0) for k in range(3)]
    slow = [record("Crop", "normalized", k, 0.1, loss=8.5) for k in range(3)]
    for r in slow:
        r["train"][2:4] = [8.5, 8.5]
    f = found(fast + slow)
    assert [row.reached for row in f.datasets[0].rows] == [2.0, np.inf]
    assert any("Crop 2 against never" in line for line in f.summary)
    f = found(fast + [record("Crop", "normalized", k, None) for k in range(3)])
    assert any("(final losses 7.00 against infinite)" in line for line in f.summary)


def test_stuck_above_the_mean() -> None:
    """Where the limit of stuck runs is above 1 a note says that a run that learns nothing is not counted."""
    for loss, said in ((0.9, True), (0.5, False)):
        (d,) = found([record("Crop", "proposed-1", k, loss) for k in range(2)]).datasets
        assert any("learns nothing does not count" in note for note in d.notes) == said


def test_place_of_the_papers_number() -> None:
    """A number of the paper's lies between the quartiles, in the range or outside, at the digits printed."""
    for number, place in ((0.038, "quartiles"), (0.045, "range"), (0.5, "outside")):
        scores = [0.0376, 0.0377, 0.0378, 0.046]
        records = [record("Crop", "proposed-1", k, s) for k, s in enumerate(scores)]
        (row,) = gather(records, paper_table={"proposed-1": {"Crop": number}}).datasets[0].rows
        assert row.place == place


def test_made_up_data_is_compared_with_nothing() -> None:
    """A synthetic cohort has no number of the paper's, no part in its claims nor in their correction."""
    alone = found(make({}))
    f = found(make({}) + make({}, dataset="synthetic cohort"))
    (_, d) = f.datasets
    assert d.made_up
    assert not d.in_paper
    assert d.nearest is None
    assert all(row.paper is None for row in d.rows)
    assert f.family == alone.family
    assert f.datasets[0].comparisons == alone.datasets[0].comparisons
    assert "made-up data" in d.sentence
    assert any("made-up data" in line for line in f.summary)


def test_order_and_gaps() -> None:
    """The order of the records changes nothing; a missing seed is left out of its pairs and a method out of its own."""
    records = make({})
    shuffled = random.Random(1).sample(records, len(records))
    assert found(shuffled).summary == found(records).summary
    assert found(shuffled).columns == found(records).columns
    some = [r for r in records if r["job"]["method"] != "orthogonal" and r["key"] != "FordA-normalized-3"]
    (d,) = found(some).datasets
    assert {c.seeds for c in d.comparisons if c.worse == "normalized"} == {13}
    assert {c.seeds for c in d.comparisons if c.worse == "proposed-1"} == {14}
    assert "orthogonal" not in {c.worse for c in d.comparisons}
    assert found([]).datasets == ()


def test_records_that_do_not_belong_together() -> None:
    """Two records of one seed, or of different numbers of epochs, are refused."""
    records = make({})
    with pytest.raises(ValueError, match="more than one record of a seed"):
        found([*records, records[0]])
    longer = records[0] | {"marks": [0, 1, 2, 5]}
    with pytest.raises(ValueError, match="different numbers of epochs"):
        found([longer, *records[1:]])


def test_peers_in_words() -> None:
    """A peer that beats every method's median is named with its error; one that beats none is not."""
    records = [record("Crop", m, k, 0.08) for m in METHODS for k in range(4)]
    f = found(records, peers={"Crop": {"persistence": 0.09, "AR(1)": 0.07}})
    (note,) = [note for note in f.datasets[0].notes if "Without" in note]
    assert note == "Without any network, AR(1) (0.0700) beats the median of all 6 methods."
    assert any("beaten by AR(1) on Crop" in line for line in f.summary)
