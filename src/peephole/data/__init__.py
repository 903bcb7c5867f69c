"""Series and cohorts with their gaps: found, checked and made ready for training."""

from peephole.data import adni, synthetic, ucr
from peephole.data.cohort import Drop, Grid, Report, Table, folds, read_table, split_subjects, to_grid
from peephole.data.errors import DataError, DataWarning
from peephole.data.prepare import mean_and_sd, split, standardise

__all__ = [
    "DataError",
    "DataWarning",
    "Drop",
    "Grid",
    "Report",
    "Table",
    "adni",
    "folds",
    "mean_and_sd",
    "read_table",
    "split",
    "split_subjects",
    "standardise",
    "synthetic",
    "to_grid",
    "ucr",
]
