"""From wishes to variances: some fixed, the ratios between the others kept, one scale found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq

from peephole.theory.activations import Array, resolve
from peephole.theory.cell import Cell, Variances, variance_names
from peephole.theory.conditions import printed_conditions, unprinted_conditions
from peephole.theory.errors import ExplosionError, LevelError, TheoryError, check_count, check_target, nearest
from peephole.theory.linear import LinearMap
from peephole.theory.presets import preset
from peephole.theory.propagate import propagate
from peephole.theory.solution import Result, Solution, UnreachableError

LEVELS = ("printed", "linear", "wide")
# Factors on the free variances that are searched at each level, and at how many points before polishing.
SEARCHED = {"printed": (1e-4, 1e4), "linear": (1e-4, 1e4), "wide": (1e-3, 1e3)}
POINTS = {"printed": 81, "linear": 49, "wide": 25}
# At level 'wide': a signal that changes by a twentieth when the path is made twice as long, beyond three
# standard errors of the sampling, has not settled, and a target met on the way is only passed through.
SETTLED = 0.05
BEYOND = 1e12
WIDE_SAMPLES = 4_000


def solve(
    cell: Cell,
    fixed: Mapping[str, float] | None = None,
    *,
    ratios: str | Variances | Mapping[str, float] = "normalized",
    target: float = 1.0,
    level: str = "linear",
    feedback: bool = False,
    steps: int = 60,
    seed: int = 0,
    throw: bool = True,
) -> Solution:
    """Find variances with which the cell meets `target` for Var(h).

    `fixed` variances stay as they are. All others start from `ratios` (a preset's name, Variances, or a
    mapping that covers them) and are scaled by one common factor, so that their ratios are kept.

    `printed` solves the paper's equality subject to its inequality; it knows the target 1 only.
    `linear` puts the stable root of the linearised map at the target, or with `feedback` the point at which
    the map settles from zero when its own Var(h) is fed back. `wide` puts Var(h) of the true cell in the
    limit of many units at the target after `steps` steps, and then looks whether it stays there.

    A target that cannot be met raises `UnreachableError`, which carries the nearest Solution; with
    `throw=False` that Solution is returned, its `result` and `message` saying so.
    """
    check_target(target)
    check_count("steps", steps, 1)
    check_count("seed", seed, 0)
    if level not in LEVELS:
        raise TheoryError(f"unknown level {level!r}{nearest(level, LEVELS)}")
    if feedback and level != "linear":
        raise TheoryError(f"feedback=True concerns level 'linear' alone, not {level!r}")
    search = _Search(cell, *_start(cell, fixed or {}, ratios), target, level)
    solution = {
        "printed": lambda: _solve_printed(search),
        "linear": lambda: _solve_linear(search, feedback),
        "wide": lambda: _solve_wide(search, steps, seed),
    }[level]()
    if throw and not solution.solved:
        raise UnreachableError(solution)
    return solution


def _start(
    cell: Cell, fixed: Mapping[str, float], ratios: str | Variances | Mapping[str, float]
) -> tuple[Variances, tuple[str, ...]]:
    """The variances at scale 1, and the names of the free ones."""
    names = variance_names(cell)
    shape = preset(ratios, cell) if isinstance(ratios, str) else ratios
    values = shape.as_dict() if isinstance(shape, Variances) else dict(shape)
    start = Variances.build(cell, {**values, **fixed})
    return start, tuple(name for name in names if name not in fixed)


@dataclass(frozen=True)
class _Search:
    """One factor on the free variances, looked for on a grid and then polished."""

    cell: Cell
    start: Variances
    free: tuple[str, ...]
    target: float
    level: str

    def at(self, scale: float) -> Variances:
        values = self.start.as_dict()
        return Variances.build(self.cell, values | {name: scale * values[name] for name in self.free})

    @property
    def searched(self) -> tuple[float, float]:
        return SEARCHED[self.level] if self.free else (1.0, 1.0)

    def grid(self) -> Array:
        return np.geomspace(*self.searched, POINTS[self.level]) if self.free else np.ones(1)

    def roots(self, excess: Callable[[float], float], polish: float = 1e-12, tolerance: float = 1e-6) -> list[float]:
        """The scales at which the excess is zero, the one nearest to the given shape first.

        Var(h) rises steeply to the edge beyond which it does not exist; what lies beyond counts as far above, and
        an edge that is taken for a root on that account is dropped.
        """

        def signed(scale: float) -> float:
            value = excess(scale)
            return value if math.isfinite(value) else BEYOND

        scales = self.grid().tolist()  # the very numbers that `nearest` may ask for again
        values = np.array([signed(s) for s in scales])
        found = [s for s, value in zip(scales, values, strict=True) if value == 0]
        for k in np.flatnonzero(values[:-1] * values[1:] < 0):
            low, high = scales[k], scales[k + 1]
            while values[k + 1] == BEYOND and high - low > polish * low:  # an edge: find a root below it, or none
                middle = (low + high) / 2
                value = signed(middle)
                low, high = (middle, high) if value < 0 else (low, middle)
                if 0 <= value < BEYOND:
                    break
            if signed(high) < BEYOND:
                found.append(float(brentq(signed, low, high, xtol=polish * low, rtol=1e-15)))
        return [s for s in sorted(found, key=lambda s: abs(math.log(s))) if abs(signed(s)) < tolerance]

    def nearest(self, distance: Callable[[float], float]) -> float | None:
        """The scale of least distance: the best of the grid, then twice the best of nine around it."""
        scales = self.grid()
        for _ in range(3):
            distances = np.array([distance(float(s)) for s in scales])
            if not np.isfinite(distances).any():
                return None
            best = int(np.nanargmin(distances))
            chosen = float(scales[best])
            if not self.free:
                break
            scales = np.geomspace(scales[max(best - 1, 0)], scales[min(best + 1, len(scales) - 1)], 9)
        return chosen

    def answer(self, scale: float, reached: float, result: Result, message: str) -> Solution:
        v = self.at(scale)
        found = printed_conditions(self.cell, v) if self.level == "printed" else []
        found = [*found, *unprinted_conditions(self.cell, v, self.target)]
        return Solution(
            v, found, result, message, self.level, self.target, reached, self.free, scale, self.searched
        )  # fmt: skip

    def out_of_reach(self, reached: Callable[[float], float], why: str = "") -> Solution:
        """The nearest that can be reached, and the range over which it was looked for."""
        nearest_scale = self.nearest(lambda s: _log_distance(reached(s), self.target))
        if nearest_scale is None:
            message = f"no stable Var(h) exists {self.where()}{why}"
            return self.answer(1.0, math.nan, Result.OUT_OF_REACH, message)
        value = reached(nearest_scale)
        message = f"Var(h) = {self.target:g} is out of reach {self.where()}: the nearest is {value:.4g}{why}"
        return self.answer(nearest_scale, value, Result.OUT_OF_REACH, message)

    def where(self) -> str:
        """The range of variances that was searched, in words."""
        if not self.free:
            return "with every variance fixed"
        low, high = self.searched
        names = ", ".join(self.free) if len(self.free) <= 4 else f"all {len(self.free)} free variances"
        return f"over factors {low:g} to {high:g} on {names}"


def _log_distance(reached: float, target: float) -> float:
    return abs(math.log(reached / target)) if math.isfinite(reached) and reached > 0 else math.inf


def _solve_printed(search: _Search) -> Solution:
    if search.target != 1.0:
        raise TheoryError("the printed conditions are for Var(h) = Var(x) = 1; level 'linear' serves other targets")
    if not search.cell.biases_are_zero:
        raise TheoryError("the printed conditions are for zero biases; level 'linear' serves others")

    def residual(scale: float) -> float:
        return printed_conditions(search.cell, search.at(scale))[1].value

    equation = printed_conditions(search.cell, search.start)[0].equation
    roots = search.roots(residual)
    for root in roots:
        if all(condition.holds for condition in printed_conditions(search.cell, search.at(root))):
            reached = _reached_linear(search, root, feedback=False)
            message = (
                f"equation {equation} holds at {root:.4g} times the given shape; "
                f"the linearised map then settles at Var(h) = {reached:.4g}"
            )
            return search.answer(root, reached, Result.SOLVED, message)
    if roots:
        bound = printed_conditions(search.cell, search.at(roots[0]))[0]
        message = (
            f"the equality of {equation} holds at {roots[0]:.4g} times the given shape, "
            f"but its bound {bound.name} fails there, by {-bound.value:.3g}"
        )
        reached = _reached_linear(search, roots[0], feedback=False)
        return search.answer(roots[0], reached, Result.OUT_OF_REACH, message)
    scale = search.nearest(lambda s: abs(residual(s))) or 1.0
    message = (
        f"no solution of {equation} within its bound {search.where()}: the least residual is {residual(scale):.3g}"
    )
    return search.answer(scale, _reached_linear(search, scale, feedback=False), Result.OUT_OF_REACH, message)


def _reached_linear(search: _Search, scale: float, feedback: bool) -> float:
    """Var(h) of the linearised map: at its stable root, or where it settles with feedback; NaN if nowhere."""
    try:
        linear = LinearMap(search.cell, search.at(scale))
    except LevelError:
        if search.level == "linear":
            raise
        return math.nan
    if not feedback:
        return linear.fixed_point(linear.held(search.target)).var_h
    settled = linear.settle()[1]
    return settled if math.isfinite(settled) else math.nan


def _solve_linear(search: _Search, feedback: bool) -> Solution:
    @cache
    def reached(scale: float) -> float:
        return _reached_linear(search, scale, feedback)

    roots = search.roots(lambda s: reached(s) - search.target, tolerance=1e-6 * search.target)
    if not roots:
        return search.out_of_reach(reached)
    how = "settles, its own Var(h) fed back," if feedback else "has its stable root"
    message = f"the linearised map {how} at Var(h) = {reached(roots[0]):.6g}, at {roots[0]:.4g} times the given shape"
    return search.answer(roots[0], reached(roots[0]), Result.SOLVED, message)


def _solve_wide(search: _Search, steps: int, seed: int) -> Solution:
    """Every scale is tried on the same draws (common random numbers), so that Var(h) is smooth in it."""

    @cache
    def path(scale: float, length: int = steps) -> tuple[float, float, float]:
        """Var(h) half way and at the end, and the end's relative standard error; infinite where the cell explodes."""
        try:
            flow = propagate(search.cell, search.at(scale), steps=length, samples=WIDE_SAMPLES, seed=seed)
        except ExplosionError:
            return math.inf, math.inf, 0.0
        end = float(flow.var_h[-1])
        return float(flow.var_h[(length - 1) // 2]), end, float(flow.se_var_h[-1]) / end if end > 0 else 0.0

    def near(value: float, reference: float, error: float) -> bool:
        return _log_distance(value, reference) < SETTLED + 3 * error

    def staying(scale: float) -> float:
        """Var(h) after twice the steps if it has settled by then, else NaN."""
        half, end, error = path(scale)
        if not near(end, half, error):
            return math.nan  # still moving: not worth the longer path
        _, later, error = path(scale, 2 * steps)
        return later if near(later, end, error) else math.nan

    roots = search.roots(lambda s: path(s)[1] - search.target, polish=1e-4, tolerance=SETTLED * search.target)
    for root in roots:
        _, later, error = path(root, 2 * steps)
        if near(later, search.target, error):
            message = f"Var(h) = {search.target:g} is reached in the limit of many units, and held to step {2 * steps}"
            return search.answer(root, path(root)[1], Result.SOLVED, message)
    if not roots:
        return search.out_of_reach(lambda s: path(s)[1], _bound(search))
    passed = (
        f"Var(h) = {search.target:g} is only passed through {search.where()}: met at step {steps} at {roots[0]:.4g} "
        f"times the given shape, it is {path(roots[0], 2 * steps)[1]:.4g} at step {2 * steps}"
    )
    scale = search.nearest(lambda s: _log_distance(staying(s), search.target))
    if scale is None:
        message = f"{passed}; nothing stays{_bound(search)}"
        return search.answer(roots[0], path(roots[0])[1], Result.PASSED_THROUGH, message)
    message = f"{passed}; the nearest that stays is {staying(scale):.4g}{_bound(search)}"
    return search.answer(scale, staying(scale), Result.PASSED_THROUGH, message)


def _bound(search: _Search) -> str:
    """Point 5 of what the paper leaves out: a bound whatever the variances, where there is one."""
    cell = search.cell
    covered = not cell.peepholes and cell.biases_are_zero and resolve(cell.gate).name == "sigmoid"
    if covered and resolve(cell.cell_input).name in ("tanh", "erf", "hard_sigmoid") and search.target > 0.5:
        return "; sigmoid gates with zero biases bound Var(h) by 1/2 while pre-activations are white in time"
    return ""
