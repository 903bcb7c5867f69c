"""Where each framework keeps an LSTM's weights, as data. Gates carry the paper's letters: c is the cell input.

`weights.weights` gives each gate's matrices as in the paper, (M, N) and (M, M); here stands how they are stacked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from peephole.init.methods import Array


@dataclass(frozen=True)
class Layout:
    """The order in which gates are stacked, of peepholes too; `transposed` frameworks multiply x from the left."""

    gates: tuple[str, ...]
    peepholes: tuple[str, ...] = ("i", "f", "o")
    transposed: bool = False

    def stack(self, drawn: Mapping[str, Array], letter: str) -> Array:
        """All gates' W, U, V or b as one array: rows stacked, or columns where transposed."""
        blocks = [drawn[f"{letter}_{gate}"] for gate in (self.peepholes if letter == "V" else self.gates)]
        stacked = np.concatenate(blocks)
        return stacked.T if self.transposed and stacked.ndim == 2 else stacked

    def split(self, stacked: Array, letter: str) -> dict[str, Array]:
        """The reverse: each gate's block."""
        names = self.peepholes if letter == "V" else self.gates
        rows = stacked.T if self.transposed and stacked.ndim == 2 else stacked
        return {f"{letter}_{gate}": block for gate, block in zip(names, np.split(rows, len(names)), strict=True)}


TORCH = Layout(("i", "f", "c", "o"))  # nn.LSTM, nn.LSTMCell, PeepholeLSTM
KERAS = Layout(("i", "f", "c", "o"), transposed=True)
NNX_OPTIMIZED = Layout(("i", "f", "c", "o"), transposed=True)  # dense_i.kernel, dense_h.kernel
EQUINOX = Layout(("i", "f", "c", "o"))
TORCHRECURRENT = Layout(("i", "f", "c", "o"))
ONNX = Layout(("i", "o", "f", "c"), ("i", "o", "f"))
# Kernels of their own, (I, H) and (H, H), named by the gate: linen's and nnx's LSTMCell. The bias is on the h side.
FLAX_NAMES = {"i": "i", "f": "f", "c": "g", "o": "o"}
