"""The one error of this room."""


class DataError(ValueError):
    """Data that cannot be found, read or used: one line that says where, and what was expected."""
