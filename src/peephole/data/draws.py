"""Random draws whose bits do not depend on NumPy's version, which promises those of the bit generator only."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[np.float64]


class Stream:
    """Draws from a seed, independent of those from the same seed at another place."""

    def __init__(self, seed: int, place: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, place]))

    def uniform(self, *shape: int) -> Array:
        """Between 0 and 1, never either."""
        raw = self._bits.random_raw(int(np.prod(shape))) >> np.uint64(12)
        drawn: Array = ((raw.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)
        return drawn

    def normal(self, *shape: int) -> Array:
        """Of mean 0 and variance 1."""
        drawn: Array = ndtri(self.uniform(*shape))
        return drawn

    def order(self, n: int) -> NDArray[np.intp]:
        """The numbers below `n`, shuffled."""
        return np.argsort(self._bits.random_raw(n), kind="stable")
