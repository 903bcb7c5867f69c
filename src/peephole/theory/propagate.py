"""Predictions step by step: the linearised map, and the cell in the limit of many units."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from peephole.theory.activations import Array, resolve
from peephole.theory.cell import GATES, PEEPHOLES, Cell, Variances
from peephole.theory.errors import ExplosionError, TheoryError, check_count, check_target, nearest
from peephole.theory.flow import QUANTILES, Flow
from peephole.theory.incomplete import draw_gaps, kappa
from peephole.theory.inputs import Correlation, input_correlation
from peephole.theory.linear import LinearMap

Level = Literal["linear", "wide"]
MOST_NUMBERS = 4e6  # of networks times steps squared, which bounds the memory that their factors take


def propagate(
    cell: Cell,
    v: Variances,
    *,
    steps: int = 60,
    level: Level = "wide",
    feedback: bool = False,
    held: float = 1.0,
    input_autocorrelation: Correlation = None,
    finite: bool = False,
    samples: int = 20_000,
    seed: int = 0,
) -> Flow:
    """Predict the variances of h and c from c = h = 0 on.

    `linear` iterates the paper's linearised moments, with Var(h(t-1)) held at `held` or, with `feedback`,
    its own; it takes steps as independent, so an autocorrelation does not enter. `wide` samples units of an
    infinitely wide cell; `input_autocorrelation` is None for white inputs, a number rho for rho^lag, a list
    by lag starting with 1, or a matrix E[x_s x_t] / Var(x) such as `autocorrelation` measures on a batch.
    """
    v.check(cell)
    for name, value, least in (("steps", steps, 1), ("samples", samples, 2), ("seed", seed, 0)):
        check_count(name, value, least)
    check_target(held)
    correlation = input_correlation(input_autocorrelation, steps)
    if level == "linear":
        return _linear(cell, v, steps, feedback, held)
    if level != "wide":
        raise TheoryError(f"unknown level {level!r}{nearest(level, ('linear', 'wide'))}")
    if feedback:
        raise TheoryError("feedback=True concerns level 'linear' alone: at level 'wide' h is always fed back")
    return _Wide(cell, v, correlation, samples, finite, seed).run()


def _linear(cell: Cell, v: Variances, steps: int, feedback: bool, held: float) -> Flow:
    linear = LinearMap(cell, v)
    square_c = mean_c = square_h = 0.0
    squares_c, means_c, squares_h, hidden = (np.zeros(steps) for _ in range(4))
    before = np.zeros(steps)
    for t in range(steps):
        hidden[t], before[t] = (square_h if feedback else linear.held(held)), square_c
        square_c, mean_c = linear.next_square(square_c, mean_c, hidden[t]), linear.next_mean(mean_c)
        square_h = linear.output_square(square_c, mean_c, hidden[t])
        squares_c[t], means_c[t], squares_h[t] = square_c, mean_c, square_h
    seen_by = {"f": before, "i": before, "o": squares_c, "c": np.zeros(steps)}
    variances = {
        k: np.array([gate.square(h, c) - gate.mean**2 for h, c in zip(hidden, seen_by[k], strict=True)])
        for k, gate in linear.gates.items()
    }
    unknown, exact = np.full((steps, len(QUANTILES)), np.nan), np.zeros(steps)
    mean_h = np.array([linear.mean_h(mean) for mean in means_c])
    return Flow(
        "linear", squares_h - mean_h**2, squares_c - means_c**2, mean_h, means_c, unknown, unknown,
        {k: np.full(steps, gate.mean) for k, gate in linear.gates.items()}, variances,
        exact, exact, unknown[:, 0], unknown[:, 0],
    )  # fmt: skip


class _Wide:
    """Units sampled through the covariance of their pre-activations.

    Seen over time, the pre-activation of gate k of one unit is a Gaussian process with covariance
    K_k(s, t) = N kappa w_k E[x_s x_t] + M u_k E[h_{s-1} h_{t-1}], independent between gates. h(t-1) is known
    before step t, so one pass suffices: extend each gate's Cholesky factor by a row, draw, apply the cell.

    In the limit of many units the expectations are those over all samples: one network as wide as the sample.
    With `finite`, they are the means over the N inputs and M units of each of many networks, and then no
    limit is taken at all: given its past, a row of W x + U h of a real network has exactly this law.
    """

    def __init__(self, cell: Cell, v: Variances, correlation: Array, samples: int, finite: bool, seed: int) -> None:
        # Two streams, each drawn by step: a longer prediction begins with the same numbers.
        rng, of_inputs = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
        self.cell, self.steps = cell, len(correlation)
        most = max(2, int(MOST_NUMBERS // self.steps**2))
        self.networks, width = (min(math.ceil(samples / cell.units), most), cell.units) if finite else (1, samples)
        if finite:
            self.networks = max(self.networks, 2)
        self.shape = (self.networks, width)
        inputs = self._input_covariance(correlation, finite, of_inputs)
        self.input_part = np.stack([v.w(k) * cell.inputs * inputs for k in GATES], axis=1)
        self.recurrent = np.array([cell.units * v.u(k) for k in GATES])
        self.peephole = {k: math.sqrt(v.v(k)) * rng.standard_normal(self.shape) for k in PEEPHOLES}
        self.bias = {k: np.resize(np.asarray(cell.bias(k), dtype=float), width) for k in GATES}
        self.noise = rng.standard_normal((self.steps, len(GATES), *self.shape))
        self.factor = np.zeros((self.networks, len(GATES), self.steps, self.steps))
        self.inverse = np.zeros_like(self.factor)
        # Row t holds h(t-1), so that covariances and history carry the same index.
        self.h = np.zeros((self.steps + 1, *self.shape))
        self.h_covariance = np.zeros((self.networks, self.steps + 1, self.steps + 1))

    def _input_covariance(self, correlation: Array, finite: bool, rng: np.random.Generator) -> Array:
        """E[x_s x_t] of what reaches W, gaps and all, for each network: the expectation, or the mean over N inputs."""
        cell = self.cell
        if not finite:
            passed = np.full(correlation.shape, kappa(cell.observed, cell.inputs, cell.fill_exponent, lag=True))
            np.fill_diagonal(passed, cell.kappa)
            return np.asarray(cell.input_variance * passed * correlation)[None]
        shape = (self.steps, self.networks, cell.inputs)
        x = np.einsum("ts,srn->trn", _semidefinite_root(cell.input_variance * correlation), rng.standard_normal(shape))
        if cell.observed != 1.0:
            x *= draw_gaps(cell.observed, shape, cell.fill_exponent, rng)
        return np.asarray(np.einsum("srn,trn->rst", x, x) / cell.inputs)

    def _preactivations(self, t: int) -> dict[str, Array]:
        """Bias plus the Gaussian process of each gate at step t, given its past."""
        row = self.input_part[:, :, t, : t + 1]
        row = row + self.recurrent[:, None] * self.h_covariance[:, None, t, : t + 1]
        past = np.einsum("rkst,rkt->rks", self.inverse[:, :, :t, :t], row[:, :, :t])
        rest = row[:, :, t] - np.sum(past**2, axis=2)
        # A process that its past determines (a constant input; more steps than inputs and units) gets no new
        # direction: its pivot is dropped, where a tiny one would only amplify rounding.
        new = rest > 1e-9 * row[:, :, t]
        fresh = np.sqrt(np.where(new, rest, 0.0))
        per_fresh = np.divide(1.0, fresh, out=np.zeros_like(fresh), where=new)
        self.factor[:, :, t, :t], self.factor[:, :, t, t] = past, fresh
        self.inverse[:, :, t, :t] = -per_fresh[..., None] * np.einsum("rks,rkst->rkt", past, self.inverse[:, :, :t, :t])
        self.inverse[:, :, t, t] = per_fresh
        # einsum, not BLAS: its sums do not depend on the number of threads.
        process = np.einsum("rks,skrm->krm", self.factor[:, :, t, : t + 1], self.noise[: t + 1])
        return {k: a + self.bias[k] for k, a in zip(GATES, process, strict=True)}

    def run(self) -> Flow:
        act = {k: self.cell.activation(k) for k in GATES}
        output, c = resolve(self.cell.output), np.zeros(self.shape)
        record = _Record(self.steps)
        for t in range(self.steps):
            a = self._preactivations(t)
            with np.errstate(over="ignore", invalid="ignore"):  # an explosion is reported below
                f = act["f"](a["f"] + self.peephole["f"] * c)
                i = act["i"](a["i"] + self.peephole["i"] * c)
                z = act["c"](a["c"])
                c = f * c + i * z
                o = act["o"](a["o"] + self.peephole["o"] * c)
                h = np.asarray(o * output(c))
            # A fourth power enters the standard errors.
            if not max(np.max(np.abs(h)), np.max(np.abs(c))) < 1e70:
                raise ExplosionError(f"the signal overflows at step {t + 1}: these variances make the cell explode")
            self._remember(t + 1, h)
            record.add(t, h, c, {"f": f, "i": i, "o": o, "c": z})
        return record.flow("wide")

    def _remember(self, t: int, h: Array) -> None:
        self.h[t] = h
        self.h_covariance[:, t, : t + 1] = np.einsum("srm,rm->rs", self.h[: t + 1], h) / self.shape[1]
        self.h_covariance[:, : t + 1, t] = self.h_covariance[:, t, : t + 1]


class _Record:
    """Statistics of the sampled units, step by step."""

    def __init__(self, steps: int) -> None:
        self.arrays = {name: np.zeros(steps) for name in ("var_h", "var_c", "mean_h", "mean_c")}
        self.arrays |= {name: np.zeros(steps) for name in ("se_var_h", "se_var_c", "se_median_h", "se_median_c")}
        self.quantiles = {name: np.zeros((steps, len(QUANTILES))) for name in "hc"}
        self.gate_mean = {k: np.zeros(steps) for k in GATES}
        self.gate_var = {k: np.zeros(steps) for k in GATES}

    def add(self, t: int, h: Array, c: Array, gates: dict[str, Array]) -> None:
        for name, value in (("h", h), ("c", c)):
            square = value**2
            self.arrays[f"var_{name}"][t], self.arrays[f"mean_{name}"][t] = value.var(), value.mean()
            self.quantiles[name][t] = np.quantile(square, QUANTILES)
            self.arrays[f"se_var_{name}"][t] = _standard_error(square if len(square) == 1 else square.mean(axis=1))
            # Half the distance between the quantiles one standard error of rank to either side.
            low, high = np.quantile(square, 0.5 + np.array([-0.5, 0.5]) / math.sqrt(square.size))
            self.arrays[f"se_median_{name}"][t] = (high - low) / 2
        for k, value in gates.items():
            self.gate_mean[k][t], self.gate_var[k][t] = value.mean(), value.var()

    def flow(self, level: str) -> Flow:
        return Flow(
            level, quantiles_h=self.quantiles["h"], quantiles_c=self.quantiles["c"],
            gate_mean=self.gate_mean, gate_var=self.gate_var, **self.arrays,
        )  # fmt: skip


def _semidefinite_root(covariance: Array) -> Array:
    """A triangular matrix whose product with its own transpose is the covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    upper = np.linalg.qr((vectors * np.sqrt(np.maximum(values, 0.0))).T).R
    return np.asarray(np.where(np.diag(upper) < 0, -1.0, 1.0) * upper.T)


def _standard_error(values: Array) -> float:
    return float(values.std(ddof=1) / math.sqrt(values.size))
