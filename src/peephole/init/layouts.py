"""Where each framework keeps an LSTM's weights, as data. Gates carry the paper's letters: c is the cell input.

`weights.weights` gives each gate's matrices as in the paper, (M, N) and (M, M); here stands how they are stacked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from peephole.init.methods import Array


@dataclass(frozen=True)
class Layout:
    """The order in which gates are stacked, of peepholes too; `transposed` frameworks multiply x from the left.

    `arrays` is what a cell calls its arrays, and what each holds: the letter of all gates, or one gate's matrix. Where
    two hold the same their sum counts, and the second is zero. `needs_bias` says that no cell is without one.
    """

    gates: tuple[str, ...] = ("i", "f", "c", "o")
    peepholes: tuple[str, ...] = ("i", "f", "o")
    transposed: bool = False
    arrays: Mapping[str, str] = field(default_factory=dict)
    needs_bias: bool = False

    def stack(self, drawn: Mapping[str, Array], part: str) -> Array:
        """All gates' W, U, V or b as one array: rows stacked, or columns where transposed. A gate's own by its name."""
        blocks = [drawn[name] for name in self._names(part)]
        stacked = np.concatenate(blocks)
        return stacked.T if self.transposed and stacked.ndim == 2 else stacked

    def split(self, stacked: Array, part: str) -> dict[str, Array]:
        """The reverse: each gate's block."""
        names = self._names(part)
        rows = stacked.T if self.transposed and stacked.ndim == 2 else stacked
        return dict(zip(names, np.split(rows, len(names)), strict=True))

    def _names(self, part: str) -> list[str]:
        if len(part) > 1:
            return [part]
        return [f"{part}_{gate}" for gate in (self.peepholes if part == "V" else self.gates)]

    def write(self, blocks: Mapping[str, Array]) -> dict[str, Array]:
        """A cell's arrays by the framework's names, as far as the blocks have what they hold."""
        found: dict[str, Array] = {}
        for name, part in self.arrays.items():
            if all(block in blocks for block in self._names(part)):
                array = np.ascontiguousarray(self.stack(blocks, part))
                found[name] = np.zeros_like(array) if part in map(self.arrays.get, found) else array
        return found

    def read(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The reverse: each gate's block, from the arrays that are there."""
        blocks: dict[str, Array] = {}
        for name, part in self.arrays.items():
            for key, block in self.split(arrays[name], part).items() if name in arrays else ():
                # What is zero adds nothing, not even to the sign of a zero.
                blocks[key] = blocks[key] + block if key in blocks and block.any() else blocks.get(key, block)
        return blocks


def _by_gate(names: Mapping[str, str]) -> dict[str, str]:
    """Kernels of their own, (I, H) and (H, H), named by the gate: linen's and nnx's LSTMCell. b is on the h side."""
    sides = (("i{}.kernel", "W"), ("h{}.kernel", "U"), ("h{}.bias", "b"))
    return {name.format(of): f"{letter}_{gate}" for gate, of in names.items() for name, letter in sides}


_STACKED = {"weight_ih": "W", "weight_hh": "U"}
_TWO = {"bias_ih": "b", "bias_hh": "b"}
TORCH = Layout(arrays=_STACKED | _TWO)  # nn.LSTMCell; nn.LSTM and PeepholeLSTM stack so too
TORCHRECURRENT = Layout(arrays=_STACKED | {"weight_ph": "V"} | _TWO)
KERAS = Layout(transposed=True, arrays={"kernel": "W", "recurrent_kernel": "U", "bias": "b"})
EQUINOX = Layout(arrays=_STACKED | {"bias": "b"})
LINEN = Layout(transposed=True, arrays=_by_gate({"i": "i", "f": "f", "c": "g", "o": "o"}), needs_bias=True)
NNX = Layout(  # `if` is Python's own word
    transposed=True,
    arrays={name.replace("if.", "if_."): part for name, part in LINEN.arrays.items()},
    needs_bias=True,
)
NNX_OPTIMIZED = Layout(
    transposed=True, arrays={"dense_i.kernel": "W", "dense_h.kernel": "U", "dense_h.bias": "b"}, needs_bias=True
)
ONNX = Layout(("i", "o", "f", "c"), ("i", "o", "f"))
