"""The registry of methods: what each draws, gate by gate, in NumPy and no framework."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peephole.theory import Cell, TheoryError, Variances, preset
from peephole.theory.errors import nearest

Array = NDArray[np.float64]
# The order in which gates are drawn, so that a seed means the same numbers in every layout.
DRAWN = ("i", "f", "c", "o")


@dataclass(frozen=True)
class Method:
    """One initialiser: where its variances come from, and how its recurrent matrices are drawn."""

    name: str
    summary: str
    orthogonal: bool = False

    def variances(self, cell: Cell) -> Variances:
        """The variance of each gate's matrices for a cell."""
        return preset(self.name, cell)


_SUMMARIES = (
    *((f"proposed-{k}", f"Table 1 of the paper, configuration {k}") for k in range(1, 5)),
    *((f"corrected-{k}", f"configuration {k}, rescaled so that the linearised Var(h) is 1") for k in range(1, 5)),
    ("normalized", "the paper's baseline: every matrix normal with variance 1 over its inputs"),
)
METHODS: dict[str, Method] = {
    **{name: Method(name, summary) for name, summary in _SUMMARIES},
    "orthogonal": Method("orthogonal", "as normalized, each gate's recurrent matrix orthogonal", orthogonal=True),
}
"""Name to method; the same names in every adapter and in the command line."""


def find(name: str) -> Method:
    """The method of that name, or an error with the nearest one."""
    if name not in METHODS:
        raise TheoryError(f"unknown method {name!r}{nearest(name, METHODS)}")
    return METHODS[name]


def draw(cell: Cell, v: Variances, rng: np.random.Generator, orthogonal: bool = False) -> dict[str, Array]:
    """W_k (M, N), U_k (M, M) and, with peepholes, V_k (M) of every gate: zero-mean normal, each its own matrix."""
    weights = {}
    for gate in DRAWN:
        weights[f"W_{gate}"] = math.sqrt(v.w(gate)) * rng.standard_normal((cell.units, cell.inputs))
        recurrent = rng.standard_normal((cell.units, cell.units))
        # An orthogonal matrix has elements of variance 1/M.
        scale = math.sqrt(v.u(gate) * (cell.units if orthogonal else 1))
        weights[f"U_{gate}"] = scale * (_orthogonal(recurrent) if orthogonal else recurrent)
        if cell.peepholes and gate != "c":
            weights[f"V_{gate}"] = math.sqrt(v.v(gate)) * rng.standard_normal(cell.units)
    return weights


def _orthogonal(normal: Array) -> Array:
    """The uniform (Haar) orthogonal matrix that belongs to a normal one: QR, signs taken from R's diagonal."""
    q, r = np.linalg.qr(normal)
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))
