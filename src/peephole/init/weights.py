"""Weights as NumPy arrays, each gate its own matrix: what every framework's adapter puts into its own layout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from peephole.init.methods import STEPS, Array, Distribution, Method, Recurrent, find, generator
from peephole.theory import Cell, TheoryError, Variances, propagate
from peephole.theory.errors import check_count

GATES = ("i", "f", "c", "o")
PEEPHOLES = ("i", "f", "o")
SETTLED, SAMPLES = 20, 2000  # steps after which h is taken to have settled, and units sampled: some 0.03 s


def weights(
    method: str,
    cell: Cell,
    seed: int,
    *,
    variances: Variances | None = None,
    part: int = 0,
    projected: int = 0,
    distribution: Distribution | None = None,
    steps: int = STEPS,
    only: str = "WUVbP",
) -> dict[str, Array]:
    """W_k (M, N), U_k (M, M), V_k (M) and b_k (M) of every gate k in i, f, c, o, by a method of `METHODS`.

    `variances` replace the method's own. `part` counts the layers and directions that share a seed. `projected` is
    the size to which h is projected: U_k is then (M, projected), and P (projected, M) the projection.
    `distribution` is the method's own unless given: normal or uniform, both with the exact variance. `steps` is the
    T of `chrono`. `only` chooses by first letters. The same arguments give the same bits, whatever else is drawn.
    """
    by = find(method)
    check_count("seed", seed, 0)
    distribution = distribution or by.distribution
    if distribution not in ("normal", "uniform"):
        raise TheoryError(f"distribution = {distribution!r}: normal or uniform")
    v = by.variances(cell) if variances is None else variances
    v.check(cell)
    drawn = {}
    for name, shape, variance, kind in _matrices(by, cell, v, projected):
        if name[0] in only:
            drawn[name] = _matrix(generator(seed, part, name), shape, variance, kind, distribution)
    if "b" in only:
        drawn |= {f"b_{gate}": by.bias(cell, gate, seed, part=part, steps=steps) for gate in GATES}
    return drawn


def output_variance(method: str, cell: Cell, *, steps: int = STEPS) -> float:
    """Var(h) of a layer started by a method of `METHODS`: the `input_variance` of the layer behind it.

    Predicted at level `wide` for white inputs of variance `cell.input_variance`, after 20 steps, from a fixed seed; two
    standard errors are some 8%. `cell` has the layer's own activations and no biases, for the method's are put in.
    `steps` is the T of `chrono`. Raises where the signal explodes.
    """
    by = find(method)
    return _output_variance(by, by.cell(cell, steps=steps))


@lru_cache(maxsize=256)
def _output_variance(by: Method, cell: Cell) -> float:
    return float(propagate(cell, by.variances(cell), steps=SETTLED, samples=SAMPLES).var_h[-1])


def _matrices(
    by: Method, cell: Cell, v: Variances, projected: int
) -> Iterator[tuple[str, tuple[int, ...], float, Recurrent]]:
    """Name, shape, variance and kind of each matrix."""
    M, back = cell.units, projected or cell.units
    # M u is what counts, so fewer recurrent inputs have larger weights. An orthogonal matrix, like the identity, has
    # elements of mean square 1/M, so that u M is the square of what it is multiplied by.
    scale = M if by.recurrent != "independent" else M / back if by.per_fan_in else 1.0
    for gate in GATES:
        yield f"W_{gate}", (M, cell.inputs), v.w(gate), "independent"
        yield f"U_{gate}", (M, back), v.u(gate) * scale, by.recurrent
        if cell.peepholes and gate in PEEPHOLES:
            yield f"V_{gate}", (M,), v.v(gate), "independent"
    if projected:  # the projection keeps Var(h), unless the method has one rule for everything
        if by.recurrent == "orthogonal":
            yield "P", (projected, M), 1.0, "orthogonal"
        else:
            yield "P", (projected, M), 1 / M if by.per_fan_in else v.u("i"), "independent"


def _matrix(
    rng: np.random.Generator, shape: tuple[int, ...], variance: float, kind: Recurrent, distribution: Distribution
) -> Array:
    """One matrix; of an orthogonal one, or the identity, `variance` is the square of all its singular values."""
    if kind == "identity":
        return np.asarray(math.sqrt(variance) * np.eye(shape[0], shape[1]))
    if kind == "orthogonal":
        return math.sqrt(variance) * _orthogonal(rng, shape)
    if distribution == "uniform":
        end = math.sqrt(3 * variance)
        return np.asarray(rng.uniform(-end, end, shape))
    return np.asarray(math.sqrt(variance) * rng.standard_normal(shape))


def _orthogonal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The uniform (Haar) matrix with orthonormal columns, or rows: QR, signs taken from R's diagonal."""
    rows, columns = shape
    q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return np.asarray(q if rows >= columns else q.T)
