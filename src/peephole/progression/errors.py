"""The one error of this room."""


class ProgressionError(ValueError):
    """A forecaster that cannot be fitted, used or loaded: one line that says what is wrong, and where."""
