"""The application and its manners: 0 yes, 1 the answer is no, 2 bad input, told in one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated

import typer
from typer.exceptions import TyperException

from peephole import __version__
from peephole.cli.bench import bench
from peephole.cli.check import check
from peephole.cli.export import export
from peephole.cli.forecast import forecast
from peephole.cli.inspect import inspect
from peephole.cli.reproduce import reproduce
from peephole.cli.solve import solve
from peephole.data import DataError
from peephole.experiments.errors import ExperimentError
from peephole.inspect.errors import InspectError
from peephole.interop.errors import InteropError
from peephole.progression.errors import ProgressionError
from peephole.theory import TheoryError

OURS = (TheoryError, DataError, ExperimentError, InspectError, InteropError, ProgressionError)
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Start LSTMs right: variances that keep the signal's scale, and what they do to it.",
    epilog="Exit status: 0 done or yes, 1 the answer is no, 2 wrong usage or bad input.",
)
app.command()(solve)
app.command()(check)
app.command()(reproduce)
app.command()(export)
app.command()(bench)
app.add_typer(forecast, name="forecast")
app.command()(inspect)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"peephole {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """The options of no command in particular."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± still gets its numbers
    try:
        status = app(args=given, prog_name="peephole", standalone_mode=False)
    except (*OURS, TyperException, OSError, ImportError, MemoryError) as error:
        message = _one_line(error)
        if message:  # none where the help was shown for want of a command
            typer.echo(f"peephole: {message}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("peephole: interrupted", err=True)
        sys.exit(130)
    sys.exit(status or 0)


def _one_line(error: Exception) -> str:
    if isinstance(error, TyperException):
        message = error.format_message()
    elif isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}"
    elif isinstance(error, MemoryError):
        message = f"out of memory: {error}"
    else:
        message = str(error)
    return " ".join(message.split())
