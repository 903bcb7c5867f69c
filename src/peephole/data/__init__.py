"""Series and cohorts with their gaps: found, checked and made ready for training."""

from peephole.data import synthetic, ucr
from peephole.data.errors import DataError
from peephole.data.prepare import mean_and_sd, split, standardise

__all__ = ["DataError", "mean_and_sd", "split", "standardise", "synthetic", "ucr"]
