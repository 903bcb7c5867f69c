"""Tables of visits on a regular grid and back, and splits by subject."""

import warnings
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peephole.data import DataError, DataWarning, Grid, folds, read_table, split_subjects, synthetic, to_grid

NAN = float("nan")


def visits(*rows: tuple[Any, ...], names: str = "id time x y") -> pd.DataFrame:
    """A tidy frame."""
    return pd.DataFrame(rows, columns=pd.Index(names.split()))


def reasons(grid: Grid) -> list[tuple[int, str]]:
    """Which rows were dropped, and why."""
    return [(drop.row, drop.why) for drop in grid.report.drops]


def same(one: Grid, other: Grid) -> bool:
    """Whether two grids hold the same values and diagnoses of the same subjects."""
    labels = [None if grid.diagnosis is None else grid.diagnosis.tolist() for grid in (one, other)]
    return (
        one.subjects.tolist() == other.subjects.tolist()
        and np.array_equal(one.X, other.X, equal_nan=True)
        and labels[0] == labels[1]
    )


def test_rows_find_their_cells() -> None:
    """Each row lies in the cell nearest to it, at its exact time; the rest ends in NaN."""
    grid = to_grid(visits(("a", 0, 1, 2), ("a", 23, 3, 4), ("b", 5, 5, 6), ("b", 18, 7, NAN)))
    np.testing.assert_array_equal(grid.X[0], [[1, 2], [NAN, NAN], [3, 4]])
    np.testing.assert_array_equal(grid.X[1], [[5, 6], [7, NAN], [NAN, NAN]])
    np.testing.assert_array_equal(grid.times, [[0, NAN, 23], [5, 18, NAN]])
    np.testing.assert_array_equal(grid.months, [[0, 12, 24], [5, 17, 29]])
    assert grid.lengths.tolist() == [3, 2]
    assert grid.X.dtype == np.float64
    assert grid.subjects.tolist() == ["a", "b"]
    assert grid.diagnosis is None
    assert grid.report.kept == grid.report.rows == 4


def test_tolerance() -> None:
    """A row at the tolerance is used, one beyond is dropped with its reason; half a step takes every row."""
    table = visits((1, 0, 1, 1), (1, 16, 2, 2), (1, 28.1, 3, 3), (1, 37, 4, 4))
    grid = to_grid(table)
    assert grid.times[0].tolist() == pytest.approx([0, 16, NAN, 37], nan_ok=True)
    assert reasons(grid) == [(2, "more than 4 months off the grid")]
    assert grid.report.counts() == {"more than 4 months off the grid": 1}
    assert str(grid.report).startswith("3 of 4 rows kept (dropped: 1 more than 4 months off the grid)")
    assert to_grid(table, tolerance=6).times[0].tolist() == [0, 16, 28.1, 37]
    assert to_grid(table, tolerance=0).times.tolist() == [[0]]
    half = to_grid(visits((1, 0, 1, 1), (1, 6, 2, 2)), tolerance=6)
    assert half.times.shape == (1, 2)  # half way: the later cell


def test_origin() -> None:
    """The grid starts at a subject's first row, or for all at month 0, before which rows are dropped."""
    table = visits((1, -12, 1, 1), (1, 2, 2, 2), (1, 13, 3, 3))
    assert to_grid(table).times.tolist() == [[-12, 2, 13]]
    grid = to_grid(table, origin="zero")
    assert grid.times.tolist() == [[2, 13]]
    assert grid.months.tolist() == [[0, 12]]
    assert reasons(grid) == [(0, "before the grid's start")]


RIVALS = visits((1, 0, 1, NAN), (1, 10, 2, NAN), (1, 13, 3, NAN), (1, 14, 5, 8), (1, 12, NAN, NAN))


@pytest.mark.parametrize(
    ("collision", "values", "time", "dropped"),
    [
        ("nearest", [3, NAN], 13, {1: "a nearer", 3: "a nearer", 4: "a nearer"}),
        ("first", [2, NAN], 10, {2: "an earlier", 3: "an earlier", 4: "an earlier"}),
        ("merge", [3, 8], 13, {}),
        ("mean", [10 / 3, 8], 12.25, {}),
    ],
)
def test_collisions(collision: Any, values: list[float], time: float, dropped: dict[int, str]) -> None:
    """Of several rows in a cell the rule takes one or all, never an empty one before others; losers are reported."""
    grid = to_grid(RIVALS, collision=collision)
    np.testing.assert_allclose(grid.X[0, 1], values, rtol=1e-15)
    assert grid.times[0, 1] == time
    assert dict(reasons(grid)) == {row: f"where {which} row has the cell" for row, which in dropped.items()}


def test_equally_near() -> None:
    """Of two rows equally near, the one that stands first in the table has the cell."""
    rows = [(1, 11, 2, 2), (1, 13, 3, 3)]
    assert to_grid(visits((1, 0, 1, 1), *rows)).times[0, 1] == 11
    assert to_grid(visits((1, 0, 1, 1), *rows[::-1])).times[0, 1] == 13


def test_order_of_rows_does_not_matter() -> None:
    """A table shuffled within its subjects gives the same grid; with other values it does not."""
    table = synthetic.cohort(30, seed=1).table
    shuffled = table.sample(frac=1, random_state=0).sort_values("id", kind="stable").reset_index(drop=True)
    assert not shuffled.equals(table)
    assert same(to_grid(table), to_grid(shuffled))
    shuffled.loc[0, "Ventricles_ICV"] = 1.0
    assert not same(to_grid(table), to_grid(shuffled))


@pytest.mark.parametrize("mechanism", ["random", "not-random"])
def test_made_up_cohort_is_found_again(mechanism: Any) -> None:
    """The grid of a made-up cohort's table holds the arrays that it was made from, with ages and diagnoses."""
    made = synthetic.cohort(100, seed=1, mechanism=mechanism)
    grid = to_grid(made.table, least=0)
    np.testing.assert_array_equal(grid.X, made.X)
    np.testing.assert_array_equal(grid.times, made.times)
    assert grid.features == made.features
    here = ~np.isnan(made.times)
    assert grid.diagnosis is not None
    assert (grid.diagnosis == np.where(here, made.truth.diagnosis, "")).all()
    assert grid.covariates["age"].tolist() == made.table.groupby("id")["age"].first().tolist()


numbers = st.one_of(st.none(), st.floats(-1e6, 1e6))
tables = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 90), numbers, numbers, st.sampled_from(["", "CN", "MCI", "AD"])),
    min_size=1,
    max_size=25,
    unique_by=lambda row: row[:2],
)


@given(rows=tables, collision=st.sampled_from(["nearest", "first", "merge", "mean"]))
@settings(max_examples=80, deadline=None)
def test_back_and_forth(rows: list[tuple[Any, ...]], collision: Any) -> None:
    """Every row is used or reported once; a grid's own table gives the grid again, and drops nothing."""
    frame = visits(*rows, names="id time x y diagnosis").astype({"x": float, "y": float})
    if frame[["x", "y"]].isna().all(axis=None):
        return
    options: dict[str, Any] = {"features": ["x", "y"], "tolerance": 6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        grid = to_grid(frame, collision=collision, **options)
        again = to_grid(grid.to_table(exact=False), **options)
    dropped = [drop.row for drop in grid.report.drops]
    assert len(set(dropped)) == len(dropped)
    kept = frame.drop(index=dropped)
    filled = int((~np.isnan(grid.times)).sum())
    assert filled == len(kept) if collision in ("nearest", "first") else filled <= len(kept)
    assert len(grid.to_table()) == filled
    assert same(grid, again)
    assert again.report.drops == ()
    if collision == "nearest":  # and every value is one of its row
        values = {(who, time): (x, y) for who, time, x, y in kept[["id", "time", "x", "y"]].itertuples(index=False)}
        for who, time, *pair in grid.to_table()[["id", "time", "x", "y"]].itertuples(index=False):
            np.testing.assert_array_equal(pair, values[who, time])


def test_exact_table_keeps_months() -> None:
    """A grid's table has the exact months or the nominal ones, the diagnoses, and a covariate in every row."""
    table = visits((7, 1, 1, "CN", 60), (7, 14, 2, "", 60), (8, 0, 3, "AD", 70), names="id time x diagnosis age")
    grid = to_grid(table, covariates=["age"])
    back = grid.to_table()
    assert list(back.columns) == ["id", "time", "x", "diagnosis", "age"]
    assert back["time"].tolist() == [1, 14, 0]
    assert back["diagnosis"].fillna("").tolist() == ["CN", "", "AD"]
    assert back["age"].tolist() == [60, 60, 70]
    assert grid.to_table(exact=False)["time"].tolist() == [1, 13, 0]


def test_covariates() -> None:
    """A covariate is a subject's first known value, numbers with NaN and text with the empty one for unknown."""
    table = visits((1, 0, 1, None, 60), (1, 12, 2, "f", None), (2, 0, 3, None, None), names="id time x sex age")
    grid = to_grid(table, covariates=["sex", "age"], features=["x"])
    assert grid.covariates["sex"].tolist() == ["f", ""]
    np.testing.assert_array_equal(grid.covariates["age"], [60, NAN])
    assert to_grid(table, features=["x"]).covariates == {}


def test_rows_that_observed_nothing() -> None:
    """An empty visit before the last observation keeps its cell; those after are dropped, unless diagnosed."""
    rows = ((1, 0, NAN, ""), (1, 12, NAN, ""), (1, 24, 2, ""), (1, 36, NAN, "AD"), (1, 48, NAN, ""))
    grid = to_grid(visits(*rows, names="id time x diagnosis"))
    assert grid.times.tolist() == [[0, 12, 24, 36]]
    assert reasons(grid) == [(4, "after the subject's last observation")]


def test_subjects_dropped() -> None:
    """Subjects without any observation, or fewer than asked for, are dropped with a warning that counts them."""
    table = visits((1, 0, NAN, NAN), (1, 12, NAN, NAN), (2, 0, 1, 1), (3, 0, 1, 1), (3, 12, 2, 1))
    with pytest.warns(DataWarning, match="1 subject without any row on the grid, or without any observation, dropped"):
        grid = to_grid(table, features=["x", "y"])
    assert grid.subjects.tolist() == [2, 3]
    assert reasons(grid) == [(0, "of a subject without any observation"), (1, "of a subject without any observation")]
    with pytest.warns(DataWarning, match="2 subjects without any row on the grid, or with fewer than 2 visits, drop"):
        assert to_grid(table, features=["x", "y"], least=2).subjects.tolist() == [3]
    assert to_grid(table[table["id"] == 3], features=["x", "y"], least=2).subjects.tolist() == [3]
    whole = to_grid(table, features=["x", "y"], least=0)
    assert whole.subjects.tolist() == [1, 2, 3]
    assert whole.times[0].tolist() == [0, 12]


def test_number_of_visits() -> None:
    """The grid is as long as asked for: later rows are dropped, missing cells empty."""
    table = visits((1, 0, 1, 1), (1, 12, 2, 3), (1, 24, 3, 3))
    assert to_grid(table, visits=5).X.shape == (1, 5, 2)
    grid = to_grid(table, visits=2)
    assert grid.times.tolist() == [[0, 12]]
    assert reasons(grid) == [(2, "after the grid's end")]


def test_frames_meet_the_checks_of_files() -> None:
    """A frame is refused or warned of as a file is, with its row; a good one is not."""
    good = visits((1, 0, 1, "10"), (1, 12, 2, ">1700"))
    with pytest.warns(DataWarning, match="table: column 'y': 1 cell such as '>1700' taken as the number"):
        assert to_grid(good).X[0, :, 1].tolist() == [10, 1700]
    with pytest.raises(DataError, match="table, row 1: column 'y': 'big', expected a number"):
        to_grid(good.replace(">1700", "big"))
    with pytest.raises(DataError, match="table, row 1: column 'id': empty"):
        to_grid(good.assign(id=[1, None]))
    with pytest.raises(DataError, match="table: no column 'id'"):
        to_grid(good.drop(columns="id"))
    with pytest.raises(DataError, match="table: no rows"):
        to_grid(good.iloc[:0])
    dated = good.assign(time=pd.to_datetime(["2012-03-01", "2013-03-01"]), y=1.0)
    assert to_grid(dated, features=["x"]).times[0].tolist() == pytest.approx([0, 365 / 365.25 * 12])
    assert to_grid(good.assign(y=[1.0, 2.0])).report.warnings == ()


def test_warnings_of_the_file_are_not_said_twice(tmp_path: Any) -> None:
    """The report of a grid tells what the reading of its file did, too, which is not said again."""
    path = tmp_path / "t.csv"
    path.write_text("id,time,x,diagnosis\n1,0,1,CN\n1,,2,CN\n1,18,>3,CN\n2,0,4,AD\n")
    with pytest.warns(DataWarning) as caught:
        table = read_table(path)
    grid = to_grid(table)
    assert len(caught) == 1
    assert grid.report.rows == 4
    assert reasons(grid) == [(3, "without a time"), (4, "more than 4 months off the grid")]
    assert grid.report.warnings == table.report.warnings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 0}, "step 0, tolerance 0: expected a step above 0"),
        ({"tolerance": 7}, "step 12, tolerance 7: expected a step above 0, and a tolerance of at most half of it"),
        ({"collision": "last"}, "collision 'last'"),
        ({"origin": "birth"}, "origin 'birth'"),
        ({"visits": 0}, "visits 0"),
        ({"features": ["z"]}, "no column 'z'"),
        ({"origin": "zero", "visits": 1}, "table: no row is left for the grid; 0 of 1 rows kept .dropped: 1 after"),
        ({"step": 1e-9, "origin": "zero"}, "is the unit of time right"),
    ],
)
def test_wrong_wishes_are_refused(options: dict[str, Any], message: str) -> None:
    """A grid that cannot be made is refused in one line."""
    with pytest.raises(DataError, match=message):
        to_grid(visits((1, 24, 1, 1)), **options)


COHORT = to_grid(synthetic.cohort(203, seed=4).table)


def last(grid: Grid, places: Any) -> Counter[str]:
    """How many of these subjects have which last diagnosis."""
    assert grid.diagnosis is not None
    return Counter(next(label for label in reversed(row) if label) for row in grid.diagnosis[places].tolist())


def test_split_is_of_subjects_and_stratified() -> None:
    """Each subject is in one part, the parts have the sizes asked for, and each diagnosis its share up to one."""
    train, test = split_subjects(COHORT, share=0.85, seed=0)
    assert sorted([*train, *test]) == list(range(203))
    assert len(train) == round(0.85 * 203)
    counts = last(COHORT, train)
    for name, count in last(COHORT, np.arange(203)).items():
        assert abs(counts[name] - 0.85 * count) < 1
    assert (np.diff(train) < 0).any()  # shuffled
    plain = [last(COHORT, split_subjects(COHORT, stratify=None, seed=seed)[0])["AD"] for seed in range(10)]
    assert len(set(plain)) > 1  # not so without strata


def test_folds_are_of_subjects_and_stratified() -> None:
    """In each repeat each subject is tested once, folds are equal up to one in size and in each diagnosis."""
    pairs = list(folds(COHORT, 4, repeats=3, seed=0))
    assert len(pairs) == 12
    for train, test in pairs:
        assert sorted([*train, *test]) == list(range(203))
    for repeat in range(3):
        tests = [test for _, test in pairs[4 * repeat : 4 * repeat + 4]]
        assert sorted(np.concatenate(tests)) == list(range(203))
        for one, other in combinations(tests, 2):
            assert abs(len(one) - len(other)) <= 1
            counts = last(COHORT, one), last(COHORT, other)
            assert all(abs(counts[0][name] - counts[1][name]) <= 1 for name in ("CN", "MCI", "AD"))
    assert {frozenset(test) for _, test in pairs[:4]} != {frozenset(test) for _, test in pairs[4:8]}


def test_same_seed_same_split() -> None:
    """The same seed gives the same split and folds, another seed others; these places are pinned."""
    assert split_subjects(COHORT, seed=3)[1].tolist() == split_subjects(COHORT, seed=3)[1].tolist()
    assert split_subjects(COHORT, seed=3)[1].tolist() != split_subjects(COHORT, seed=4)[1].tolist()
    assert next(folds(COHORT, seed=3))[1].tolist() == next(folds(COHORT, seed=3))[1].tolist()
    assert split_subjects(COHORT.take(range(8)), share=0.5, stratify=None, seed=0)[0].tolist() == [3, 2, 1, 6]


def test_worst_diagnosis() -> None:
    """Who once was worse is so by the worst diagnosis, not by the last; unknown names need an order."""
    labels = [["AD", "CN"]] * 4 + [["CN", "CN"]] * 4 + [["", ""]] * 2
    rows = [(who, 12 * when, 1.0 + when, label) for who, pair in enumerate(labels) for when, label in enumerate(pair)]
    grid = to_grid(visits(*rows, names="id time x diagnosis"))
    for seed in range(10):
        train, _ = split_subjects(grid, share=0.5, stratify="worst", seed=seed)
        assert sorted(np.minimum(train // 4, 2).tolist()) == [0, 0, 1, 1, 2]
    by_last = {tuple(np.sort(split_subjects(grid, share=0.5, seed=seed)[0] // 4)) for seed in range(10)}
    assert len(by_last) > 1
    with pytest.raises(DataError, match="diagnosis 'AD' is not in severity, CN, MCI"):
        split_subjects(grid, stratify="worst", severity=("CN", "MCI"), seed=0)


def test_small_cohorts_split_or_are_refused() -> None:
    """Neither part of a split is empty; one subject cannot be split, nor fewer subjects than folds."""
    two, one = COHORT.take([0, 1]), COHORT.take([0])
    assert [len(part) for part in split_subjects(two, share=0.99, seed=0)] == [1, 1]
    for call in (
        lambda: split_subjects(one, seed=0),
        lambda: split_subjects(two, share=1.0, seed=0),
        lambda: folds(two, 3, seed=0),
        lambda: folds(two, 2, repeats=0, seed=0),
        lambda: split_subjects(two, stratify="first", seed=0),  # type: ignore[arg-type]
    ):
        with pytest.raises(DataError, match="expected"):
            call()


def test_take() -> None:
    """Some subjects of a grid are the same as in the whole, all their parts together."""
    part = COHORT.take([5, 2])
    assert part.subjects.tolist() == COHORT.subjects[[5, 2]].tolist()
    np.testing.assert_array_equal(part.X, COHORT.X[[5, 2]])
    np.testing.assert_array_equal(part.months, COHORT.months[[5, 2]])
    assert part.covariates["age"].tolist() == COHORT.covariates["age"][[5, 2]].tolist()
    assert part.report is COHORT.report
