"""The one error of this room."""


class InteropError(ValueError):
    """A file, a module or weights that cannot be taken over: one line that says what, where, and what would do."""
