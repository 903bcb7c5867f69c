"""Methods put into Flax's LSTM cells, linen's and nnx's, against `weights` and against torch."""

import importlib
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen, nnx
from flax.core import freeze
from numpy.typing import NDArray
from torch import nn

from peephole import init
from peephole.init import flax as ours
from peephole.theory import Cell, TheoryError

I, H, SEED = 3, 8, 5
FLAX_NAMES = {"i": "i", "f": "f", "c": "g", "o": "o"}
CELL = Cell(I, H, peepholes=False, output="tanh")
X = np.random.default_rng(0).standard_normal((2, 6, I)).astype(np.float32)
LINEN: list[Any] = [linen.LSTMCell, linen.OptimizedLSTMCell]
NNX: list[Any] = [nnx.LSTMCell, nnx.OptimizedLSTMCell]
OPTIMISED = ("dense_i", "kernel"), ("dense_h", "kernel"), ("dense_h", "bias")
Blocks = dict[str, NDArray[Any]]


@cache
def linen_params(cell: Any) -> Any:
    """The parameters of a linen cell as those of an RNN, which calls it so; drawn by linen."""
    state = np.zeros((2, H), np.float32)
    return {"cell": cell(H).init(jax.random.key(0), (state, state), X[:, 0])["params"]}


def linen_blocks(params: Mapping[str, Any]) -> Blocks:
    """Each gate's W, U and b, by the names of `weights`."""
    found = {}
    for gate, name in FLAX_NAMES.items():
        found[f"W_{gate}"] = np.asarray(params[f"i{name}"]["kernel"]).T
        found[f"U_{gate}"] = np.asarray(params[f"h{name}"]["kernel"]).T
        found[f"b_{gate}"] = np.asarray(params[f"h{name}"]["bias"])
    return found


def nnx_cell(cell: Any, inputs: int = I, **arguments: Any) -> Any:
    """A cell of nnx as it draws itself."""
    return cell(inputs, H, rngs=nnx.Rngs(0), **arguments)


def nnx_blocks(cell: Any) -> Blocks:
    """The same of an nnx cell."""
    if isinstance(cell, nnx.OptimizedLSTMCell):
        w, u, b = (np.asarray(nnx.state(cell)[of][kind][...]).T for of, kind in OPTIMISED)
        return blocks({"W": w, "U": u, "b": b})
    dense = {name: getattr(cell, name + "_" * (name == "if")) for name in ours.DENSE}
    return linen_blocks(
        {name: {kind: value[...] for kind, value in nnx.state(of).items()} for name, of in dense.items()}
    )


def torch_s(module: nn.Module, suffix: str = "_l0") -> Blocks:
    """The same of torch's LSTM; of its two biases, the first."""
    names = {"W": "weight_ih", "U": "weight_hh", "b": "bias_ih"}
    return blocks({letter: getattr(module, f"{name}{suffix}").detach().numpy() for letter, name in names.items()})


def blocks(stacked: Mapping[str, Any]) -> Blocks:
    """Each gate's rows of what stacks i, f, c, o."""
    return {
        f"{letter}_{gate}": block
        for letter, array in stacked.items()
        for gate, block in zip("ifco", np.split(np.asarray(array), 4), strict=True)
    }


def drawn(name: str, part: int = 0) -> Blocks:
    """What `weights` gives, in float32."""
    return {key: array.astype(np.float32) for key, array in init.weights(name, CELL, SEED, part=part).items()}


def same(left: Blocks, right: Blocks) -> bool:
    """Whether all numbers agree bit for bit, of the same type."""
    return left.keys() == right.keys() and all(
        left[key].dtype == right[key].dtype and np.array_equal(left[key], right[key]) for key in left
    )


@pytest.mark.parametrize("cell", LINEN)
@pytest.mark.parametrize("name", init.METHODS)
def test_the_same_numbers_in_linen(name: str, cell: Any) -> None:
    """By every method a linen cell has the numbers of `weights`, and of torch's LSTM, bit for bit in float32."""
    before = linen_params(cell)
    params = ours.initialise(before, name, SEED)
    assert same(linen_blocks(params["cell"]), drawn(name))
    assert same(linen_blocks(params["cell"]), torch_s(init.initialise_(nn.LSTM(I, H), name, generator=SEED)))
    assert not same(linen_blocks(params["cell"]), linen_blocks(before["cell"]))
    assert not same(linen_blocks(ours.initialise(before, name, SEED + 1)["cell"]), linen_blocks(params["cell"]))


@pytest.mark.parametrize("cell", NNX)
@pytest.mark.parametrize("name", init.METHODS)
def test_the_same_numbers_in_nnx(name: str, cell: Any) -> None:
    """By every method an nnx cell has the numbers of `weights`, and of torch's LSTM, bit for bit in float32."""
    module = nnx_cell(cell)
    assert ours.initialise_(module, name, SEED) is module
    assert same(nnx_blocks(module), drawn(name))
    assert same(nnx_blocks(module), torch_s(init.initialise_(nn.LSTM(I, H), name, generator=SEED)))
    assert not same(nnx_blocks(ours.initialise_(nnx_cell(cell), name, SEED + 1)), nnx_blocks(module))


def test_the_same_outputs_as_torch() -> None:
    """Every cell's own forward pass gives what torch's gives: the layouts are right."""
    name = "chrono"  # its biases differ from gate to gate
    module = init.initialise_(nn.LSTM(I, H, batch_first=True), name, generator=SEED)
    expected = module(torch.from_numpy(X))[0].detach().numpy()
    for cell in LINEN:
        rnn: Any = linen.RNN(cell(H))
        before = {"params": linen_params(cell)}
        assert np.allclose(rnn.apply(ours.initialise(before, name, SEED), X), expected, atol=1e-5)
        assert not np.allclose(rnn.apply(before, X), expected, atol=1e-2)
    for cell in NNX:
        layer = nnx.RNN(nnx_cell(cell), rngs=nnx.Rngs(0))
        assert not np.allclose(np.asarray(layer(jnp.asarray(X))), expected, atol=1e-2)
        ours.initialise_(layer, name, SEED)
        assert np.allclose(np.asarray(layer(jnp.asarray(X))), expected, atol=1e-5)


def test_each_gate_is_orthogonal() -> None:
    """Every gate's recurrent block is orthogonal; in the optimised cell's own default, one stack, none is."""

    def orthogonal(of: Blocks) -> list[bool]:
        return [np.allclose(np.linalg.svd(of[f"U_{gate}"], compute_uv=False), 1, atol=1e-5) for gate in "ifco"]

    module = nnx_cell(nnx.OptimizedLSTMCell)
    assert not any(orthogonal(nnx_blocks(module)))
    assert all(orthogonal(nnx_blocks(ours.initialise_(module, "keras-default", SEED))))


def test_found_anywhere_in_parameters() -> None:
    """Cells are found in any pytree, each with a part of its own; containers, types and all else stay."""
    cell = linen_params(linen.LSTMCell)["cell"]
    half = jax.tree.map(lambda leaf: np.asarray(leaf).astype(jnp.bfloat16), cell)
    tree: Any = {"b": [freeze(cell), {"head": jnp.ones(4)}], "a": (half, None)}
    new = ours.initialise(tree, "normalized", SEED, part=3)
    structure: Any = jax.tree.structure(tree)
    assert structure == jax.tree.structure(new)
    assert new["b"][1]["head"] is tree["b"][1]["head"]
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(new["a"]))
    expected = {key: array.astype(jnp.bfloat16) for key, array in drawn("normalized", 3).items()}
    assert same(linen_blocks(new["a"][0]), expected)
    assert same(linen_blocks(new["b"][0]), drawn("normalized", 4))


def test_boxed_parameters_stay_boxed() -> None:
    """Partitioned parameters keep their names of axes."""
    with_axes = linen.with_partitioning(linen.initializers.zeros, ("in", "out"))
    params = linen_params(lambda units: linen.LSTMCell(units, kernel_init=with_axes))
    new = ours.initialise(params, "normalized", SEED)
    assert new["cell"]["ii"]["kernel"].names == ("in", "out")
    assert same(linen_blocks(linen.meta.unbox(new)["cell"]), drawn("normalized"))


def test_found_anywhere_in_a_module() -> None:
    """Cells are found in any nnx module, and come back by path; one that is shared is one."""
    first, second = nnx_cell(nnx.LSTMCell), nnx_cell(nnx.LSTMCell, param_dtype=jnp.bfloat16)
    layers = [nnx.RNN(first, rngs=nnx.Rngs(0)), nnx.Linear(H, I, rngs=nnx.Rngs(0)), second, first]
    module = nnx.List(layers)
    head = np.asarray(module[1].kernel[...])
    found = ours.initialise_(module, "normalized", SEED, part=3)
    assert found == {"0.cell": first, "2": second}
    assert same(nnx_blocks(first), drawn("normalized", 3))
    assert all(block.dtype == jnp.bfloat16 for block in nnx_blocks(second).values())
    assert np.array_equal(module[1].kernel[...], head)


def test_a_later_layer() -> None:
    """With the part and Var(x) of its layer, a cell has the numbers of that layer of torch's LSTM."""
    deep = init.initialise_(nn.LSTM(I, H, num_layers=2), "proposed-4", generator=SEED)
    entering = init.output_variance("proposed-4", CELL)
    second = nnx_cell(nnx.LSTMCell, H)
    ours.initialise_(second, "proposed-4", SEED, part=1, input_variance=entering)
    params = linen.LSTMCell(H).init(jax.random.key(0), (jnp.ones(H), jnp.ones(H)), jnp.ones(H))
    params = ours.initialise(params, "proposed-4", SEED, part=1, input_variance=entering)
    assert same(nnx_blocks(second), torch_s(deep, "_l1"))
    assert same(linen_blocks(params["params"]), torch_s(deep, "_l1"))


def test_activations_count() -> None:
    """A method that follows the activations is told linen's, and reads nnx's."""
    cell = Cell(I, H, peepholes=False, output="tanh", gate="hard_sigmoid")
    expected = {key: array.astype(np.float32) for key, array in init.weights("corrected-4", cell, SEED).items()}
    module = ours.initialise_(nnx_cell(nnx.LSTMCell, gate_fn=nnx.hard_sigmoid), "corrected-4", SEED)
    params = ours.initialise(linen_params(linen.LSTMCell), "corrected-4", SEED, gate="hard_sigmoid")
    assert same(nnx_blocks(module), expected)
    assert same(linen_blocks(params["cell"]), expected)
    assert not same(expected, drawn("corrected-4"))


def test_what_is_refused() -> None:
    """Bad names, models without an LSTM, unknown activations and stacks of cells are refused, with nothing touched."""
    params = linen_params(linen.LSTMCell)
    module = nnx_cell(nnx.OptimizedLSTMCell)
    before = nnx_blocks(module)
    for fill, what in ((ours.initialise, params), (ours.initialise_, module)):
        with pytest.raises(TheoryError, match="did you mean 'proposed-4'"):
            fill(what, "propsed-4", SEED)
    gru = linen.GRUCell(H).init(jax.random.key(0), jnp.ones(H), jnp.ones(I))
    with pytest.raises(TheoryError, match="no LSTM in these parameters: linen's LSTMCell"):
        ours.initialise(gru, "normalized", SEED)
    with pytest.raises(TheoryError, match="no LSTM in GRUCell: nnx's LSTMCell"):
        ours.initialise_(nnx_cell(nnx.GRUCell), "normalized", SEED)
    with pytest.raises(TheoryError, match="stacks of cells"):
        ours.initialise(jax.tree.map(lambda leaf: np.stack([leaf] * 2), params), "normalized", SEED)
    cell, state = nnx.split(nnx_cell(nnx.LSTMCell))
    stack = nnx.merge(cell, jax.tree.map(lambda leaf: np.stack([leaf] * 2), state))  # as nnx.vmap makes it
    with pytest.raises(TheoryError, match="stacks of cells"):
        ours.initialise_(nnx.List([module, stack]), "normalized", SEED)
    with pytest.raises(TheoryError, match="<lambda>"):
        ours.initialise_(nnx.List([module, nnx_cell(nnx.LSTMCell, gate_fn=lambda x: x)]), "normalized", SEED)
    assert same(nnx_blocks(module), before)


def test_a_missing_flax_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Flax the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "flax", None)
    monkeypatch.delitem(sys.modules, "peephole.init.flax")
    with pytest.raises(ImportError, match=r"pip install 'peephole\[flax\]'"):
        importlib.import_module("peephole.init.flax")
