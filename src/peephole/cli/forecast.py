"""`peephole forecast`: train on a table of incomplete visits, predict, and evaluate against what is simpler."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as Shown

from peephole.cli import options as opt
from peephole.cli.output import console, print_json, status_console
from peephole.data.errors import DataError, DataWarning
from peephole.progression.errors import ProgressionError

if TYPE_CHECKING:
    from peephole.data import Table
    from peephole.progression import Evaluation

forecast = typer.Typer(no_args_is_help=True, help="Forecast incomplete longitudinal data: train, predict, evaluate.")

_TABLE, _MODEL, _RUN = "The table", "The model", "How to run"
File = Annotated[Path, typer.Argument(metavar="TABLE", help="CSV file, a row for each visit.", show_default=False)]
Folder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `train` wrote.", show_default=False)]
Id = Annotated[str, typer.Option(help="Column that names the subject.", rich_help_panel=_TABLE)]
Time = Annotated[str, typer.Option(help="Column of times, numbers or YYYY-MM-DD.", rich_help_panel=_TABLE)]
Unit = Annotated[str, typer.Option(help="Of times: days, weeks, months or years.", rich_help_panel=_TABLE)]
Delimiter = Annotated[str, typer.Option(help="Between cells; write tab for a tab.", rich_help_panel=_TABLE)]
Diagnosis = Annotated[str, typer.Option(help="Column of diagnoses; the empty text for none.", rich_help_panel=_TABLE)]
Adni = Annotated[
    bool, typer.Option("--adni", help="The table is ADNIMERGE.csv or TADPOLE_D1_D2.csv.", rich_help_panel=_TABLE)
]
Features = Annotated[
    str | None,
    typer.Option(
        help="Columns to forecast, by commas; else all numbers that change within a subject.", rich_help_panel=_TABLE
    ),
]
Step = Annotated[float, typer.Option(help="Months between two visits on the grid.", rich_help_panel=_MODEL)]
Tolerance = Annotated[
    float | None,
    typer.Option(help="Months a visit may lie off the grid; a third of a step by default.", rich_help_panel=_MODEL),
]
Log = Annotated[
    str | None, typer.Option(help="Features to be modelled as logarithms, by commas.", rich_help_panel=_MODEL)
]
Architecture = Annotated[str, typer.Option(help="residual or paper.", rich_help_panel=_MODEL)]
Ahead = Annotated[int, typer.Option("--horizons", help="Steps ahead to be trained.", rich_help_panel=_MODEL)]
Fill = Annotated[str | None, typer.Option(help="What stands in for missing inputs.", rich_help_panel=_MODEL)]
Units = Annotated[int, typer.Option(help="Of each LSTM.", rich_help_panel=_MODEL)]
Seeds = Annotated[int, typer.Option(help="Networks in the ensemble.", rich_help_panel=_MODEL)]
Epochs = Annotated[int, typer.Option(help="At most.", rich_help_panel=_MODEL)]
Out = Annotated[Path, typer.Option(help="Folder for the model.")]
Csv = Annotated[Path | None, typer.Option("--out", help="CSV file for the forecasts; else they are printed.")]
Months = Annotated[
    str | None, typer.Option("--horizons", help="Months after the last visit, by commas, or next; else as trained.")
]
Format = Annotated[str, typer.Option("--format", help="tidy, or tadpole: 60 months in that challenge's columns.")]
Start = Annotated[str, typer.Option(help="YYYY-MM of the first month forecast, for --format tadpole.")]
FreeRunning = Annotated[bool, typer.Option("--free-running", help="Step by step, each from the forecasts before.")]
Html = Annotated[Path | None, typer.Option(help="Also write a page with trajectories, errors and calibration.")]


@forecast.command()
def train(
    table: File,
    out: Out,
    features: Features = None,
    id: Id = "id",
    time: Time = "time",
    unit: Unit = "months",
    diagnosis: Diagnosis = "diagnosis",
    delimiter: Delimiter = ",",
    adni: Adni = False,
    step: Step = 12.0,
    tolerance: Tolerance = None,
    log: Log = None,
    architecture: Architecture = "residual",
    horizons: Ahead = 5,
    fill: Fill = None,
    units: Units = 16,
    seeds: Seeds = 10,
    epochs: Epochs = 200,
    seed: opt.Seed = 0,
    json: opt.Json = False,
) -> int:
    """Train an ensemble on all subjects of a table, and write it into a folder.

    The same table and seed give the same bytes, whatever the threads. What is odd in the table is told in a warning
    with counts; what cannot be used, in one line with file, row and column.

    Examples:
      peephole forecast train visits.csv --out model

      peephole forecast train visits.csv --out model --time day --unit days --features bili,albumin

      peephole forecast train ADNIMERGE.csv --adni --out model
    """
    from peephole.progression import ProgressionModel
    from peephole.progression.settings import recipe
    from peephole.progression.storage import check_folder

    model = ProgressionModel(
        architecture=architecture, step=step, tolerance=tolerance, horizons=horizons, fill=fill, units=units,
        seeds=seeds, epochs=epochs, seed=seed, logarithms=_listed("--log", log),
    )  # fmt: skip
    check_folder(out)
    recipe(model)  # what is wrong with the options is told before the table is read
    with _warned(table):
        visits = _read(table, _listed("--features", features), id, time, unit, diagnosis, delimiter, adni)
        with _progress() as progress:
            model.fit(visits, progress=progress)
    model.save(out)
    report = model.report_
    if json:
        print_json({
            "model": str(out), "features": model.features_, "months": model.step * model.horizons_,
            "diagnoses": None if model.diagnosis_ is None else model.diagnosis_.classes, "table": str(report),
            "rows": report.rows, "kept": report.kept, "dropped": report.counts(),
        })  # fmt: skip
        return 0
    _say(f"table: {report}")
    _say(f"features: {', '.join(model.features_)}")
    _say(f"forecasts at once up to {model.step * model.horizons_:g} months, by {model.seeds} networks")
    if model.diagnosis_ is not None:
        _say(f"diagnoses: {', '.join(model.diagnosis_.classes)}")
    _say(f"model: {out}")
    return 0


@forecast.command()
def predict(
    model: Folder,
    table: File,
    horizons: Months = None,
    out: Csv = None,
    format: Format = "tidy",
    start: Start = "2018-01",
    free_running: FreeRunning = False,
    id: Id = "id",
    time: Time = "time",
    unit: Unit = "months",
    delimiter: Delimiter = ",",
    adni: Adni = False,
    json: opt.Json = False,
) -> int:
    """Forecast every subject of a table from the last visit on: numbers, 50% and 90% intervals, diagnoses.

    Tidy output has a row for each subject and horizon. That of --format tadpole has a row for each of 60 months,
    the first of which is --start and taken to be the month after the last visit.

    Examples:
      peephole forecast predict model visits.csv --horizons 12,24,36 --out forecasts.csv

      peephole forecast predict model visits.csv --horizons next

      peephole forecast predict model TADPOLE_D1_D2.csv --adni --format tadpole --out submission.csv
    """
    from peephole.progression import ProgressionModel
    from peephole.progression.tadpole import MONTHS, first_month, to_tadpole

    if format not in ("tidy", "tadpole"):
        raise DataError(f"--format {format}: tidy or tadpole")
    if format == "tadpole" and horizons is not None:
        raise DataError(f"--horizons {horizons}: --format tadpole has {len(MONTHS)} months of its own")
    month = first_month(start)
    asked: dict[str, Any] = {"step": "next"} if horizons == "next" else {"horizons": _months(horizons)}
    fitted = ProgressionModel.load(model)
    with _warned(table):
        visits = _read(table, list(fitted.features_), id, time, unit, "", delimiter, adni)
        if format == "tadpole":
            found = to_tadpole(fitted.forecast(visits, MONTHS, free_running=free_running), month)
        else:
            found = fitted.forecast(visits, free_running=free_running, **asked)
    text = found.to_csv(index=False, float_format="%.9g", lineterminator="\n")
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if json:
        print_json({"rows": len(found), "subjects": int(found.iloc[:, 0].nunique()), "columns": list(found.columns),
                    "out": None if out is None else str(out),
                    "forecasts": found.to_dict("records") if out is None else None})  # fmt: skip
    elif out is None:
        typer.echo(text, nl=False)
    else:
        _say(f"{len(found)} forecasts of {found.iloc[:, 0].nunique()} subjects: {out}")
    return 0


@forecast.command()
def evaluate(
    model: Folder,
    table: File,
    html: Html = None,
    id: Id = "id",
    time: Time = "time",
    unit: Unit = "months",
    diagnosis: Diagnosis = "diagnosis",
    delimiter: Delimiter = ",",
    adni: Adni = False,
    json: opt.Json = False,
) -> int:
    """Judge a model on a table of subjects that it was not trained on: errors by horizon beside four baselines.

    Each visit is forecast from each of those before it. Errors are mean absolute ones in units of the training
    standard deviation, averaged over features. Exit status 0 if the model beats every baseline at every horizon,
    else 1.

    Examples:
      peephole forecast evaluate model others.csv

      peephole forecast evaluate model others.csv --html page.html
    """
    from peephole.progression import ProgressionModel
    from peephole.progression import evaluate as judge

    fitted = ProgressionModel.load(model)
    with _warned(table), status_console.status("evaluating"):
        visits = _read(table, list(fitted.features_), id, time, unit, diagnosis, delimiter, adni)
        grid = fitted.grid(visits)
        found = judge(fitted, grid)
    if html is not None:
        from peephole.progression.trajectories import trajectories
        from peephole.report.forecast import write

        write(found, trajectories(fitted, grid), html, table=table.name)
    if json:
        print_json({
            "wins": found.wins, "months": found.months, "features": found.features, "subjects": found.subjects,
            "mean": found.mean, "mae": found.mae, "mse": found.mse, "unit": found.sd, "counts": found.counts,
            "levels": found.levels, "coverage": found.coverage, "covered": found.covered, "wes": found.wes,
            "cpa": found.cpa, "mauc": found.mauc, "bca": found.bca, "html": None if html is None else str(html),
        })  # fmt: skip
    else:
        _show(found)
        if html is not None:
            _say(f"page: {html}")
    return 0 if found.wins else 1


def _show(found: Evaluation) -> None:
    columns = [f"{months:g} months" for months in found.months]
    _say(f"{found.subjects} subjects; mean absolute error in standard deviations, over {len(found.features)} features")
    errors = Shown("", *columns, box=box.SIMPLE_HEAD)
    for name, mean in found.mean.items():
        best = [value <= min(other[k] for other in found.mean.values()) for k, value in enumerate(mean)]
        errors.add_row(name, *(f"[bold]{v:.4f}[/]" if b else f"{v:.4f}" for v, b in zip(mean, best, strict=True)))
    for level, row in zip(found.levels, found.covered, strict=True):
        errors.add_row(f"inside {level:.0%} intervals", *(f"{share:.1%}" for share in row))
    for name, values in (("mAUC of diagnoses", found.mauc), ("BCA of diagnoses", found.bca)):
        if values is not None:
            errors.add_row(name, *(f"{value:.3f}" for value in values))
    console.print(errors)
    each = Shown("feature, in its own unit", *columns, box=box.SIMPLE_HEAD)
    for n, name in enumerate(found.features):
        each.add_row(escape(name), *(f"{row[n] * found.sd[n]:.4g}" for row in found.mae["model"]))
    console.print(each)
    _say("the model beats every baseline" if found.wins else "a baseline is better at some horizon")


def _read(
    path: Path, features: list[str] | None, id: str, time: str, unit: Any, diagnosis: str, delimiter: str, adni: bool
) -> Table:
    from peephole.data import adni as adni_files
    from peephole.data import read_table

    if adni:
        names = [name.removesuffix("_ICV") for name in features or adni_files.SIX]
        return adni_files.read(path, features=names)
    return read_table(
        path, id=id, time=time, unit=unit, features=features, diagnosis=diagnosis or None,
        delimiter="\t" if delimiter == "tab" else delimiter,
    )  # fmt: skip


def _listed(option: str, given: str | None) -> list[str] | None:
    if given is None:
        return None
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if not names:
        raise DataError(f"{option} {given!r}: names of columns, separated by commas")
    return names


def _months(given: str | None) -> list[float] | None:
    if given is None:
        return None
    try:
        return [float(month) for month in given.split(",")]
    except ValueError:
        raise DataError(f"--horizons {given!r}: months separated by commas, or next") from None


def _say(line: str) -> None:
    console.print(escape(line), soft_wrap=True)


@contextmanager
def _warned(table: Path) -> Iterator[None]:
    """What is odd in the table, a line each on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        try:
            yield
        except ProgressionError as error:
            raise ProgressionError(f"{table}: {error}") from None
        finally:
            for one in caught:
                text = str(one.message)
                where = "" if text.startswith(str(table)) else f"{table}: "
                typer.echo(f"peephole: warning: {where}{text.removeprefix('table: ')}", err=True)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left."""
    columns: list[Any] = [
        TextColumn("training"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    ]  # fmt: skip
    with Progress(*columns, console=status_console) as bar:
        task = bar.add_task("training", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
