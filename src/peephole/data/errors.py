"""The one error of this room, and the one warning."""


class DataError(ValueError):
    """Data that cannot be found, read or used: one line that says where, and what was expected."""


class DataWarning(UserWarning):
    """Data that were used otherwise than they stand, or that are likely to be a mistake: one line with counts."""
