"""A job: one network's training, in full, as a value. Its key names its record."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from peephole.data import split
from peephole.train import Descent

FORMAT = 1  # of records; a change here makes every record a new one


@dataclass(frozen=True)
class Job:
    """What is trained on what: the data by its hash, the method and the seed, and how to descend.

    The seed decides the split and the weights' draws, the same for every method.
    """

    dataset: str
    data: str
    method: str
    seed: int
    epochs: int
    share: float = 0.85
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 1e-4
    fill: str = "zero"
    loss_weight: str = "visit"
    patience: int | None = None
    format: int = FORMAT

    @property
    def key(self) -> str:
        """A hash of all of it."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def how(self) -> Descent:
        """How it descends."""
        return Descent(
            self.epochs, self.rate, self.momentum, self.decay,
            fill=self.fill, loss_weight=self.loss_weight, patience=self.patience,
        )  # fmt: skip

    def split(self, series: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of so many training series it is trained on, and which are for validation."""
        return split(series, share=self.share, seed=self.seed)

    @property
    def group(self) -> tuple[object, ...]:
        """Jobs alike in this differ in the method alone: they share a split and can advance together."""
        return tuple(value for name, value in asdict(self).items() if name != "method")
