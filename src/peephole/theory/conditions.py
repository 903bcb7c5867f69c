"""The paper's printed conditions, line by line, and under their own names those that it leaves unprinted.

All are in the notation A_k = N kappa w_k Var(x) + M u_k Var(h), which for M = N, kappa = 1 and
Var(x) = Var(h) = 1 is the paper's N (Var(w_k) + Var(u_k)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from peephole.theory.activations import resolve
from peephole.theory.cell import GATES, Cell, Variances, preactivation_variance
from peephole.theory.errors import LevelError, check_target
from peephole.theory.linear import LinearMap

TOLERANCE = 1e-12


@dataclass(frozen=True)
class Condition:
    """One condition: an equality with its residual (left minus right), or an inequality with its margin.

    `equation` says where it comes from: "(1)" to "(4)" of the paper, its "summary", or, unprinted, the
    "linear" level with Var(h) held, the same with "feedback", or what the "product rule" gives without E[o]^2.
    """

    name: str
    equation: str
    printed: bool
    holds: bool
    residual: float | None = None
    margin: float | None = None

    @property
    def value(self) -> float:
        """The residual or the margin, whichever the condition has."""
        return self.residual if self.residual is not None else self.margin if self.margin is not None else math.nan


def _equality(name: str, equation: str, left: float, right: float, printed: bool, tolerance: float) -> Condition:
    residual = left - right
    holds = math.isfinite(residual) and abs(residual) <= tolerance * max(1.0, abs(left), abs(right))
    return Condition(name, equation, printed, holds, residual=residual)


def _inequality(name: str, equation: str, margin: float, printed: bool) -> Condition:
    return Condition(name, equation, printed, margin > 0, margin=margin)


def _name_of(activation: object) -> str:
    return resolve(activation).name  # type: ignore[arg-type]


def printed_equation(cell: Cell) -> str:
    """Which of (1) to (4) covers the cell; an error that names the level to use where none does."""
    without_offset = ("identity", "tanh")
    gate, roles = _name_of(cell.gate), (_name_of(cell.cell_input), _name_of(cell.output))
    if gate in (*without_offset, "sigmoid") and all(role in without_offset for role in roles):
        if gate == "sigmoid":
            return "(4)" if cell.peepholes else "(3)"
        return "(2)" if cell.peepholes else "(1)"
    raise LevelError(
        f"no printed condition covers gate {gate}, cell input {roles[0]}, output {roles[1]}: (1) and (2) want "
        "identity or tanh throughout, (3) and (4) sigmoid gates with identity or tanh; "
        "levels 'linear' (smooth activations) and 'wide' (any) can serve it"
    )


def conditions(cell: Cell, v: Variances, target: float = 1.0) -> list[Condition]:
    """Every printed condition of the equation that covers the cell, then the unprinted ones."""
    return [*printed_conditions(cell, v), *unprinted_conditions(cell, v, target)]


def printed_conditions(cell: Cell, v: Variances) -> list[Condition]:
    """The printed lines of (1), (2), (3) or (4), whichever covers the cell."""
    v.check(cell)
    return {"(1)": equation_1, "(2)": equation_2, "(3)": equation_3, "(4)": equation_4}[printed_equation(cell)](cell, v)


def _all(cell: Cell, v: Variances) -> tuple[float, float, float, float]:
    a_f, a_i, a_o, a_c = (preactivation_variance(cell, v, gate) for gate in GATES)
    return a_f, a_i, a_o, a_c


def equation_1(cell: Cell, v: Variances) -> list[Condition]:
    """(1), standard LSTM, gates without an offset: 0 < A_f < 1 and 1 - A_f = A_i A_o A_c."""
    a_f, a_i, a_o, a_c = _all(cell, v)
    return [
        _inequality("0 < A_f < 1", "(1)", min(a_f, 1 - a_f), True),
        _equality("1 - A_f = A_i A_o A_c", "(1)", 1 - a_f, a_i * a_o * a_c, True, TOLERANCE),
    ]


def equation_2(cell: Cell, v: Variances) -> list[Condition]:
    """(2), peephole LSTM, gates without an offset."""
    a_f, a_i, a_o, a_c = _all(cell, v)
    bounded = v.v("i") * a_c + a_f
    left, right = _common_root(v, a_i * a_c, a_o, 4.0)
    return [
        _inequality("0 < v_i A_c + A_f < 1", "(2)", min(bounded, 1 - bounded), True),
        _equality("common root", "(2)", left, right, True, TOLERANCE),
    ]


def equation_3(cell: Cell, v: Variances) -> list[Condition]:
    """(3), standard LSTM, sigmoid gates: 0 < A_f < 12 and (12 - A_f) / (A_i + 4) = A_o A_c / 16."""
    a_f, a_i, a_o, a_c = _all(cell, v)
    return [
        _inequality("0 < A_f < 12", "(3)", min(a_f, 12 - a_f), True),
        _equality(
            "(12 - A_f) / (A_i + 4) = A_o A_c / 16",
            "(3)",
            (12 - a_f) / (a_i + 4),
            a_o * a_c / 16,
            True,
            TOLERANCE,
        ),
    ]


def equation_4(cell: Cell, v: Variances) -> list[Condition]:
    """(4), peephole LSTM, sigmoid gates."""
    a_f, a_i, a_o, a_c = _all(cell, v)
    bounded = v.v("i") * a_c + a_f
    left, right = _common_root(v, a_c * (a_i + 4), a_o, 64.0)
    return [
        _inequality("0 < v_i A_c + A_f < 12", "(4)", min(bounded, 12 - bounded), True),
        _equality("common root", "(4)", left, right, True, TOLERANCE),
    ]


def _common_root(v: Variances, beta_02: float, a_o: float, factor: float) -> tuple[float, float]:
    """Both sides of the second line of (2) and (4): the roots of the two quadratics, times 2 v_o."""
    v_f, v_o = v.v("f"), v.v("o")
    if not (v_f > 0 and v_o > 0):
        return math.nan, math.nan  # without either the equation it belongs to is no longer quadratic
    # sqrt(A_o^2 + factor v_o) - A_o, in the form that loses no digits to the difference.
    right = factor * v_o / (math.sqrt(a_o**2 + factor * v_o) + a_o)
    return v_o * math.sqrt(4 * beta_02 / v_f), right


def discriminant_2(cell: Cell, v: Variances) -> float:
    """Delta_2 = beta_12^2 - 4 beta_22 beta_02 as the paper scales it; (2) and (4) were obtained by setting it to 0.

    In the notation above, the missing third line of (4) is 12 - A_f - v_i A_c = 2 sqrt(v_f A_c (A_i + 4)).
    """
    a_f, a_i, _, a_c = _all(cell, v)
    room, offset = (12.0, 4.0) if printed_equation(cell) == "(4)" else (1.0, 0.0)
    return (v.v("i") * a_c + a_f - room) ** 2 - 4 * v.v("f") * a_c * (a_i + offset)


def unprinted_conditions(cell: Cell, v: Variances, target: float = 1.0) -> list[Condition]:
    """What the printed conditions leave out; of the linear level only where the cell can be linearised."""
    v.check(cell)
    check_target(target)
    found = [_equality("zero biases", "summary", 0.0 if cell.biases_are_zero else 1.0, 0.0, False, 0.0)]
    if cell.peepholes and _is_covered(cell):
        found.append(_equality("Delta_2 = 0", printed_equation(cell), discriminant_2(cell, v), 0.0, False, TOLERANCE))
    try:
        return [*found, *_linear_conditions(LinearMap(cell, v), target)]
    except LevelError:
        return found


def _linear_conditions(linear: LinearMap, target: float) -> list[Condition]:
    hidden = linear.held(target)
    point = linear.fixed_point(hidden)
    radius = linear.feedback_radius(point.var_c + linear.mean_c**2, hidden) if point.exists else math.inf
    exists = min(point.discriminant, -point.linear_term)
    return [
        Condition("root exists", "linear", False, point.exists, margin=exists),
        _inequality("root stable, held", "linear", 1 - point.slope, False),
        _equality("Var(h) = target without E[o]^2", "product rule", point.var_h_printed, target, False, 1e-9),
        _equality("Var(h) = target with E[o]^2", "linear", point.var_h, target, False, 1e-9),
        _inequality("root stable, fed back", "feedback", 1 - radius, False),
        _equality("settles at target, fed back", "feedback", linear.settle()[1], target, False, 1e-6),
    ]


def _is_covered(cell: Cell) -> bool:
    try:
        printed_equation(cell)
    except LevelError:
        return False
    return True
