"""What is analysed: an LSTM cell, and the variances from which its weights are drawn.

Gates carry the paper's letters: f forget, i input, o output, c cell input (the paper's z).
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from peephole.theory.activations import Activation, Function, resolve
from peephole.theory.errors import TheoryError, nearest
from peephole.theory.incomplete import kappa

GATES = ("f", "i", "o", "c")
PEEPHOLES = ("f", "i", "o")
Bias = float | Sequence[float]
LARGEST = 1e30


@dataclass(frozen=True)
class Cell:
    """One LSTM layer as the theory sees it.

    `observed` is the share of inputs observed, or the list of shares of real visits (`visit_shares` of the data;
    see `kappa`), and `fill_exponent` the alpha of their rescaling. A bias is a number, or a list of values that
    the units take in turn (so that `chrono`'s spread of forget biases has a prediction at level `wide`).
    """

    inputs: int
    units: int
    peepholes: bool = True
    gate: str | Function = "sigmoid"
    cell_input: str | Function = "tanh"
    output: str | Function = "identity"
    forget_bias: Bias = 0.0
    input_bias: Bias = 0.0
    output_bias: Bias = 0.0
    cell_bias: Bias = 0.0
    observed: float | Sequence[float] = 1.0
    fill_exponent: float = 0.0
    input_variance: float = 1.0

    def __post_init__(self) -> None:
        for name in ("inputs", "units"):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
                raise TheoryError(f"{name} = {size!r}: a cell needs a whole number of {name}, at least 1")
        if not isinstance(self.peepholes, bool | np.bool_):
            raise TheoryError(f"peepholes = {self.peepholes!r}: True or False")
        for name in ("forget_bias", "input_bias", "output_bias", "cell_bias", "observed"):
            object.__setattr__(self, name, _number_or_tuple(name, getattr(self, name)))
        shares = np.atleast_1d(self.observed)
        if not np.all((shares > 0) & (shares <= 1)) and not (shares.size > 1 and np.all(shares >= 0) and shares.any()):
            raise TheoryError(f"observed = {self.observed!r}: shares observed lie in (0, 1]")
        if not (math.isfinite(self.input_variance) and self.input_variance > 0):
            raise TheoryError(f"input_variance = {self.input_variance!r}: must be finite and above 0")
        if not math.isfinite(self.fill_exponent):
            raise TheoryError(f"fill_exponent = {self.fill_exponent!r}: must be finite")
        for role in ("gate", "cell_input", "output"):
            resolve(getattr(self, role))

    def activation(self, gate: str) -> Activation:
        """The activation of a gate's pre-activation: `gate` for f, i and o, `cell_input` for c."""
        return resolve(self.cell_input if gate == "c" else self.gate)

    def bias(self, gate: str) -> Bias:
        """The bias of a gate: a number or one value for each unit in turn."""
        return {"f": self.forget_bias, "i": self.input_bias, "o": self.output_bias, "c": self.cell_bias}[gate]

    @property
    def biases_are_zero(self) -> bool:
        """Whether every bias of every gate is zero, as the paper initialises them."""
        return not any(np.any(self.bias(gate)) for gate in GATES)

    @cached_property
    def kappa(self) -> float:
        """The factor by which gaps change the variance of W x; 1 for complete inputs."""
        return kappa(self.observed, self.inputs, self.fill_exponent)


def _number_or_tuple(name: str, value: Bias) -> Bias:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise TheoryError(f"{name} = {value!r}: must be a finite number or a list of them") from None
    if array.ndim > 1 or array.size == 0 or not np.all(np.isfinite(array)):
        raise TheoryError(f"{name} = {value!r}: must be a finite number or a list of them")
    return tuple(array.tolist()) if array.ndim else float(array)


@dataclass(frozen=True)
class Variances:
    """The variance of one element of each weight matrix; `v_*` are None in a cell without peepholes."""

    w_f: float
    u_f: float
    v_f: float | None
    w_i: float
    u_i: float
    v_i: float | None
    w_o: float
    u_o: float
    v_o: float | None
    w_c: float
    u_c: float

    def __post_init__(self) -> None:
        for name, value in self.as_dict().items():
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise TheoryError(f"{name} = {value!r}: a variance is a number")
            if not (math.isfinite(value) and value >= 0):
                raise TheoryError(f"{name} = {value}: a variance must be finite and not negative")
            if value > LARGEST:
                raise TheoryError(f"{name} = {value}: beyond {LARGEST:g} no arithmetic here holds")

    @classmethod
    def build(cls, cell: Cell, values: Mapping[str, float | None]) -> Variances:
        """From a mapping with exactly the names that the cell needs."""
        names = variance_names(cell)
        given = {name: value for name, value in values.items() if value is not None}
        for name in given:
            if name not in names:
                raise TheoryError(_not_a_variance(name, cell))
        missing = [name for name in names if name not in given]
        if missing:
            raise TheoryError(f"no variance was given for {', '.join(missing)}")
        return cls(**{f.name: given.get(f.name) for f in dataclasses.fields(cls)})  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, float]:
        """Name to value, without the entries that are None."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in pairs if value is not None}

    def w(self, gate: str) -> float:
        """Variance of an input weight of that gate."""
        return float(getattr(self, f"w_{gate}"))

    def u(self, gate: str) -> float:
        """Variance of a recurrent weight of that gate."""
        return float(getattr(self, f"u_{gate}"))

    def v(self, gate: str) -> float:
        """Variance of a peephole of that gate; 0 where there is none."""
        return float(getattr(self, f"v_{gate}", None) or 0.0)

    def check(self, cell: Cell) -> None:
        """Raise unless there are peephole variances exactly where the cell has peepholes."""
        Variances.build(cell, self.as_dict())


def variance_names(cell: Cell) -> list[str]:
    """The names of a cell's variances: eleven with peepholes, eight without."""
    names = [f.name for f in dataclasses.fields(Variances)]
    return names if cell.peepholes else [name for name in names if not name.startswith("v_")]


def _not_a_variance(name: str, cell: Cell) -> str:
    names = variance_names(cell)
    if name in {f.name for f in dataclasses.fields(Variances)}:
        return f"{name} is a peephole's variance, and this cell has no peepholes"
    return f"unknown variance {name!r}{nearest(name, names)}"


def preactivation_variance(cell: Cell, v: Variances, gate: str, hidden: float = 1.0) -> float:
    """A_k = N kappa w_k Var(x) + M u_k Var(h): the variance of a gate's input, its peephole aside."""
    return cell.inputs * cell.kappa * v.w(gate) * cell.input_variance + cell.units * v.u(gate) * hidden
