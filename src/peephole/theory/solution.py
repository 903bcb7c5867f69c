"""What a solver answers, and the error that carries an answer which is not the one wished for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peephole.theory.cell import Variances
from peephole.theory.conditions import Condition
from peephole.theory.errors import TheoryError


class Result(StrEnum):
    """How a solve ended."""

    SOLVED = "solved"
    OUT_OF_REACH = "out of reach"
    PASSED_THROUGH = "passed through"


@dataclass(frozen=True)
class Solution:
    """Variances, and how near they bring the cell to its target.

    `variances` reach the target if `result` is solved, else they are the nearest found; `reached` is the
    Var(h) they give at this level. `scale` is the factor on the free variances, searched within `searched`.
    """

    variances: Variances
    conditions: list[Condition]
    result: Result
    message: str
    level: str
    target: float
    reached: float
    free: tuple[str, ...]
    scale: float
    searched: tuple[float, float]

    @property
    def solved(self) -> bool:
        """Whether the target is met."""
        return self.result is Result.SOLVED


class UnreachableError(TheoryError):
    """Raised by `solve(throw=True)` where the target is not met; `solution` is the nearest found."""

    def __init__(self, solution: Solution) -> None:
        super().__init__(solution.message)
        self.solution = solution
