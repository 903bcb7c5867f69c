"""The registry: what each method promises and where it comes from. Framework-free; `weights.py` draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from peephole.theory import Cell, TheoryError, Variances, preset
from peephole.theory.errors import check_count, nearest

Array = NDArray[np.float64]
Distribution = Literal["normal", "uniform"]
Recurrent = Literal["independent", "orthogonal", "identity"]
# Draws one gate's bias: the cell, the gate, a generator and the steps over which memory should last.
Bias = Callable[[Cell, str, np.random.Generator, int], Array]
STEPS = 100
"""The number of steps over which `chrono` spreads the memory, unless told."""
SEEN_UNITS = 256


def _zero(cell: Cell, gate: str, rng: np.random.Generator, steps: int) -> Array:
    return np.zeros(cell.units)


def _forget_one(cell: Cell, gate: str, rng: np.random.Generator, steps: int) -> Array:
    return np.full(cell.units, 1.0 if gate == "f" else 0.0)


def _chrono(cell: Cell, gate: str, rng: np.random.Generator, steps: int) -> Array:
    """b_f = log U(1, T - 1) and b_i = -b_f, from one stream, so that a unit remembers 1 to T - 1 steps."""
    forget = np.log(rng.uniform(1, max(steps - 1, 1), cell.units))
    return {"f": forget, "i": -forget}.get(gate, np.zeros(cell.units))


def _two_of_torch_s(cell: Cell, gate: str, rng: np.random.Generator, steps: int) -> Array:
    """The sum of torch's two biases, each U(-1/sqrt(M), 1/sqrt(M))."""
    end = cell.units**-0.5
    return np.asarray(rng.uniform(-end, end, (2, cell.units)).sum(0))


@dataclass(frozen=True)
class Method:
    """One initialiser: the variance of each gate's matrices, how they are drawn, and the biases.

    `per_fan_in`: Var(u) is over the number of recurrent inputs, which a projection makes fewer than units.
    """

    name: str
    summary: str
    formula: str
    source: str
    distribution: Distribution = "normal"
    recurrent: Recurrent = "independent"
    draw_bias: Bias = _zero
    per_fan_in: bool = True

    def variances(self, cell: Cell) -> Variances:
        """The variance of one element of each gate's matrices (for `identity`, the mean square)."""
        return preset(self.name, cell)

    def cell(self, cell: Cell, *, steps: int = STEPS) -> Cell:
        """The cell with this method's biases, as `theory.propagate` and `theory.simulate` take them.

        Biases that differ from unit to unit become a list, drawn for 256 units.
        """
        drawn = {
            gate: self.bias(replace(cell, units=SEEN_UNITS), gate, 0, steps=steps) for gate in ("f", "i", "o", "c")
        }
        f, i, o, c = (float(b[0]) if np.ptp(b) == 0 else tuple(b.tolist()) for b in drawn.values())
        return replace(cell, forget_bias=f, input_bias=i, output_bias=o, cell_bias=c)

    def bias(self, cell: Cell, gate: str, seed: int, *, part: int = 0, steps: int = STEPS) -> Array:
        """One gate's bias."""
        check_count("steps", steps, 1)
        # chrono's two biases are one number with two signs: they share the forget gate's stream.
        stream = "b_f" if self.draw_bias is _chrono else f"b_{gate}"
        return self.draw_bias(cell, gate, generator(seed, part, stream), steps)


def generator(seed: int, part: int, matrix: str) -> np.random.Generator:
    """The stream of one matrix of one layer and direction: no matrix's numbers depend on which others are drawn."""
    return np.random.default_rng([seed, part, *matrix.encode()])


_TABLE_1 = "paper, Table 1 and equation (4); without peepholes w_c, u_c solve (3), or (1)"
_GLOROT = "W_k: Var = 2/(N + M), uniform; U_k orthogonal; "
_KERAS = "Glorot & Bengio 2010; Saxe et al. 2014; Keras's defaults, gate by gate and without its forget bias"
_ALL = (
    *(
        Method(
            f"proposed-{k}", f"configuration {k} of the paper", "w_k = a_k/(N kappa Var(x)), u_k = b_k/M, v_k", _TABLE_1
        )
        for k in range(1, 5)
    ),
    *(
        Method(
            f"corrected-{k}",
            f"configuration {k}, its cell input rescaled so that the linearised Var(h) is 1",
            "as proposed; w_c, u_c times the factor that solves v_o C^2 + (A_o + 4) C = 16",
            "`theory.corrected_cell_input`; docs, the linear level",
        )
        for k in range(1, 5)
    ),
    Method("normalized", "the paper's first baseline", "w_k = 1/N, u_k = v_k = 1/M", "paper, Experimental Setup"),
    Method(
        "orthogonal",
        "the paper's second baseline: as normalized, each gate's recurrent matrix orthogonal",
        "w_k = 1/N, v_k = 1/M; U_k orthogonal",
        "paper, Experimental Setup; Saxe et al. 2014",
        recurrent="orthogonal",
    ),
    Method(
        "torch-default",
        "what torch.nn.LSTM does",
        "everything U(-1/sqrt(M), 1/sqrt(M)), Var = 1/(3M); the bias is the sum of two such",
        "PyTorch, RNNBase.reset_parameters",
        distribution="uniform",
        draw_bias=_two_of_torch_s,
        per_fan_in=False,
    ),
    Method("keras-default", "Glorot inputs, orthogonal recurrence", _GLOROT + "b = 0", _KERAS, "uniform", "orthogonal"),
    Method(
        "forget-one",
        "keras-default with a forget bias of 1",
        _GLOROT + "b_f = 1",
        "Gers et al. 2000; Jozefowicz et al. 2015",
        "uniform",
        "orthogonal",
        _forget_one,
    ),
    Method(
        "chrono",
        "keras-default with forget biases for memories of 1 to T - 1 steps",
        _GLOROT + "b_f = log U(1, T - 1), b_i = -b_f",
        "Tallec & Ollivier 2018",
        "uniform",
        "orthogonal",
        _chrono,
    ),
    Method(
        "identity",
        "keras-default with the identity as each gate's recurrent matrix",
        "W_k: Var = 2/(N + M), uniform; U_k = 1",
        "Le, Jaitly & Hinton 2015, for each gate",
        "uniform",
        "identity",
    ),
)
METHODS: dict[str, Method] = {method.name: method for method in _ALL}
"""Name to method; the same names in every adapter and in the command line."""


def find(name: str) -> Method:
    """The method of that name, or an error with the nearest one."""
    if name not in METHODS:
        raise TheoryError(f"unknown method {name!r}{nearest(name, METHODS)}")
    return METHODS[name]
