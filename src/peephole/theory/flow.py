"""The signal by step: what `propagate` predicts and `simulate` measures, in one shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from peephole.theory.activations import Array

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of h^2 and c^2 that a Flow holds."""


@dataclass(frozen=True, eq=False)
class Flow:
    """Arrays by step, over units, sequences and networks taken together.

    `var_h`, `var_c` are variances; `quantiles_h`, `quantiles_c` hold the QUANTILES of h^2 and c^2 in columns
    (medians tell what the bulk of units does where a few dominate the mean). `gate_mean` and `gate_var` have
    one array for each of f, i, o and c. `se_*` are standard errors: between networks in a simulation, of the
    sampling at that step in a `wide` prediction (what sampled covariances pass on from earlier steps comes on
    top: little for white inputs, a factor of three where correlated inputs make h grow), zero at `linear`, which
    knows moments only, so that its quantiles are NaN.
    """

    level: str
    var_h: Array
    var_c: Array
    mean_h: Array
    mean_c: Array
    quantiles_h: Array
    quantiles_c: Array
    gate_mean: dict[str, Array]
    gate_var: dict[str, Array]
    se_var_h: Array
    se_var_c: Array
    se_median_h: Array
    se_median_c: Array

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self.var_h)

    @property
    def median_h(self) -> Array:
        """The median of h^2 by step."""
        return np.asarray(self.quantiles_h[:, QUANTILES.index(0.5)])

    @property
    def median_c(self) -> Array:
        """The median of c^2 by step."""
        return np.asarray(self.quantiles_c[:, QUANTILES.index(0.5)])
