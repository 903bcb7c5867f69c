"""Methods put into Flax: into the parameters of linen's LSTM cells, and in place into nnx's, wherever they stand.

Each cell is a layer of its own with Var(x) = `input_variance`; the k-th, in Flax's own alphabetical order, has the
numbers of `weights` with part = `part` + k. `distribution` and `steps` are those of `init.weights`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from operator import attrgetter
from typing import Any

from peephole.init.layouts import LINEN, NNX, NNX_OPTIMIZED
from peephole.init.methods import STEPS, Array, Distribution
from peephole.init.weights import weights
from peephole.theory import Cell, TheoryError

try:
    import jax
    import jax.numpy as jnp
    from flax import nnx
except ImportError as error:
    raise ImportError(f"Flax cannot be imported ({error}): pip install 'peephole[flax]' brings it") from error

DENSE = {name.partition(".")[0] for name in LINEN.arrays}


def initialise(
    params: Any, name: str, seed: int, *, gate: str = "sigmoid", activation: str = "tanh", input_variance: float = 1.0,
    part: int = 0, distribution: Distribution | None = None, steps: int = STEPS,
) -> Any:  # fmt: skip
    """New parameters for linen's `LSTMCell` and `OptimizedLSTMCell`, anywhere in `params`; all else stays.

    What `module.init` returns will do, but not a whole train state: an optimiser's moments look like parameters.
    `gate` and `activation` are the cells' `gate_fn` and `activation_fn`, by name.
    """
    parts = count(part)

    def filled(node: Any) -> Any:
        if not _is_cell(node):
            return node
        inputs, units = jax.tree.leaves(node["ii"]["kernel"])[0].shape[-2:]
        cell = Cell(inputs, units, False, gate, activation, activation, input_variance=input_variance)
        drawn = weights(name, cell, seed, part=next(parts), distribution=distribution, steps=steps)
        arrays = LINEN.write(drawn)
        # Over leaves, not items: partitioned parameters are boxed, and stay so.
        return jax.tree_util.tree_map_with_path(
            lambda path, old: _like(old, arrays[f"{path[0].key}.{path[1].key}"]), node
        )

    new = jax.tree.map(filled, params, is_leaf=_is_cell)
    if next(parts) == part:
        raise TheoryError("no LSTM in these parameters: linen's LSTMCell and OptimizedLSTMCell are covered")
    return new


def initialise_(
    module: nnx.Module, name: str, seed: int, *, input_variance: float = 1.0, part: int = 0,
    distribution: Distribution | None = None, steps: int = STEPS,
) -> Any:  # fmt: skip
    """Fill nnx's `LSTMCell` and `OptimizedLSTMCell` in place; returns the cell given, or else those found, by path."""
    cells = (nnx.LSTMCell, nnx.OptimizedLSTMCell)
    found = {".".join(map(str, path)): node for path, node in nnx.iter_graph(module) if isinstance(node, cells)}
    if not found:
        raise TheoryError(f"no LSTM in {type(module).__name__}: nnx's LSTMCell and OptimizedLSTMCell are covered")
    new: list[tuple[Any, jax.Array]] = []  # nothing is touched before everything is known to fit
    for number, node in enumerate(found.values(), part):
        gate, activation = (getattr(role, "__name__", repr(role)) for role in (node.gate_fn, node.activation_fn))
        inputs, units = node.in_features, node.hidden_features
        cell = Cell(inputs, units, False, gate, activation, activation, input_variance=input_variance)
        drawn = weights(name, cell, seed, part=number, distribution=distribution, steps=steps)
        new += [(parameter, _like(parameter, array)) for parameter, array in _nnx(node, drawn)]
    for parameter, array in new:
        parameter[...] = array
    return found.get("", found)


def _is_cell(node: Any) -> bool:
    return isinstance(node, Mapping) and set(node) == DENSE


def _like(old: Any, array: Array) -> jax.Array:
    if old.shape != array.shape:
        raise TheoryError(f"a shape of {old.shape}, not {array.shape}: stacks of cells (scan, vmap) are not covered")
    return jnp.asarray(array, old.dtype)


def _nnx(cell: nnx.Module, drawn: Mapping[str, Array]) -> list[tuple[Any, Array]]:
    """The parameters of an nnx cell, and what goes into each."""
    layout = NNX_OPTIMIZED if isinstance(cell, nnx.OptimizedLSTMCell) else NNX
    return [(attrgetter(name)(cell), array) for name, array in layout.write(drawn).items()]
