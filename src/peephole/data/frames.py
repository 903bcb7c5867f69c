"""Brings pandas in where a function needs it: importing this room stays light."""

from typing import Any


def pandas() -> Any:
    """The package pandas, or an error that names the extra which installs it."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("tables need pandas: pip install 'peephole[cohorts]'") from error
    return pandas
