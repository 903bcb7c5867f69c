"""The printed conditions, line by line, and what they leave out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peephole.theory import (
    Cell,
    Condition,
    TheoryError,
    Variances,
    conditions,
    discriminant_2,
    preset,
    printed_conditions,
    printed_equation,
    unprinted_conditions,
    variance_names,
)

CONFIGURATIONS = (1, 2, 3, 4)
positive = st.floats(0.01, 10)


def named(found: list[Condition], name: str) -> Condition:
    """The one condition of that name."""
    (one,) = [c for c in found if c.name == name]
    return one


@pytest.mark.parametrize("k", CONFIGURATIONS)
@pytest.mark.parametrize("inputs", [1, 6, 37])
def test_table_1_satisfies_the_printed_lines(k: int, inputs: int) -> None:
    """Proposed 1 to 4 leave residuals below 1e-12 in (4), for any N and for M different from N."""
    for units in (inputs, inputs + 5):
        cell = Cell(inputs, units)
        bound, equality = printed_conditions(cell, preset(f"proposed-{k}", cell))
        assert bound.holds
        assert bound.margin is not None
        assert equality.holds
        assert equality.residual is not None
        assert abs(equality.residual) < 1e-12
        assert equality.equation == "(4)"


@pytest.mark.parametrize("inputs", [1, 6, 37])
def test_the_baseline_does_not(inputs: int) -> None:
    """Control: `normalized` fails the same equality."""
    cell = Cell(inputs, inputs)
    equality = printed_conditions(cell, preset("normalized", cell))[1]
    assert not equality.holds


def test_both_sides_of_table_1_are_4() -> None:
    """The paper's own arithmetic: the right side of (4) is sqrt(A_o^2 + 64 v_o) - A_o = 4."""
    for k in CONFIGURATIONS:
        v = preset(f"proposed-{k}", Cell(1, 1))
        a_o, v_o = v.w_o + v.u_o, v.v("o")
        assert math.sqrt(a_o**2 + 64 * v_o) - a_o == pytest.approx(4, abs=1e-12)


@pytest.mark.parametrize(("k", "value"), [(1, 74.25), (2, 74.25), (3, 94.25), (4, 94.25)])
def test_the_unprinted_third_line(k: int, value: float) -> None:
    """Delta_2 = 0 was assumed, is not printed, and Table 1 does not satisfy it."""
    cell = Cell(6, 6)
    v = preset(f"proposed-{k}", cell)
    assert discriminant_2(cell, v) == pytest.approx(value, abs=1e-12)
    third = named(conditions(cell, v), "Delta_2 = 0")
    assert not third.printed
    assert not third.holds


@given(v_f=positive, a_c=positive, a_i=positive)
def test_delta_2_vanishes_where_its_line_holds(v_f: float, a_c: float, a_i: float) -> None:
    """12 - A_f - v_i A_c = 2 sqrt(v_f A_c (A_i + 4)) is Delta_2 = 0: choose A_f so, and it holds."""
    a_f = 12 - 2 * math.sqrt(v_f * a_c * (a_i + 4))
    if a_f <= 0:
        return
    v = Variances(a_f, 0, v_f, a_i, 0, 0, 1, 0, 1, a_c, 0)
    assert discriminant_2(Cell(1, 1), v) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("gate", "peepholes", "equation"),
    [("identity", False, "(1)"), ("tanh", True, "(2)"), ("sigmoid", False, "(3)"), ("sigmoid", True, "(4)")],
)
def test_the_equation_follows_from_the_cell(gate: str, peepholes: bool, equation: str) -> None:
    """Gates and peepholes choose among (1) to (4); each has two printed lines."""
    cell = Cell(4, 4, peepholes=peepholes, gate=gate)
    found = printed_conditions(cell, preset("normalized", cell))
    assert printed_equation(cell) == equation
    assert [c.equation for c in found] == [equation] * 2
    assert all(c.printed for c in found)


def test_equations_1_to_3_by_hand() -> None:
    """Numbers that satisfy (1), (2) and (3), worked out by hand; a change of one breaks each."""
    one = Variances(0.5, 0, None, 1, 0, None, 1, 0, None, 0.5, 0)  # 1 - 1/2 = 1 * 1 * 1/2
    three = Variances(2, 0, None, 4, 0, None, 4, 0, None, 5, 0)  # 10 / 8 = 4 * 5 / 16
    # 2 sqrt(A_i A_c) = 2 sqrt(3/4 * 1/3) = 1 = sqrt(A_o^2 + 4) - A_o for A_o = 3/2
    two = Variances(0.25, 0, 1, 0.75, 0, 1, 1.5, 0, 1, 1 / 3, 0)
    for gate, v in (("tanh", one), ("tanh", two), ("sigmoid", three)):
        cell = Cell(1, 1, peepholes=v.v_f is not None, gate=gate)
        assert all(c.holds for c in printed_conditions(cell, v))
        assert not all(c.holds for c in printed_conditions(cell, replace(v, w_c=v.w_c * 1.01)))


@pytest.mark.parametrize(
    "roles", [{"gate": "hard_sigmoid"}, {"gate": "relu"}, {"output": "relu"}, {"cell_input": "erf"}]
)
def test_uncovered_activations_are_refused(roles: dict[str, str]) -> None:
    """Where none of the four equations holds the message names the levels that serve."""
    cell = Cell(4, 4, **roles)  # type: ignore[arg-type]
    with pytest.raises(TheoryError, match=r"levels 'linear' .* and 'wide'"):
        conditions(cell, preset("normalized", cell))


def test_hard_sigmoid_has_the_unprinted_ones() -> None:
    """A smooth enough cell keeps its linear conditions though no equation is printed for it."""
    cell = Cell(4, 4, gate="hard_sigmoid")
    found = unprinted_conditions(cell, preset("corrected-1", cell))
    assert named(found, "Var(h) = target with E[o]^2").holds
    assert not any(c.printed for c in found)


def test_peephole_variances_go_with_peepholes() -> None:
    """Variances that do not fit the cell are refused by name."""
    with_peepholes, without = Cell(4, 4), Cell(4, 4, peepholes=False)
    assert len(variance_names(with_peepholes)) == 11
    assert len(variance_names(without)) == 8
    with pytest.raises(TheoryError, match="v_f is a peephole's variance"):
        conditions(without, preset("normalized", with_peepholes))
    with pytest.raises(TheoryError, match="no variance was given for v_f, v_i, v_o"):
        conditions(with_peepholes, preset("normalized", without))


def test_a_bias_is_not_the_papers_setting() -> None:
    """The printed lines are blind to a bias; a condition of its own says so."""
    for bias in (0.0, 1.0):
        cell = Cell(4, 4, forget_bias=bias)
        zero = named(conditions(cell, preset("proposed-1", cell)), "zero biases")
        assert zero.holds == (bias == 0)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_impossible_variances(bad: float) -> None:
    """A variance is finite and not negative."""
    with pytest.raises(TheoryError, match=r"w_f = .*: a variance must be finite and not negative"):
        replace(preset("normalized", Cell(1, 1)), w_f=bad)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": 0}, "inputs = 0"),
        ({"units": 2.5}, "units = 2.5"),
        ({"gate": "sigmod"}, "did you mean 'sigmoid'"),
        ({"observed": 1.5}, "observed = 1.5"),
        ({"forget_bias": math.nan}, "forget_bias = nan"),
        ({"input_variance": 0.0}, "input_variance = 0.0"),
    ],
)
def test_impossible_cells(change: dict[str, object], message: str) -> None:
    """A cell that cannot be is refused in one line that names the argument."""
    with pytest.raises(TheoryError, match=message):
        Cell(**{"inputs": 4, "units": 4, **change})  # type: ignore[arg-type]


def test_an_unknown_preset() -> None:
    """The nearest name is suggested."""
    with pytest.raises(TheoryError, match="did you mean 'proposed-1'"):
        preset("proposd-1", Cell(1, 1))


def test_a_user_s_function_is_not_the_named_one() -> None:
    """A function that happens to be called sigmoid gets no equation that was printed for the sigmoid."""

    def sigmoid(a: np.ndarray) -> np.ndarray:
        return 3 * a

    with pytest.raises(TheoryError, match="gate <sigmoid>"):
        printed_equation(Cell(4, 4, gate=sigmoid))
    with pytest.raises(TheoryError, match="does not take arrays"):
        Cell(4, 4, gate=math.tanh)


def test_without_a_peephole_s_variance_the_equality_is_undefined() -> None:
    """v_f or v_o = 0 leaves no quadratic: (4) then reads 0 = 0 or divides by zero, and does not hold."""
    v = preset("proposed-1", Cell(1, 1))
    for change in ({"v_f": 0.0}, {"v_o": 0.0}):
        assert not printed_conditions(Cell(1, 1), replace(v, **change))[1].holds


def test_a_list_of_biases_keeps_the_printed_lines() -> None:
    """The printed lines are there for any biases; the linear ones need a single one and are left out."""
    cell = Cell(4, 4, forget_bias=[0.0, 1.0])
    found = conditions(cell, preset("proposed-1", cell))
    assert [c.holds for c in found if c.printed] == [True, True]
    assert not any(c.equation == "linear" for c in found)
