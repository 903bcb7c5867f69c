"""Methods as initialisers for Keras, on its JAX backend, against `weights` and against torch."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

os.environ.setdefault("KERAS_BACKEND", "jax")  # read when Keras is imported

import keras

from peephole import init
from peephole.init import keras as ours
from peephole.init.layouts import KERAS
from peephole.theory import Cell, TheoryError, preset

# Keras reads its own variables so when it saves them.
saves = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
I, H, SEED = 3, 8, 5
CELL = Cell(I, H, peepholes=False, output="tanh")


def built(units: int = H, inputs: int = I, **arguments: Any) -> Any:
    """A Keras LSTM with its weights drawn."""
    layer = keras.layers.LSTM(units, return_sequences=True, **arguments)
    layer.build((None, None, inputs))
    return layer


def arrays(layer: Any) -> list[NDArray[np.float32]]:
    """Kernel, recurrent kernel and bias."""
    return [np.asarray(variable.value) for variable in layer.weights]


def torch_s(module: nn.Module, suffix: str = "_l0") -> list[NDArray[np.float32]]:
    """The same three of torch's LSTM, in Keras's layout; of its two biases, the first."""
    w, u, b = (getattr(module, f"{name}{suffix}").detach().numpy() for name in ("weight_ih", "weight_hh", "bias_ih"))
    return [w.T, u.T, b]


def same(left: list[NDArray[np.float32]], right: list[NDArray[np.float32]]) -> bool:
    """Whether all numbers agree bit for bit, of the same type."""
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def gates_are_orthogonal(recurrent: NDArray[np.float32]) -> bool:
    """Whether the singular values of each gate's block are all 1."""
    return all(
        np.allclose(np.linalg.svd(block, compute_uv=False), 1, atol=1e-5) for block in np.split(recurrent, 4, axis=1)
    )


@pytest.mark.parametrize("name", init.METHODS)
def test_the_same_numbers_everywhere(name: str) -> None:
    """By every method a Keras layer has the numbers of `weights`, and of torch's LSTM, bit for bit in float32."""
    layer = built(**ours.initialisers(name, SEED))
    drawn = init.weights(name, CELL, SEED)
    assert same(arrays(layer), [KERAS.stack(drawn, letter).astype(np.float32) for letter in "WUb"])
    assert same(arrays(layer), torch_s(init.initialise_(nn.LSTM(I, H), name, generator=SEED)))
    assert not same(arrays(layer), arrays(built(**ours.initialisers(name, SEED + 1))))


@pytest.mark.parametrize("name", init.METHODS)
def test_only_the_kernel_follows_the_inputs(name: str) -> None:
    """No method's U or b depends on N or on Var(x), which Keras does not show to those that draw them."""
    other = Cell(H, H, peepholes=False, output="tanh", input_variance=0.3)
    here, there = preset(name, CELL), preset(name, other)
    for gate in "ifco":
        assert here.u(gate) == pytest.approx(there.u(gate), rel=1e-14)
    left, right = (init.weights(name, cell, SEED, only="b") for cell in (CELL, other))
    assert all(np.array_equal(left[bias], right[bias]) for bias in left)


@pytest.mark.parametrize("name", ["proposed-4", "chrono", "torch-default"])
def test_the_same_outputs_as_torch(name: str) -> None:
    """Keras's own forward pass gives what torch's gives: the layout is right."""
    x = np.random.default_rng(0).standard_normal((2, 6, I)).astype(np.float32)
    module = init.initialise_(nn.LSTM(I, H, batch_first=True), name, generator=SEED)
    expected = module(torch.from_numpy(x))[0].detach().numpy()
    assert np.allclose(np.asarray(built(**ours.initialisers(name, SEED))(x)), expected, atol=1e-5)
    assert not np.allclose(np.asarray(built(**ours.initialisers(name, SEED + 1))(x)), expected, atol=1e-2)


def test_each_gate_is_orthogonal() -> None:
    """Every gate's recurrent block is orthogonal; in Keras's own default, one orthogonal stack, none is."""
    assert gates_are_orthogonal(arrays(built(**ours.initialisers("keras-default", SEED)))[1])
    default = arrays(built())[1]
    assert np.allclose(np.linalg.svd(default, compute_uv=False), 1, atol=1e-5)
    assert not gates_are_orthogonal(default)


def test_keras_s_forget_bias_is_off() -> None:
    """The biases are the method's; were `unit_forget_bias` on, Keras would write over them."""
    arguments = ours.initialisers("chrono", SEED)
    forget = slice(H, 2 * H)
    assert np.all(arrays(built(**arguments))[2][forget] != 1)
    assert np.all(arrays(built(**arguments | {"unit_forget_bias": True}))[2][forget] == 1)


def test_layers_and_directions() -> None:
    """With the part and Var(x) of its layer, a stack has the numbers of torch's; so have both directions."""
    deep = init.initialise_(nn.LSTM(I, H, num_layers=2), "proposed-4", generator=SEED)
    entering = init.output_variance("proposed-4", CELL)
    second = built(inputs=H, **ours.initialisers("proposed-4", SEED, part=1, input_variance=entering))
    assert same(arrays(second), torch_s(deep, "_l1"))

    wide = init.initialise_(nn.LSTM(I, H, bidirectional=True), "proposed-4", generator=SEED)
    forward = keras.layers.LSTM(H, **ours.initialisers("proposed-4", SEED))
    backward = keras.layers.LSTM(H, go_backwards=True, **ours.initialisers("proposed-4", SEED, part=1))
    both = keras.layers.Bidirectional(forward, backward_layer=backward)
    both.build((None, None, I))
    assert same(arrays(both), torch_s(wide) + torch_s(wide, "_l0_reverse"))

    copied = keras.layers.Bidirectional(keras.layers.LSTM(H, **ours.initialisers("proposed-4", SEED)))
    copied.build((None, None, I))  # Keras copies the initialisers, part and all
    assert same(arrays(copied)[:3], arrays(copied)[3:])


def test_activations_count() -> None:
    """A method that follows the activations is told them; Keras's hard sigmoid is the theory's."""
    hard = ours.initialisers("corrected-4", SEED, recurrent_activation="hard_sigmoid")
    cell = Cell(I, H, peepholes=False, output="tanh", gate="hard_sigmoid")
    drawn = init.weights("corrected-4", cell, SEED)
    layer = built(recurrent_activation="hard_sigmoid", **hard)
    assert same(arrays(layer), [KERAS.stack(drawn, letter).astype(np.float32) for letter in "WUb"])
    assert not same(arrays(layer), arrays(built(**ours.initialisers("corrected-4", SEED))))


@saves
def test_saved_with_the_model(tmp_path: Path) -> None:
    """A saved model is loaded without `custom_objects`, and its initialisers draw the same numbers again."""
    options: dict[str, Any] = {"part": 2, "input_variance": 0.5, "distribution": "uniform", "steps": 30}
    model = keras.Sequential(
        [keras.Input((None, I)), keras.layers.LSTM(H, **ours.initialisers("chrono", 1, **options))]
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert same(arrays(loaded), arrays(model))
    assert loaded.layers[0].kernel_initializer.get_config() == {
        "method": "chrono", "seed": 1, "activation": "tanh", "recurrent_activation": "sigmoid", **options
    }  # fmt: skip
    again = keras.layers.LSTM.from_config(loaded.layers[0].get_config())
    again.build((None, None, I))
    assert same(arrays(again), arrays(model))


@saves
def test_loaded_in_another_process(tmp_path: Path) -> None:
    """Where this module has not been imported the model is refused by name; where it has, it is loaded."""
    model = keras.Sequential([keras.Input((None, I)), keras.layers.LSTM(H, **ours.initialisers("normalized", 1))])
    model.save(tmp_path / "model.keras")
    load = f"keras.models.load_model({str(tmp_path / 'model.keras')!r}); print('loaded')"
    for before, expected in (("", False), ("import peephole.init.keras;", True)):
        command = [sys.executable, "-c", f"import keras; {before} {load}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ("loaded" in result.stdout) is expected, result.stderr
        assert ("peephole>Kernel" in result.stderr) is not expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_type_asked_for(dtype: str) -> None:
    """An initialiser gives the type that it is asked for, or Keras's default one."""
    kernel = ours.Kernel("normalized", SEED)
    assert keras.backend.standardize_dtype(kernel((I, 4 * H), dtype=dtype).dtype) == dtype
    assert keras.backend.standardize_dtype(kernel((I, 4 * H)).dtype) == keras.config.floatx()
    layer = built(dtype=dtype, **ours.initialisers("normalized", SEED))
    assert all(keras.backend.standardize_dtype(variable.dtype) == dtype for variable in layer.weights)


def test_what_is_refused() -> None:
    """A bad name, seed, activation or distribution is refused when given, a shape that is no LSTM's when it comes."""
    defaults: dict[str, Any] = {"method": "normalized", "seed": 1}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"method": "propsed-4"}, "did you mean 'proposed-4'"),
        ({"seed": -1}, "seed = -1"),
        ({"activation": "tan"}, "did you mean 'tanh'"),
        ({"distribution": "cauchy"}, "normal or uniform"),
    ]
    for arguments, message in cases:
        with pytest.raises(TheoryError, match=message):
            ours.initialisers(**defaults | arguments)
    for part, shape in ((ours.Kernel, (3, 6)), (ours.Recurrent, (3, 16)), (ours.Bias, (6,)), (ours.Bias, (4, 16))):
        with pytest.raises(TheoryError, match=rf"{part.__name__} is for four gates side by side"):
            part("normalized", 1)(shape)


def test_a_missing_keras_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Keras the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "keras", None)
    monkeypatch.delitem(sys.modules, "peephole.init.keras")
    with pytest.raises(ImportError, match=r"pip install 'peephole\[keras\]'"):
        importlib.import_module("peephole.init.keras")


def test_imported_only_by_its_user() -> None:
    """`peephole.init`, and all that its names need, loads none of the other frameworks."""
    program = (
        "import sys; from peephole import init; init.initialise_; "
        "print(*{'keras', 'jax', 'flax', 'equinox'} & sys.modules.keys())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_a_keras_layer_is_no_torch_module() -> None:
    """Given to torch's function, a layer of Keras is told where to go."""
    layer: Any = keras.layers.LSTM(2)
    with pytest.raises(TheoryError, match=r"a LSTM of keras: peephole.init.keras is for these"):
        init.initialise_(layer, "normalized")
