"""What goes wrong in this room, each in one line."""


class InteropError(ValueError):
    """A file, a module or weights that cannot be taken over: one line that says what, where, and what would do."""


class DisagreementError(InteropError):
    """ONNX Runtime does not compute what the module does; nothing was written."""
