"""Real random networks in NumPy: the oracle. It shares no code with the predictions that it judges.

Only the question (`Cell`, `Variances`) and the shape of the answer (`Flow`) are common ground; the
activations, the cell, the gaps and the statistics stand here a second time on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf

from peephole.theory.cell import Cell, Variances
from peephole.theory.errors import TheoryError, check_count
from peephole.theory.flow import QUANTILES, Flow
from peephole.theory.inputs import Correlation, check_autocorrelation

FloatArray = NDArray[np.float64]
WEIGHTS_AT_ONCE = 4_000_000

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda a: 0.5 * (1.0 + np.tanh(0.5 * a)),
    "tanh": np.tanh,
    "identity": lambda a: a,
    "erf": erf,
    "relu": lambda a: np.where(a > 0.0, a, 0.0),
    "hard_sigmoid": lambda a: np.minimum(np.maximum(a / 6.0 + 0.5, 0.0), 1.0),
}


@np.errstate(over="ignore", invalid="ignore")  # a cell may explode: its statistics are then infinite
def simulate(
    cell: Cell,
    v: Variances,
    *,
    steps: int = 60,
    networks: int = 20,
    sequences: int = 20,
    x: ArrayLike | None = None,
    input_autocorrelation: Correlation = None,
    seed: int = 0,
) -> Flow:
    """Run `networks` random networks, each on `sequences` sequences, and measure the signal by step.

    Inputs are Gaussian, white or with the given autocorrelation, missing at random where the cell says so;
    or the user's own batch `x` (sequences, steps, inputs), NaN for missing, the same for every network.
    Standard errors are those between networks, so at least two are needed.
    """
    v.check(cell)
    for name, value, least in (
        ("networks", networks, 2),
        ("sequences", sequences, 1),
        ("steps", steps, 1),
        ("seed", seed, 0),
    ):
        check_count(name, value, least)
    check_autocorrelation(input_autocorrelation, steps)
    own = None if x is None else _own_batch(cell, x)
    if own is not None:
        sequences, steps = own.shape[0], own.shape[1]
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(networks)]
    at_once = max(1, WEIGHTS_AT_ONCE // (4 * cell.units * (cell.inputs + cell.units)))
    blocks = []
    for start in range(0, networks, at_once):
        block = streams[start : start + at_once]
        weights = [_draw(cell, v, r) for r in block]
        inputs = [own if own is not None else _inputs(cell, steps, sequences, input_autocorrelation, r) for r in block]
        blocks.append(_run(cell, weights, np.stack(inputs)))
    return _summarise({k: np.concatenate([b[k] for b in blocks], axis=1) for k in blocks[0]})


def _own_batch(cell: Cell, x: ArrayLike) -> FloatArray:
    batch = np.asarray(x, dtype=float)
    if batch.ndim != 3 or batch.shape[2] != cell.inputs or 0 in batch.shape:
        raise TheoryError(f"x has shape {batch.shape}; the cell wants (sequences, steps, {cell.inputs})")
    if np.isinf(batch).any():
        raise TheoryError("x holds infinite values; NaN marks what is missing")
    return _fill(batch, ~np.isnan(batch), cell.fill_exponent)


def _fill(x: FloatArray, mask: NDArray[np.bool_], exponent: float) -> FloatArray:
    """Zero where missing, the visit multiplied by (share observed)^exponent."""
    share = mask.mean(axis=-1, keepdims=True)
    factor = np.zeros_like(share)
    np.power(share, exponent, out=factor, where=share > 0)
    return np.asarray(np.where(mask, x, 0.0) * factor)


def _inputs(cell: Cell, steps: int, sequences: int, correlation: Correlation, rng: np.random.Generator) -> FloatArray:
    """One network's Gaussian inputs (sequences, steps, inputs)."""
    # Steps first: a longer simulation begins with the same numbers.
    x = np.ascontiguousarray(rng.standard_normal((steps, sequences, cell.inputs)).swapaxes(0, 1))
    if correlation is not None:
        rho = np.asarray(correlation, dtype=float)
        if rho.ndim == 0:
            for t in range(1, steps):
                x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
        else:
            values, vectors = np.linalg.eigh(_covariance(rho, steps))
            root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
            x = np.einsum("ts,bsn->btn", root, x)
    x *= np.sqrt(cell.input_variance)
    if cell.observed == 1.0:
        return x
    if isinstance(cell.observed, tuple):
        # A visit's share is one of the given; which of its features are seen is drawn without replacement.
        counts = np.rint(rng.choice(cell.observed, size=(sequences, steps, 1)) * cell.inputs)
        mask = rng.random(x.shape).argsort(axis=-1).argsort(axis=-1) < counts
    else:
        mask = rng.random(x.shape) < cell.observed
    return _fill(x, mask, cell.fill_exponent)


def _covariance(rho: FloatArray, steps: int) -> FloatArray:
    if rho.ndim == 2:
        return rho[:steps, :steps]
    out = np.zeros((steps, steps))
    for lag, value in enumerate(rho[:steps]):
        out += value * (np.eye(steps, k=lag) if lag == 0 else np.eye(steps, k=lag) + np.eye(steps, k=-lag))
    return out


def _draw(cell: Cell, v: Variances, rng: np.random.Generator) -> dict[str, FloatArray]:
    """One network: W_k (N, M), U_k (M, M), V_k (M), all normal."""
    weights = {}
    for k in "fioc":
        weights[f"W{k}"] = np.sqrt(v.w(k)) * rng.standard_normal((cell.inputs, cell.units))
        weights[f"U{k}"] = np.sqrt(v.u(k)) * rng.standard_normal((cell.units, cell.units))
        weights[f"V{k}"] = np.sqrt(v.v(k)) * rng.standard_normal((1, cell.units))
        values = np.atleast_1d(np.asarray(cell.bias(k), dtype=float))
        weights[f"b{k}"] = values[np.arange(cell.units) % len(values)][None]
    return weights


def _run(cell: Cell, nets: list[dict[str, FloatArray]], x: FloatArray) -> dict[str, NDArray[np.float32]]:
    """Forward pass of a block of networks; x is (networks, sequences, steps, inputs)."""
    p = {name: np.stack([net[name] for net in nets]) for name in nets[0]}
    gate, squash, out = (
        ACTIVATIONS.get(a, a) if isinstance(a, str) else a for a in (cell.gate, cell.cell_input, cell.output)
    )
    if isinstance(gate, str) or isinstance(squash, str) or isinstance(out, str):
        raise TheoryError(f"the simulation knows {', '.join(ACTIVATIONS)}, or any callable")
    networks, sequences, steps, _ = x.shape
    h = c = np.zeros((networks, sequences, cell.units))
    history = {k: np.empty((steps, networks, sequences, cell.units), np.float32) for k in ("h", "c", *"fioz")}
    for t in range(steps):
        a = {k: x[:, :, t] @ p[f"W{k}"] + h @ p[f"U{k}"] + p[f"b{k}"] for k in "fioc"}
        f, i = gate(a["f"] + p["Vf"] * c), gate(a["i"] + p["Vi"] * c)
        z = squash(a["c"])
        c = f * c + i * z
        o = gate(a["o"] + p["Vo"] * c)
        h = o * out(c)
        for name, value in zip(history, (h, c, f, i, o, z), strict=True):
            history[name][t] = value
    return history


def _summarise(history: dict[str, NDArray[np.float32]]) -> Flow:
    """Pooled statistics by step, and their standard errors between networks."""
    steps, networks = history["h"].shape[:2]
    found: dict[str, Any] = {}
    for name in "hc":
        flat = history[name].reshape(steps, networks, -1).astype(np.float64)
        square, mean = flat**2, flat.mean(axis=(1, 2))
        found[f"mean_{name}"], found[f"var_{name}"] = mean, square.mean(axis=(1, 2)) - mean**2
        found[f"se_var_{name}"] = square.mean(axis=2).std(axis=1, ddof=1) / np.sqrt(networks)
        found[f"se_median_{name}"] = np.median(square, axis=2).std(axis=1, ddof=1) / np.sqrt(networks)
        found[f"quantiles_{name}"] = np.quantile(square.reshape(steps, -1), QUANTILES, axis=1).T
    gates = {k: history["z" if k == "c" else k].reshape(steps, -1) for k in "fioc"}
    return Flow(
        "simulate",
        gate_mean={k: g.mean(axis=1, dtype=np.float64) for k, g in gates.items()},
        gate_var={k: g.var(axis=1, dtype=np.float64) for k, g in gates.items()},
        **found,
    )
