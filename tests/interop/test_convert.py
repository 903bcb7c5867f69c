"""Weights to and from the real cells of every framework: equal outputs, and round trips bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

os.environ.setdefault("KERAS_BACKEND", "jax")  # read when Keras is imported

import equinox
import jax
import jax.numpy as jnp
import keras
import torchrecurrent
from flax import linen, nnx
from flax import traverse_util as untyped

from peephole import PeepholeLSTM
from peephole.interop import InteropError, export_weights, import_weights
from peephole.interop.convert import FRAMEWORKS

T, B, I, H = 11, 3, 4, 6
flat: Any = untyped
X = np.random.default_rng(0).standard_normal((B, T, I)).astype(np.float32)
Weights = dict[str, NDArray[Any]]


def drawn(module: Any) -> Any:
    """A module whose every parameter has its part in the outputs."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return module


def by_steps(step: Callable[[Any, Any], Any]) -> NDArray[Any]:
    """Outputs (B, T, H) of what maps x(t) and (h, c) to the next h and c."""
    state: Any = (np.zeros((B, H), np.float32),) * 2
    outputs = []
    for t in range(T):
        state = step(X[:, t], state)
        outputs.append(np.asarray(state[0]))
    return np.stack(outputs, 1)


def set_in_torch(cell: Any, weights: Weights) -> tuple[Weights, NDArray[Any]]:
    """The cell of torch or torchrecurrent with these weights: what it then holds, and its outputs."""
    cell.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    with torch.no_grad():
        y = by_steps(
            lambda x, state: tuple(s.numpy() for s in cell(torch.from_numpy(x), tuple(map(torch.from_numpy, state))))
        )
    return {name: tensor.numpy() for name, tensor in cell.state_dict().items()}, y


def set_in_keras(weights: Weights) -> tuple[Weights, NDArray[Any]]:
    """The same of Keras's layer."""
    layer = keras.layers.LSTM(H, return_sequences=True)
    layer.build((None, None, I))
    layer.set_weights([*weights.values()])
    return {variable.name: np.asarray(variable.value) for variable in layer.weights}, np.asarray(layer(X))


def set_in_linen(kind: Any, weights: Weights) -> tuple[Weights, NDArray[Any]]:
    """The same of a linen cell."""
    cell, params = kind(H), flat.unflatten_dict(weights, sep=".")
    drawn_by_linen = cell.init(jax.random.key(0), cell.initialize_carry(jax.random.key(0), (B, I)), X[:, 0])["params"]
    assert flat.flatten_dict(drawn_by_linen, sep=".").keys() == weights.keys()

    def step(x: Any, state: Any) -> Any:
        (c, h), _ = cell.apply({"params": params}, state[::-1], x)
        return h, c

    return flat.flatten_dict(params, sep="."), by_steps(step)


def set_in_nnx(kind: Any, weights: Weights) -> tuple[Weights, NDArray[Any]]:
    """The same of an nnx cell."""
    cell = kind(I, H, rngs=nnx.Rngs(0))
    for name, array in weights.items():
        attrgetter(name)(cell)[...] = jnp.asarray(array)

    def step(x: Any, state: Any) -> Any:
        (c, h), _ = cell(tuple(map(jnp.asarray, state[::-1])), jnp.asarray(x))
        return h, c

    return {name: np.asarray(attrgetter(name)(cell)[...]) for name in weights}, by_steps(step)


def set_in_equinox(weights: Weights) -> tuple[Weights, NDArray[Any]]:
    """The same of Equinox's cell."""
    cell = equinox.nn.LSTMCell(I, H, key=jax.random.key(0))
    cell = equinox.tree_at(attrgetter(*weights), cell, tuple(map(jnp.asarray, weights.values())))
    y = by_steps(lambda x, state: jax.vmap(cell)(x, tuple(map(jnp.asarray, state))))
    return {name: np.asarray(getattr(cell, name)) for name in weights}, y


REAL: list[tuple[str, Callable[[Weights], tuple[Weights, NDArray[Any]]]]] = [
    ("torch", lambda weights: set_in_torch(nn.LSTMCell(I, H), weights)),
    ("torchrecurrent", lambda weights: set_in_torch(torchrecurrent.PeepholeLSTMCell(I, H), weights)),
    ("keras", set_in_keras),
    ("flax-linen", partial(set_in_linen, linen.LSTMCell)),
    ("flax-linen", partial(set_in_linen, linen.OptimizedLSTMCell)),
    ("flax-nnx", partial(set_in_nnx, nnx.LSTMCell)),
    ("flax-nnx-optimized", partial(set_in_nnx, nnx.OptimizedLSTMCell)),
    ("equinox", set_in_equinox),
]


@pytest.mark.parametrize(("framework", "real"), REAL, ids=[name for name, _ in REAL])
def test_real_cells(framework: str, real: Any) -> None:
    """A real cell takes the arrays, puts out what the module does to 1e-6, and gives the module back bit for bit."""
    module = drawn(PeepholeLSTM(I, H, batch_first=True, peepholes=framework == "torchrecurrent"))
    (weights,) = export_weights(module, framework)
    held, y = real(weights)
    assert np.abs(y - module(torch.from_numpy(X))[0].detach().numpy()).max() < 1e-6
    assert held.keys() == weights.keys()
    assert all(np.array_equal(held[name], weights[name]) for name in weights)
    back = import_weights(framework, held, batch_first=True)
    assert repr(back) == repr(module)
    assert all(map(torch.equal, back.parameters(), module.parameters()))


@pytest.mark.parametrize(("framework", "real"), REAL, ids=[name for name, _ in REAL])
def test_another_order_shows(framework: str, real: Any) -> None:
    """Control: with two gates exchanged, the outputs are far off."""
    module = drawn(PeepholeLSTM(I, H, batch_first=True, peepholes=framework == "torchrecurrent"))
    wanted = module(torch.from_numpy(X))[0].detach().numpy()
    with torch.no_grad():
        i, f, c, o = module.weight_ih_l0.chunk(4)
        module.weight_ih_l0.copy_(torch.cat([i, c, f, o]))
    (weights,) = export_weights(module, framework)
    assert np.abs(real(weights)[1] - wanted).max() > 1e-2


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("layers", "both"), [(1, False), (3, False), (2, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_there_and_back(framework: str, layers: int, both: bool, dtype: torch.dtype, bias: bool) -> None:
    """Stacks and both directions come back bit for bit; without a bias too, or with zeros where there must be one."""
    module = drawn(
        PeepholeLSTM(
            I, H, layers, bidirectional=both, bias=bias, peepholes=framework == "torchrecurrent", dtype=dtype
        )
    )  # fmt: skip
    cells = export_weights(module, framework)
    assert len(cells) == layers * (1 + both)
    back = import_weights(framework, cells, bidirectional=both)
    for name, parameter in back.named_parameters():
        if name.startswith("bias") and not bias:
            assert framework.startswith("flax")
            assert not parameter.any()
        else:
            assert torch.equal(parameter, module.get_parameter(name))


def test_keras_in_both_directions() -> None:
    """A Bidirectional layer of Keras has the weights of a module of two directions, and its outputs."""
    module = drawn(PeepholeLSTM(I, H, batch_first=True, bidirectional=True, peepholes=False))
    layer = keras.layers.Bidirectional(keras.layers.LSTM(H, return_sequences=True))
    layer.build((None, None, I))
    layer.set_weights([array for cell in export_weights(module, "keras") for array in cell.values()])
    assert np.abs(np.asarray(layer(X)) - module(torch.from_numpy(X))[0].detach().numpy()).max() < 1e-6


def test_torch_s_own_modules() -> None:
    """`nn.LSTM` and `nn.LSTMCell` are exported with their two biases summed."""
    lstm, cell = drawn(nn.LSTM(I, H)), drawn(nn.LSTMCell(I, H))
    for module, end in ((lstm, "_l0"), (cell, "")):
        (weights,) = export_weights(module, "equinox")
        first, second = (module.get_parameter(f"bias_{side}{end}") for side in ("ih", "hh"))
        assert np.array_equal(weights["bias"], (first + second).detach().numpy())


def test_functions_of_their_own() -> None:
    """A hard sigmoid in the gates goes to Keras and back, as the user says which functions the cell has."""
    functions: dict[str, Any] = {"gate_activation": "hard_sigmoid", "batch_first": True}
    module = drawn(PeepholeLSTM(I, H, peepholes=False, **functions))
    layer = keras.layers.LSTM(H, return_sequences=True, recurrent_activation="hard_sigmoid")
    layer.build((None, None, I))
    (weights,) = export_weights(module, "keras")
    layer.set_weights([*weights.values()])
    assert np.abs(np.asarray(layer(X)) - module(torch.from_numpy(X))[0].detach().numpy()).max() < 1e-6
    assert repr(import_weights("keras", weights, **functions)) == repr(module)


@pytest.mark.parametrize(
    ("module", "framework", "message"),
    [
        (PeepholeLSTM(I, H), "keras", "keras has no peepholes"),
        (PeepholeLSTM(I, H, output_activation="identity"), "torchrecurrent", "has no cell with .* output identity"),
        (PeepholeLSTM(I, H, gate_activation="hard_sigmoid", peepholes=False), "equinox", "has no cell with gates hard"),
        (PeepholeLSTM(I, H, peepholes=False, dtype=torch.bfloat16), "keras", r"module\.float\(\)"),
        (nn.LSTM(I, H, proj_size=2), "keras", "projections"),
        (nn.GRU(I, H), "keras", "GRU is no LSTM"),
        (nn.LSTM(I, H), "caffe", "unknown framework 'caffe': torch, torchrecurrent, keras"),
    ],
)
def test_what_cannot_be_exported(module: Any, framework: str, message: str) -> None:
    """Peepholes that are not zero, functions and modules that a framework has not are refused by name."""
    with pytest.raises(InteropError, match=message):
        export_weights(module, framework)


def test_peepholes_of_zero_are_none() -> None:
    """Peepholes that are all zero may be left out: the network is the same."""
    module = drawn(PeepholeLSTM(I, H))
    nn.init.zeros_(module.weight_ph_l0)
    assert export_weights(module, "keras")[0].keys() == {"kernel", "recurrent_kernel", "bias"}


def _keras(**changed: Any) -> Weights:
    shapes = {"kernel": (I, 4 * H), "recurrent_kernel": (H, 4 * H), "bias": (4 * H,)}
    found = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()} | changed
    return {name: array for name, array in found.items() if array is not None}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (_keras(kernel=None), "cell 0: kernel is missing"),
        (_keras(kernels=np.zeros(3)), "'kernels' is no array of keras: kernel, recurrent_kernel, bias"),
        (_keras(kernel=np.zeros((I, 4 * H + 1), np.float32)), r"kernel has shape \(4, 25\)"),
        (_keras(kernel=np.zeros(4 * H, np.float32)), r"kernel has shape \(24,\)"),
        (_keras(kernel=np.zeros((I, 8 * H), np.float32)), "weight_ih_l0 is torch.float32 .48, 4., and"),
        (_keras(bias=np.zeros(4, np.float32)), "bias_l0 is torch.float32 .4,., and"),
        (_keras(bias=np.zeros(4 * H)), "bias_l0 is torch.float64"),
        (_keras(bias=np.zeros(4 * H, int)), "bias is int64"),
        (_keras(bias=jnp.zeros(4 * H, jnp.bfloat16)), "bias is bfloat16"),
        (_keras(bias=np.float32(0)), r"bias has shape \(\)"),
        ([], "0 cells make no LSTM"),
        ([_keras(), _keras()], "weight_ih_l1 is torch.float32 .24, 4., and"),
        ([_keras(bias=None), _keras(kernel=np.zeros((H, 4 * H), np.float32))], "bias_l1 in one cell"),
    ],
)
def test_what_cannot_be_imported(weights: Any, message: str) -> None:
    """Arrays that are missing, unknown, of other shapes or types are refused by name."""
    with pytest.raises(InteropError, match=message):
        import_weights("keras", weights)


def test_an_odd_number_of_directions() -> None:
    """Two directions come in pairs."""
    with pytest.raises(InteropError, match="1 cells make no LSTM of two directions"):
        import_weights("keras", _keras(), bidirectional=True)
