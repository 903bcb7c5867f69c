"""Methods put into Equinox's `LSTMCell`, wherever it stands."""

from __future__ import annotations

from itertools import count
from typing import Any, TypeVar

from peephole.init.layouts import EQUINOX
from peephole.init.methods import STEPS, Distribution
from peephole.init.weights import weights
from peephole.theory import Cell, TheoryError

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise ImportError(f"Equinox cannot be imported ({error}): pip install 'peephole[equinox]' brings it") from error

Tree = TypeVar("Tree")


def initialise(
    module: Tree,
    name: str,
    seed: int,
    *,
    input_variance: float = 1.0,
    part: int = 0,
    distribution: Distribution | None = None,
    steps: int = STEPS,
) -> Tree:
    """A new module whose LSTM cells start by the method of that name; all else stays.

    The cells may stand anywhere in a pytree. Each is a layer of its own with Var(x) = `input_variance`, and the
    numbers of the k-th are those of `weights` with part = `part` + k, in the pytree's order. `distribution` and
    `steps` are those of `init.weights`.
    """
    parts = count(part)

    def filled(node: Any) -> Any:
        if not _is_cell(node):
            return node
        if node.weight_ih.ndim != 2:
            raise TheoryError(
                f"weights of shape {node.weight_ih.shape}: a stack of cells (vmap), and only single ones are covered"
            )
        cell = Cell(node.input_size, node.hidden_size, peepholes=False, output="tanh", input_variance=input_variance)
        drawn = weights(name, cell, seed, part=next(parts), distribution=distribution, steps=steps)
        arrays = EQUINOX.write(drawn)
        present = [name for name in arrays if getattr(node, name) is not None]  # the bias may be missing
        new = [jnp.asarray(arrays[name], getattr(node, name).dtype) for name in present]
        return eqx.tree_at(lambda cell: [getattr(cell, name) for name in present], node, new)

    tree: Tree = jax.tree.map(filled, module, is_leaf=_is_cell)
    if next(parts) == part:
        raise TheoryError(f"no LSTM in {type(module).__name__}: Equinox's LSTMCell is covered, anywhere in a pytree")
    return tree


def _is_cell(node: Any) -> bool:
    return isinstance(node, eqx.nn.LSTMCell)
