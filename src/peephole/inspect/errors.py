"""What the room raises."""


class InspectError(ValueError):
    """A model, a batch or a file that cannot be looked into; the message says why in one line."""
