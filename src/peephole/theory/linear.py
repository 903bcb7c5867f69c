"""The paper's linearised moment map: every activation replaced by its Taylor expansion at the bias.

Under the paper's independence assumptions the second moment of the cell state follows
E[c'^2] = E[f^2] E[c^2] + E[i^2] E[z^2] + 2 E[f] E[i] E[z] E[c], and E[h^2] = E[o^2] E[sigma_h(c)^2].
Three things go beyond the paper: E[o]^2 is kept, as its own product rule demands; the fixed point is
the one that the map reaches, whether or not Delta_2 = 0; N, M, kappa and the biases are free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from peephole.theory.activations import linearise, resolve
from peephole.theory.cell import GATES, Cell, Variances, preactivation_variance
from peephole.theory.errors import LevelError

NEWTON_STEPS = 100


@dataclass(frozen=True)
class Gate:
    """A linearised gate: mean + slope a, where a has variance fixed + recurrent E[h^2] + peephole E[c^2]."""

    mean: float
    slope2: float
    fixed: float
    recurrent: float
    peephole: float

    def square(self, hidden: float, cell: float = 0.0) -> float:
        """E[g^2]."""
        return self.mean**2 + self.slope2 * (self.fixed + self.recurrent * hidden + self.peephole * cell)


@dataclass(frozen=True)
class FixedPoint:
    """Where the cell state settles while E[h(t-1)^2] is held; NaN where it settles nowhere.

    `discriminant` and `linear_term` are those of slope of the quadratic a q^2 + b q + c = 0 whose smaller
    root is Var(c) (the paper's Delta_2 and beta_12, divided by 16^2 and 16 for the sigmoid).
    `var_h_printed` drops E[o]^2, as the paper does.
    """

    var_c: float
    var_h: float
    var_h_printed: float
    discriminant: float
    linear_term: float

    @property
    def exists(self) -> bool:
        """Whether the map has a positive fixed point at all."""
        return math.isfinite(self.var_c)

    @property
    def slope(self) -> float:
        """The slope of the map at its smaller root: below 1 the root is stable."""
        return 1 - math.sqrt(self.discriminant) if self.discriminant >= 0 and self.linear_term < 0 else math.inf


class LinearMap:
    """The map of one cell and its variances."""

    def __init__(self, cell: Cell, v: Variances) -> None:
        self.gates = {gate: _linear_gate(cell, v, gate) for gate in GATES}
        f, i, z = self.gates["f"], self.gates["i"], self.gates["c"]
        if z.mean and f.mean >= 1:
            raise LevelError(f"E[f] = {f.mean:g} makes E[c] grow without end; level 'wide' shows how, step by step")
        # E[c] settles on its own: E[c'] = E[f] E[c] + E[i] E[z].
        self.mean_c = i.mean * z.mean / (1 - f.mean) if z.mean else 0.0
        value, slope = linearise(resolve(cell.output), self.mean_c)
        self.output_value, self.output_slope = value, slope
        self.output_slope2 = slope**2

    def held(self, var_h: float) -> float:
        """The E[h^2] that goes with a Var(h) where E[c] has settled."""
        return var_h + self.mean_h(self.mean_c) ** 2

    def next_mean(self, mean_c: float) -> float:
        """E[c'] from E[c]."""
        return self.gates["f"].mean * mean_c + self.gates["i"].mean * self.gates["c"].mean

    def next_square(self, square_c: float, mean_c: float, hidden: float) -> float:
        """E[c'^2] from E[c^2], E[c] and E[h^2]."""
        f, i, z = self.gates["f"], self.gates["i"], self.gates["c"]
        kept = f.square(hidden, square_c) * square_c
        entered = i.square(hidden, square_c) * z.square(hidden)
        return kept + entered + 2 * f.mean * i.mean * z.mean * mean_c

    def output_square(self, square_c: float, mean_c: float, hidden: float) -> float:
        """E[h'^2] from the new E[c^2] and E[c] and the old E[h^2]."""
        return self.gates["o"].square(hidden, square_c) * self._activated(square_c, mean_c)

    def mean_h(self, mean_c: float) -> float:
        """E[h], sigma_h expanded at the mean to which the cell settles."""
        return self.gates["o"].mean * (self.output_value + self.output_slope * (mean_c - self.mean_c))

    def _activated(self, square_c: float, mean_c: float) -> float:
        """E[sigma_h(c)^2]."""
        value = self.output_value + self.output_slope * (mean_c - self.mean_c)
        return value**2 + self.output_slope2 * max(square_c - mean_c**2, 0.0)

    def fixed_point(self, hidden: float = 1.0) -> FixedPoint:
        """The stable root of the map with E[h(t-1)^2] held, in closed form."""
        a, b, c = self._quadratic(hidden)
        discriminant = b * b - 4 * a * c
        if not (b < 0 and discriminant >= 0):
            return FixedPoint(math.nan, math.nan, math.nan, discriminant, b)
        square_c = 2 * c / (-b + math.sqrt(discriminant))
        o = self.gates["o"]
        printed = (o.square(hidden, square_c) - o.mean**2) * self._activated(square_c, self.mean_c)
        var_h = self.output_square(square_c, self.mean_c, hidden) - self.mean_h(self.mean_c) ** 2
        return FixedPoint(square_c - self.mean_c**2, var_h, printed, discriminant, b)

    def _quadratic(self, hidden: float) -> tuple[float, float, float]:
        """Coefficients of E[c'^2] - E[c^2] in E[c^2]: the paper's beta_22, beta_12, beta_02, unscaled."""
        f, i, z = self.gates["f"], self.gates["i"], self.gates["c"]
        entering = z.square(hidden)
        a = f.slope2 * f.peephole
        b = f.square(hidden) + i.slope2 * i.peephole * entering - 1
        c = i.square(hidden) * entering + 2 * f.mean * i.mean * z.mean * self.mean_c
        return a, b, c

    def feedback_radius(self, square_c: float, hidden: float) -> float:
        """Spectral radius at (E[c^2], E[h^2]) of the map that feeds its own E[h^2] back: below 1 is stable."""
        (c_by_c, c_by_h), (h_by_c, h_by_h) = self._slopes(square_c, hidden)
        # h follows from the new c, hence the chain rule in the second row.
        jacobian = np.array([[c_by_c, c_by_h], [h_by_c * c_by_c, h_by_c * c_by_h + h_by_h]])
        return float(np.max(np.abs(np.linalg.eigvals(jacobian)))) if np.all(np.isfinite(jacobian)) else math.inf

    def _slopes(self, square_c: float, hidden: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Derivatives of the next E[c^2] and of E[h^2] by E[c^2] and E[h^2]."""
        f, i, o, z = self.gates["f"], self.gates["i"], self.gates["o"], self.gates["c"]
        c_by_c = f.square(hidden, square_c) + f.slope2 * f.peephole * square_c
        c_by_c += i.slope2 * i.peephole * z.square(hidden)
        c_by_h = f.slope2 * f.recurrent * square_c + i.slope2 * i.recurrent * z.square(hidden)
        c_by_h += i.square(hidden, square_c) * z.slope2 * z.recurrent
        activated = self._activated(square_c, self.mean_c)
        h_by_c = o.slope2 * o.peephole * activated + o.square(hidden, square_c) * self.output_slope2
        return (c_by_c, c_by_h), (h_by_c, o.slope2 * o.recurrent * activated)

    def settle(self) -> tuple[float, float]:
        """(Var(c), Var(h)) that the map reaches from zero with its own E[h^2] fed back; infinite if it settles nowhere.

        All coefficients being positive, the map is monotone and convex, and Newton's method from zero climbs to its
        least fixed point, which is where iterating it would lead. Where a step turns back there is none.
        """
        square_c, hidden = self.mean_c**2, self.mean_h(self.mean_c) ** 2
        for _ in range(NEWTON_STEPS):
            c_gap = self.next_square(square_c, self.mean_c, hidden) - square_c
            h_gap = self.output_square(square_c, self.mean_c, hidden) - hidden
            (c_by_c, c_by_h), (h_by_c, h_by_h) = self._slopes(square_c, hidden)
            determinant = (1 - c_by_c) * (1 - h_by_h) - c_by_h * h_by_c
            if not (c_by_c < 1 and h_by_h < 1 and determinant > 0):
                return math.inf, math.inf
            c_step = ((1 - h_by_h) * c_gap + c_by_h * h_gap) / determinant
            h_step = (h_by_c * c_gap + (1 - c_by_c) * h_gap) / determinant
            square_c, hidden = square_c + c_step, hidden + h_step
            if abs(c_step) <= 1e-15 * square_c and abs(h_step) <= 1e-15 * hidden:
                break
        return square_c - self.mean_c**2, hidden - self.mean_h(self.mean_c) ** 2


def _linear_gate(cell: Cell, v: Variances, gate: str) -> Gate:
    bias = cell.bias(gate)
    if not isinstance(bias, int | float):
        raise LevelError("level 'linear' takes one bias for all units of a gate; level 'wide' can serve a list")
    mean, slope = linearise(cell.activation(gate), bias)
    fixed = preactivation_variance(cell, v, gate, hidden=0.0)
    return Gate(mean, slope**2, fixed, cell.units * v.u(gate), v.v(gate))
