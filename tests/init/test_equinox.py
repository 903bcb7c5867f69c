"""Methods put into Equinox's LSTM cells, against `weights` and against torch."""

import importlib
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from peephole import init
from peephole.init import equinox as ours
from peephole.init.layouts import EQUINOX
from peephole.theory import Cell, TheoryError

I, H, SEED = 3, 8, 5
CELL = Cell(I, H, peepholes=False, output="tanh")
Arrays = list[NDArray[Any]]


def lstm(inputs: int = I, **arguments: Any) -> eqx.nn.LSTMCell:
    """A cell as Equinox draws it."""
    return eqx.nn.LSTMCell(inputs, H, key=jax.random.key(0), **arguments)


def arrays(cell: eqx.nn.LSTMCell) -> Arrays:
    """Its weights and its bias, if it has one."""
    return [np.asarray(array) for array in (cell.weight_ih, cell.weight_hh, cell.bias) if array is not None]


def torch_s(module: nn.Module, suffix: str = "_l0") -> Arrays:
    """The same three of torch's LSTM; of its two biases, the first."""
    return [getattr(module, f"{name}{suffix}").detach().numpy() for name in ("weight_ih", "weight_hh", "bias_ih")]


def drawn(name: str, part: int = 0) -> Arrays:
    """What `weights` gives, in float32."""
    found = init.weights(name, CELL, SEED, part=part)
    return [EQUINOX.stack(found, letter).astype(np.float32) for letter in "WUb"]


def same(left: Arrays, right: Arrays) -> bool:
    """Whether all numbers agree bit for bit, of the same type."""
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def outputs(cell: eqx.nn.LSTMCell, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The hidden state after each step of one sequence."""
    state, seen = (jnp.zeros(H), jnp.zeros(H)), []
    for step in x:
        state = cell(jnp.asarray(step), state)
        seen.append(state[0])
    return np.asarray(seen)


@pytest.mark.parametrize("name", init.METHODS)
def test_the_same_numbers_everywhere(name: str) -> None:
    """By every method a cell has the numbers of `weights`, and of torch's LSTM, bit for bit in float32."""
    before = lstm()
    cell = ours.initialise(before, name, SEED)
    assert same(arrays(cell), drawn(name))
    assert same(arrays(cell), torch_s(init.initialise_(nn.LSTM(I, H), name, generator=SEED)))
    assert same(arrays(before), arrays(lstm()))  # the one given is not touched
    assert not same(arrays(ours.initialise(before, name, SEED + 1)), arrays(cell))


@pytest.mark.parametrize("name", ["proposed-4", "chrono"])
def test_the_same_outputs_as_torch(name: str) -> None:
    """Equinox's own forward pass gives what torch's gives: the layout is right."""
    x = np.random.default_rng(0).standard_normal((6, I)).astype(np.float32)
    module = init.initialise_(nn.LSTM(I, H), name, generator=SEED)
    expected = module(torch.from_numpy(x))[0].detach().numpy()
    assert np.allclose(outputs(ours.initialise(lstm(), name, SEED), x), expected, atol=1e-5)
    assert not np.allclose(outputs(lstm(), x), expected, atol=1e-2)


def test_each_gate_is_orthogonal() -> None:
    """Every gate's recurrent block is orthogonal; by Equinox's own default none is."""

    def orthogonal(cell: eqx.nn.LSTMCell) -> list[bool]:
        gates = np.split(np.asarray(cell.weight_hh), 4)
        return [np.allclose(np.linalg.svd(gate, compute_uv=False), 1, atol=1e-5) for gate in gates]

    assert all(orthogonal(ours.initialise(lstm(), "keras-default", SEED)))
    assert not any(orthogonal(lstm()))


def test_found_anywhere() -> None:
    """Cells are found in any pytree, each with a part of its own; types, missing biases and all else stay."""
    head = eqx.nn.Linear(H, 1, key=jax.random.key(1))
    tree: Any = {"cells": [lstm(), lstm(use_bias=False, dtype=jnp.bfloat16)], "head": head, "activation": jnp.tanh}
    new = ours.initialise(tree, "torch-default", SEED, part=3)
    structure: Any = jax.tree.structure(tree)
    assert structure == jax.tree.structure(new)
    first, second = new["cells"]
    assert same(arrays(first), drawn("torch-default", 3))
    assert same(arrays(second), [array.astype(jnp.bfloat16) for array in drawn("torch-default", 4)[:2]])
    assert second.bias is None
    assert new["head"].weight is head.weight
    assert new["activation"] is jnp.tanh


def test_a_later_layer() -> None:
    """With the part and Var(x) of its layer, a cell has the numbers of that layer of torch's LSTM."""
    deep = init.initialise_(nn.LSTM(I, H, num_layers=2), "proposed-4", generator=SEED)
    entering = init.output_variance("proposed-4", CELL)
    second = ours.initialise(lstm(H), "proposed-4", SEED, part=1, input_variance=entering)
    assert same(arrays(second), torch_s(deep, "_l1"))


def test_under_jit() -> None:
    """A compiled function may initialise, and the numbers stay."""
    assert same(arrays(eqx.filter_jit(lambda cell: ours.initialise(cell, "chrono", SEED))(lstm())), drawn("chrono"))


def test_what_is_refused() -> None:
    """Bad names, models without an LSTM and stacks of cells are refused."""
    with pytest.raises(TheoryError, match="did you mean 'proposed-4'"):
        ours.initialise(lstm(), "propsed-4", SEED)
    with pytest.raises(TheoryError, match="no LSTM in GRUCell: Equinox's LSTMCell"):
        ours.initialise(eqx.nn.GRUCell(I, H, key=jax.random.key(0)), "normalized", SEED)
    stack = jax.tree.map(lambda leaf: np.stack([leaf] * 2), lstm())  # as eqx.filter_vmap makes it
    with pytest.raises(TheoryError, match="a stack of cells"):
        ours.initialise(stack, "normalized", SEED)


def test_a_missing_equinox_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Equinox the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "equinox", None)
    monkeypatch.delitem(sys.modules, "peephole.init.equinox")
    with pytest.raises(ImportError, match=r"pip install 'peephole\[equinox\]'"):
        importlib.import_module("peephole.init.equinox")
