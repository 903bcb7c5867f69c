"""What an LSTM's weight variances do to its signal: the paper's conditions, and three ways to check them.

Levels, from cheap to true: `printed` (the paper's equations as they stand), `linear` (its linearised moments
iterated to where they settle), `wide` (the nonlinear cell in the limit of many units), and `simulate` (real
random networks). NumPy and SciPy only.
"""

from peephole.theory.activations import Activation
from peephole.theory.cell import Cell, Variances, preactivation_variance, variance_names
from peephole.theory.conditions import (
    Condition,
    conditions,
    discriminant_2,
    equation_1,
    equation_2,
    equation_3,
    equation_4,
    printed_conditions,
    printed_equation,
    unprinted_conditions,
)
from peephole.theory.errors import ExplosionError, LevelError, TheoryError
from peephole.theory.flow import QUANTILES, Flow
from peephole.theory.incomplete import column_factors, kappa, visit_shares
from peephole.theory.inputs import autocorrelation
from peephole.theory.linear import FixedPoint, LinearMap
from peephole.theory.moments import Moments, moments
from peephole.theory.presets import PRESETS, corrected_cell_input, preset
from peephole.theory.propagate import propagate
from peephole.theory.simulate import simulate
from peephole.theory.solution import Result, Solution, UnreachableError
from peephole.theory.solve import solve

__all__ = [
    "PRESETS",
    "QUANTILES",
    "Activation",
    "Cell",
    "Condition",
    "ExplosionError",
    "FixedPoint",
    "Flow",
    "LevelError",
    "LinearMap",
    "Moments",
    "Result",
    "Solution",
    "TheoryError",
    "UnreachableError",
    "Variances",
    "autocorrelation",
    "column_factors",
    "conditions",
    "corrected_cell_input",
    "discriminant_2",
    "equation_1",
    "equation_2",
    "equation_3",
    "equation_4",
    "kappa",
    "moments",
    "preactivation_variance",
    "preset",
    "printed_conditions",
    "printed_equation",
    "propagate",
    "simulate",
    "solve",
    "unprinted_conditions",
    "variance_names",
    "visit_shares",
]
