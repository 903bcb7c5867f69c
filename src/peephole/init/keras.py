"""Methods as initialisers for Keras 3, on any of its backends: three objects that are saved with the model."""

from __future__ import annotations

from typing import Any

from peephole.init.layouts import KERAS
from peephole.init.methods import STEPS, Array, Distribution
from peephole.init.weights import weights
from peephole.theory import Cell, TheoryError

try:
    import keras
except ImportError as error:  # Keras itself, or the backend that it is set to
    raise ImportError(
        f"Keras cannot be imported ({error}): pip install 'peephole[keras]' brings it, and JAX, which is its "
        "backend when KERAS_BACKEND=jax is set"
    ) from error


def initialisers(method: str, seed: int, **options: Any) -> dict[str, Any]:
    """The arguments of `keras.layers.LSTM` that make it start by the method of that name; `options` as of `Kernel`.

    `unit_forget_bias` is among them and off: when on, Keras writes its own forget bias over the method's.

    The same seed and part give the same numbers, in every layer: each layer needs a part of its own, and so does
    each direction. (`keras.layers.Bidirectional` copies its layer, initialisers and all, unless `backward_layer`
    is given.) Loading a model needs no `custom_objects`, only that this module has been imported.
    """
    return {
        "kernel_initializer": Kernel(method, seed, **options),
        "recurrent_initializer": Recurrent(method, seed, **options),
        "bias_initializer": Bias(method, seed, **options),
        "unit_forget_bias": False,
    }


class _Initialiser(keras.initializers.Initializer):  # type: ignore[misc]  # Keras has no types
    """What the three have in common: all but the letter of what they draw."""

    letter: str

    def __init__(
        self, method: str, seed: int, *, part: int = 0, input_variance: float = 1.0, activation: str = "tanh",
        recurrent_activation: str = "sigmoid", distribution: Distribution | None = None, steps: int = STEPS,
    ) -> None:  # fmt: skip
        self.method, self.input_variance = method, input_variance
        self.activation, self.recurrent_activation = activation, recurrent_activation
        self.drawing: dict[str, Any] = {"seed": seed, "part": part, "distribution": distribution, "steps": steps}
        self._draw(1, 1)  # what is wrong is said here, not when the layer is built

    def get_config(self) -> dict[str, Any]:
        """The arguments that make the same initialiser again."""
        names = ("method", "input_variance", "activation", "recurrent_activation")
        return {name: getattr(self, name) for name in names} | self.drawing

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        """All four gates side by side, in Keras's order; of Keras's default type unless told."""
        units = shape[-1] // 4
        inputs = shape[0] if self.letter == "W" else units  # the others do not see it, and no U or b depends on it
        wanted = {"W": (inputs, 4 * units), "U": (units, 4 * units), "b": (4 * units,)}[self.letter]
        if tuple(shape) != wanted:
            raise TheoryError(f"{type(self).__name__} is for four gates side by side, not for shape {tuple(shape)}")
        return keras.ops.convert_to_tensor(self._draw(inputs, units), dtype=dtype or keras.config.floatx())

    def _draw(self, inputs: int, units: int) -> Array:
        activations = self.recurrent_activation, self.activation, self.activation
        cell = Cell(inputs, units, False, *activations, input_variance=self.input_variance)
        return KERAS.stack(weights(self.method, cell, only=self.letter, **self.drawing), self.letter)


@keras.saving.register_keras_serializable(package="peephole")
class Kernel(_Initialiser):
    """The `kernel_initializer`: every gate's W.

    `part` counts the layers and directions that share a seed, from 0. `input_variance` is the Var(x) of the layer.
    `activation` and `recurrent_activation` are the layer's own, by name, as some methods follow them.
    `distribution` and `steps` are those of `init.weights`.
    """

    letter = "W"


@keras.saving.register_keras_serializable(package="peephole")
class Recurrent(_Initialiser):
    """The `recurrent_initializer`: every gate's U. The arguments are those of `Kernel`."""

    letter = "U"


@keras.saving.register_keras_serializable(package="peephole")
class Bias(_Initialiser):
    """The `bias_initializer`: every gate's b, where `unit_forget_bias` is off. The arguments are those of `Kernel`."""

    letter = "b"
