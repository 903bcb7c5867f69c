"""Variances that have a name: the paper's Table 1, its two baselines, Table 1 corrected, and what others do."""

from __future__ import annotations

import math
from dataclasses import replace

from peephole.theory.cell import PEEPHOLES, Cell, Variances, preactivation_variance, variance_names
from peephole.theory.conditions import printed_equation
from peephole.theory.errors import TheoryError, nearest
from peephole.theory.linear import LinearMap

# Table 1, as N w_k and M u_k; v_k stands as it is. Order: v_f v_i v_o, then (w, u) of f, i, o and c.
TABLE_1 = {
    1: ((1, 1, 1), (1, 1), (2, 2), (3, 3), (1 / 4, 1 / 4)),
    2: ((1 / 2, 1 / 2, 1 / 2), (1, 1), (2, 2), (1, 1), (1 / 2, 1 / 2)),
    3: ((1, 1, 1), (3 / 4, 1 / 4), (3, 1), (4, 2), (1 / 4, 1 / 4)),
    4: ((1, 1, 1), (1 / 4, 3 / 4), (1, 3), (2, 4), (1 / 4, 1 / 4)),
}
CONFIGURATIONS = tuple(TABLE_1)
PRESETS = (
    *(f"proposed-{k}" for k in CONFIGURATIONS),
    *(f"corrected-{k}" for k in CONFIGURATIONS),
    "normalized",
    "orthogonal",
    "torch-default",
    "keras-default",
    "forget-one",
    "chrono",
    "identity",
)
"""The names that `preset` takes; `init.METHODS` tells how each is drawn."""


def preset(name: str, cell: Cell) -> Variances:
    """The variances of that name for a cell of any N and M (w over N, u over M).

    `proposed-k` is Table 1. Without peepholes the equation changes to (3) (or (1), for gates without an
    offset), which Table 1 does not satisfy: there Var(w_c) and Var(u_c) are solved anew, in Table 1's ratio.
    `corrected-k` is `proposed-k` with w_c and u_c scaled so that the linearised map settles at Var(h) = 1.
    Both take the inputs as they are: w is over N kappa Var(x), so that the conditions hold for them.
    `normalized` and `orthogonal` are the paper's baselines; they differ in how U is drawn, not in variance.
    The rest is what frameworks and other papers do, biases aside (`init.METHODS`): `torch-default` has 1/(3M)
    everywhere; the others Glorot's w = 2/(N + M), u = 1/M and no peepholes to start with.
    """
    if name not in PRESETS:
        raise TheoryError(f"unknown preset {name!r}{nearest(name, PRESETS)}")
    if name in ("normalized", "orthogonal"):
        return _alike(cell, 1 / cell.inputs, 1 / cell.units, 1 / cell.units)
    if name == "torch-default":
        return _alike(cell, *[1 / (3 * cell.units)] * 3)
    if name in ("keras-default", "forget-one", "chrono", "identity"):
        return _alike(cell, 2 / (cell.inputs + cell.units), 1 / cell.units, 0.0)
    family, k = name.rsplit("-", 1)
    table = _table_1(cell, int(k))
    if family == "corrected":
        return _with_cell_input(cell, table, corrected_cell_input(cell, table), name)
    return table if cell.peepholes else _with_cell_input(cell, table, _printed_cell_input(cell, table), name)


def _alike(cell: Cell, w: float, u: float, v: float) -> Variances:
    """The same variances in every gate."""
    sizes = {"w": w, "u": u, "v": v}
    return Variances.build(cell, {name: sizes[name[0]] for name in variance_names(cell)})


def _table_1(cell: Cell, configuration: int) -> Variances:
    peepholes, *gates = TABLE_1[configuration]
    entering = cell.inputs * cell.kappa * cell.input_variance
    values: dict[str, float | None] = {}
    for gate, (w, u) in zip(("f", "i", "o", "c"), gates, strict=True):
        values[f"w_{gate}"], values[f"u_{gate}"] = w / entering, u / cell.units
    for gate, v in zip(PEEPHOLES, peepholes, strict=True):
        values[f"v_{gate}"] = v if cell.peepholes else None
    return Variances.build(cell, values)


def corrected_cell_input(cell: Cell, v: Variances, target: float = 1.0) -> float:
    """The A_c at which the linearised map settles at Var(h) = target, everything else as it is.

    Var(c) = C is the positive root of E[o^2] at C, times sigma_h'^2 C = target (for the sigmoid, the target 1 and
    sigma_h the identity: v_o C^2 + (A_o + 4) C - 16 = 0). Then C = E[f^2] C + E[i^2] A_c gives A_c.
    NaN where the cell input has an offset, or where the forget gate alone makes Var(c) grow.
    """
    linear = LinearMap(cell, v)
    f, i, o, z = (linear.gates[gate] for gate in ("f", "i", "o", "c"))
    if z.mean or linear.output_value or not linear.output_slope2 or not z.slope2:
        return math.nan
    quadratic, slope = o.slope2 * o.peephole, o.square(target)
    wanted = target / linear.output_slope2
    root = 2 * wanted / (slope + math.sqrt(slope**2 + 4 * quadratic * wanted))
    entering = root * (1 - f.square(target, root)) / i.square(target, root)
    stable = f.square(target, root) + f.slope2 * f.peephole * root + i.slope2 * i.peephole * entering < 1
    return entering / z.slope2 if entering > 0 and stable else math.nan


def _printed_cell_input(cell: Cell, v: Variances) -> float:
    """The A_c that satisfies (3), or (1), everything else as it is."""
    a_f, a_i, a_o = (preactivation_variance(cell, v, gate) for gate in PEEPHOLES)
    if printed_equation(cell) == "(3)":
        return 16 * (12 - a_f) / ((a_i + 4) * a_o)
    return (1 - a_f) / (a_i * a_o)


def _with_cell_input(cell: Cell, v: Variances, entering: float, name: str) -> Variances:
    if not (math.isfinite(entering) and entering > 0):
        raise TheoryError(
            f"{name} does not exist for this cell: no positive Var(w_c), Var(u_c) serves it with the other "
            "variances of Table 1; `solve` finds variances for any cell, or says why not"
        )
    scale = entering / preactivation_variance(cell, v, "c")
    return replace(v, w_c=v.w_c * scale, u_c=v.u_c * scale)
