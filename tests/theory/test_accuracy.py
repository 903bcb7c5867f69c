"""The accuracy table of the documentation, some of its rows, with fewer sequences."""

from __future__ import annotations

import pytest

from benchmarks.theory_accuracy import UNITS, Row, judge
from peephole.theory import Cell

ROWS = {
    "tanh, bias 1, AR(1)": Row(Cell(UNITS, UNITS, peepholes=False, output="tanh", forget_bias=1.0), "normalized", 0.9),
    "identity, white": Row(Cell(UNITS, UNITS, peepholes=False), "proposed-1", None),
    "peepholes": Row(Cell(UNITS, UNITS), "proposed-4", None),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_limit_is_within(name: str) -> None:
    """20 networks of 256 units: within 5% to step 60, with peepholes to step 10 and in medians 10% to step 20."""
    assert judge(ROWS[name], sequences=20, finite=False, seed=3).within


@pytest.mark.parametrize("name", ROWS)
def test_other_variances_are_not(name: str) -> None:
    """Control: the same check fails where the networks are drawn from other variances."""
    row = ROWS[name]
    control = "proposed-1" if row.name == "normalized" else "normalized"
    assert not judge(Row(row.cell, row.name, row.correlation, control), sequences=20, finite=False, seed=3).within
