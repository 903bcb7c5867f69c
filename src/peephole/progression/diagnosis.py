"""Diagnosis probabilities from forecast features: linear discriminant analysis, kept as plain numbers."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from peephole.progression.errors import ProgressionError
from peephole.progression.history import Array


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The probability of each of `classes` (C,) is the softmax of `weight` (C, N) @ features + `bias` (C,)."""

    classes: tuple[str, ...]
    weight: Array
    bias: Array

    @classmethod
    def fit(cls, features: Array, diagnosis: NDArray[np.str_]) -> Self | None:
        """From features (n, N) and diagnoses (n,), of which the empty text is none; None without two classes.

        scikit-learn's `LinearDiscriminantAnalysis`, its covariance shrunk by the rule of Ledoit and Wolf.
        """
        rows = (diagnosis != "") & ~np.isnan(features).any(axis=1)
        names, counts = np.unique(diagnosis[rows], return_counts=True)
        if len(names) < 2 or counts.sum() <= len(names):
            return None
        try:
            from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        except ImportError as error:
            raise ImportError("diagnoses need scikit-learn: pip install 'peephole[forecast]'") from error
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(features[rows], diagnosis[rows])
        weight, bias = np.asarray(model.coef_, dtype=np.float64), np.asarray(model.intercept_, dtype=np.float64)
        if len(names) == 2:  # one line, positive on the side of the second class
            weight, bias = np.stack([np.zeros_like(weight[0]), weight[0]]), np.array([0.0, bias[0]])
        return cls(tuple(str(name) for name in names), weight, bias)

    def probabilities(self, features: Array) -> Array:
        """The probabilities (..., C) of features (..., N)."""
        if features.shape[-1] != self.weight.shape[1]:
            raise ProgressionError(f"{features.shape[-1]} features, the diagnosis was fitted on {self.weight.shape[1]}")
        chances: Array = softmax(features @ self.weight.T + self.bias, axis=-1)
        return chances
