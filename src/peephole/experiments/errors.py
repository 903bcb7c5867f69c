"""What goes wrong with experiments, each in one line that says what and where."""


class ExperimentError(RuntimeError):
    """Something that a user can mend: a folder, an executor, a choice of options."""


class StoreError(ExperimentError):
    """A folder that cannot be written, a full disk, a record that is not one."""


class ExecutorError(ExperimentError):
    """An executor that is unknown, not installed or cannot be reached."""
