"""The linearised moment map: its fixed points, their stability, and the corrected configurations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peephole.theory import (
    Cell,
    LinearMap,
    TheoryError,
    Variances,
    corrected_cell_input,
    preset,
    propagate,
    variance_names,
)

CONFIGURATIONS = (1, 2, 3, 4)
VAR_C = (0.442, 0.883, 0.396, 0.396)
VAR_H_PRINTED = (0.178, 0.135, 0.158, 0.158)
VAR_H = (0.288, 0.356, 0.257, 0.257)
FED_BACK = (0.072, 0.109, 0.094, 0.047)
CORRECTED_FED_BACK = (0.335, 0.453, 0.682, 0.225)


@pytest.mark.parametrize("index", range(4))
def test_where_table_1_settles(index: int) -> None:
    """To three digits: Var(c), Var(h) as printed and with E[o]^2, and Var(h) with feedback. Not 1."""
    cell = Cell(6, 6)
    linear = LinearMap(cell, preset(f"proposed-{index + 1}", cell))
    point = linear.fixed_point()
    assert point.var_c == pytest.approx(VAR_C[index], abs=5e-4)
    assert point.var_h_printed == pytest.approx(VAR_H_PRINTED[index], abs=5e-4)
    assert point.var_h == pytest.approx(VAR_H[index], abs=5e-4)
    assert linear.settle()[1] == pytest.approx(FED_BACK[index], abs=5e-4)


@pytest.mark.parametrize("sizes", [(1, 1), (6, 6), (64, 16), (3, 200)])
@pytest.mark.parametrize("k", CONFIGURATIONS)
def test_corrected_reaches_1(k: int, sizes: tuple[int, int]) -> None:
    """`corrected-k` settles at Var(h) = 1 to 1e-9, for M different from N too, and with and without peepholes."""
    for peepholes in (True, False):
        cell = Cell(*sizes, peepholes=peepholes)
        point = LinearMap(cell, preset(f"corrected-{k}", cell)).fixed_point()
        assert point.var_h == pytest.approx(1, abs=1e-9)
        assert point.slope < 1
        flow = propagate(cell, preset(f"corrected-{k}", cell), steps=300, level="linear")
        assert flow.var_h[-1] == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("name", ["normalized", "proposed-1"])
def test_others_do_not(name: str) -> None:
    """Control: neither the baseline nor Table 1 itself settles at 1."""
    cell = Cell(6, 6)
    assert abs(LinearMap(cell, preset(name, cell)).fixed_point().var_h - 1) > 0.1


def test_the_closed_form_of_theory() -> None:
    """For Proposed 1, C is the root of v_o C^2 + (A_o + 4) C - 16, and A_c 1.283 in place of 0.5."""
    cell = Cell(1, 1)
    v = preset("proposed-1", cell)
    root = (-10 + math.sqrt(100 + 64)) / 2
    expected = root * (0.75 - (2 + root) / 16) / (0.25 + (4 + root) / 16)
    assert corrected_cell_input(cell, v) == pytest.approx(expected, rel=1e-14)
    assert expected == pytest.approx(1.283, abs=5e-4)


@pytest.mark.parametrize("index", range(4))
def test_corrected_is_not_stable_when_fed_back(index: int) -> None:
    """With its own Var(h) fed back the corrected form settles elsewhere, and its point at 1 is unstable."""
    cell = Cell(6, 6)
    linear = LinearMap(cell, preset(f"corrected-{index + 1}", cell))
    assert linear.settle()[1] == pytest.approx(CORRECTED_FED_BACK[index], abs=5e-4)
    assert linear.feedback_radius(linear.fixed_point().var_c, 1.0) > 1


@given(data=st.data(), peepholes=st.booleans(), bias=st.floats(-1, 1))
def test_the_closed_form_is_where_the_iteration_goes(data: st.DataObject, peepholes: bool, bias: float) -> None:
    """Wherever a stable root exists the iterated map reaches it, at any bias, and not the other one."""
    cell = Cell(1, 1, peepholes=peepholes, forget_bias=bias)
    high = {"w": 2.0, "u": 2.0, "v": 1.0}
    v = Variances.build(cell, {name: data.draw(st.floats(0.05, high[name[0]])) for name in variance_names(cell)})
    point = LinearMap(cell, v).fixed_point()
    if not point.exists or point.slope > 0.97:
        return
    flow = propagate(cell, v, steps=1500, level="linear")
    assert flow.var_c[-1] == pytest.approx(point.var_c, rel=1e-7)
    assert flow.var_h[-1] == pytest.approx(point.var_h, rel=1e-7)


def test_a_mean_that_is_not_zero() -> None:
    """With sigmoid cell input E[c] settles at E[i] E[z] / (1 - E[f]) = 1/2, and the variance is about it."""
    cell = Cell(4, 4, peepholes=False, cell_input="sigmoid")
    v = preset("normalized", cell)
    linear = LinearMap(cell, v)
    assert linear.mean_c == pytest.approx(0.5)
    flow = propagate(cell, v, steps=500, level="linear")
    assert flow.mean_c[-1] == pytest.approx(0.5)
    held = linear.fixed_point(linear.held(1.0))
    assert flow.var_c[-1] == pytest.approx(held.var_c, rel=1e-9)
    assert flow.var_h[-1] == pytest.approx(held.var_h, rel=1e-9)
    assert flow.mean_h[:4] == pytest.approx(flow.mean_c[:4] / 2)  # 1/8, 3/16, ...: the mean builds up


def test_settling_is_where_iterating_leads() -> None:
    """Newton's method finds the point that thousands of steps of the fed-back map come to."""
    for name in ("proposed-1", "proposed-4", "corrected-3", "normalized"):
        cell = Cell(6, 6)
        v = preset(name, cell)
        flow = propagate(cell, v, steps=2000, level="linear", feedback=True)
        assert LinearMap(cell, v).settle()[1] == pytest.approx(flow.var_h[-1], rel=1e-9)


def test_settling_nowhere() -> None:
    """Where the fed-back map grows without end no point is claimed."""
    cell = Cell(6, 6)
    v = preset("corrected-1", cell)
    explosive = replace(v, u_i=10 * v.u_i)
    assert not math.isfinite(LinearMap(cell, explosive).settle()[1])
    assert propagate(cell, explosive, steps=8, level="linear", feedback=True).var_h[-1] > 10


def test_the_radius_is_that_of_the_iteration() -> None:
    """The spectral radius is the rate at which the fed-back map closes in, measured on the map itself."""
    cell = Cell(6, 6)
    v = preset("proposed-4", cell)
    linear = LinearMap(cell, v)
    var_c, var_h = linear.settle()
    flow = propagate(cell, v, steps=60, level="linear", feedback=True)
    gaps = np.abs(flow.var_h - var_h)[4:16]
    measured = float(np.exp(np.mean(np.diff(np.log(gaps)))))
    assert linear.feedback_radius(var_c, var_h) == pytest.approx(measured, rel=1e-3)


def test_linear_needs_a_slope_and_one_bias() -> None:
    """ReLU has no Taylor expansion at 0, and a list of biases no single one."""
    relu = Cell(4, 4, output="relu")
    with pytest.raises(TheoryError, match="level 'wide' can serve it"):
        propagate(relu, preset("normalized", relu), level="linear")
    spread = Cell(4, 4, forget_bias=[0.0, 1.0])
    with pytest.raises(TheoryError, match="level 'wide' can serve a list"):
        propagate(spread, preset("normalized", spread), level="linear")
