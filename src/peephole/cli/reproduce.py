"""`peephole reproduce`: the paper's comparison over many seeds, and what of it holds."""

from __future__ import annotations

import itertools
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from peephole.cli import options as opt
from peephole.cli.output import console, print_json, status_console
from peephole.data import DataWarning
from peephole.init.methods import find
from peephole.theory import TheoryError
from peephole.theory.errors import check_count

if TYPE_CHECKING:
    from peephole.experiments.findings import Findings
    from peephole.experiments.training import Material

SHOWN = ("name", "in_paper", "made_up", "rows", "peers", "nearest", "comparisons", "notes")
_WHAT = "What is compared"
Datasets = Annotated[
    str | None,
    typer.Option(
        help="Names of UCR sets by commas, `cohort` for the fourth column; the paper's four by default.",
        rich_help_panel=_WHAT,
    ),
]
Methods = Annotated[str | None, typer.Option(help="By commas; the paper's six by default.", rich_help_panel=_WHAT)]
Seeds = Annotated[int, typer.Option(help="Seeds: each a split and its draws, for every method alike.")]
Epochs = Annotated[int, typer.Option(help="Epochs of full-batch descent.")]
Patience = Annotated[
    int | None,
    typer.Option(help="Stop a network after so many marks without a better validation loss; never by default."),
]
Executor = Annotated[
    str, typer.Option(help="serial, processes[:N], dask:ADDRESS or ray:ADDRESS.", rich_help_panel="How to run")
]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder with UCR files, NAME_TRAIN.tsv or .ts.", rich_help_panel=_WHAT)
]
Adni = Annotated[
    Path | None,
    typer.Option(
        help="ADNIMERGE.csv or TADPOLE_D1_D2.csv; a made-up cohort takes its place otherwise.", rich_help_panel=_WHAT
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for the report and the records; a second run continues there.")]


Docs = Annotated[
    Path | None,
    typer.Option(help="Write what was found as a page of Markdown too; its figures go into `figures` beside it."),
]


def reproduce(
    datasets: Datasets = None,
    methods: Methods = None,
    seeds: Seeds = 20,
    epochs: Epochs = 1000,
    executor: Executor = "processes",
    data_dir: DataDir = None,
    adni: Adni = None,
    patience: Patience = None,
    out: Out = Path("reproduction"),
    docs: Docs = None,
    json: opt.Json = False,
) -> int:
    """Train every method over many seeds, and set the distribution beside the paper's Table 2 and Figure 1.

    Writes report.html, table.md, records.parquet and the figures into --out. What was trained before is not
    trained again: a run that was stopped continues. The same seeds give the same losses on machines of
    one instruction set, whatever the executor.
    Exit status 0 once the report is written, whatever of the paper holds: that is what the report says.

    Examples:
      peephole reproduce

      peephole reproduce --datasets Crop,FordA --seeds 8 --epochs 200 --out demo

      peephole reproduce --executor dask:tcp://10.0.0.1:8786 --adni ADNIMERGE.csv
    """
    from peephole.experiments import paper
    from peephole.experiments.errors import StoreError
    from peephole.experiments.findings import gather
    from peephole.experiments.run import check, run
    from peephole.experiments.store import Store, writable
    from peephole.report.page import write, write_markdown

    for name, number in (("--seeds", seeds), ("--epochs", epochs), ("--patience", 1 if patience is None else patience)):
        check_count(name, number, 1)
    chosen = [find(name).name for name in _listed("--methods", methods, [*paper.PROPOSED, *paper.BASELINES])]
    check(executor)
    if docs is not None:
        writable(docs.parent / "figures")
        if docs.is_dir():
            raise StoreError(f"{docs} cannot be written: it is a folder")
    store = Store(out / "records")
    materials = {}
    for name in _listed("--datasets", datasets, [*paper.UNIVARIATE, "cohort"]):
        material = _read(name, data_dir, adni)
        materials[material.name] = material
        if not json:
            console.print(escape(f"{material.name}: {_sizes(material)}; {material.source}"), soft_wrap=True)
    jobs = paper.jobs(materials.values(), chosen, seeds, epochs, patience=patience)
    with _progress(sum(job.epochs for job in jobs)) as progress:
        records = run(jobs, materials, store, executor=executor, progress=progress)
    with status_console.status("reporting"):
        peers = {name: paper.peers(material) for name, material in materials.items()}
        provenance = paper.provenance(shlex.join(["peephole", *sys.argv[1:]]), materials.values(), executor)
        findings = gather(records, paper_table=paper.TABLE_2, peers=peers, provenance=provenance)
        page = write(findings, out)
        if docs is not None:
            write_markdown(findings, docs)
    if json:
        sets = [{key: getattr(d, key) for key in SHOWN} for d in findings.datasets]
        holds = {f"{claim.dataset}: {claim.text}": claim.verdict for claim in findings.claims}
        print_json({"report": str(page), "claims": holds, "summary": findings.summary, "datasets": sets})
    else:
        console.print(_table(findings))
        for line in findings.summary:
            console.print(escape(f"- {line}"))
        console.print(f"report: {escape(str(page))}", soft_wrap=True)
    return 0


def _read(name: str, data_dir: Path | None, adni: Path | None) -> Material:
    """A data set; what its reader warns of, in a line each."""
    from peephole.experiments import paper

    with status_console.status(f"{name}: reading"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", DataWarning)
        material = paper.cohort(adni) if name == "cohort" else paper.series(name, data_dir)
    for warning in said:
        status_console.print(escape(f"peephole: {warning.message}"), soft_wrap=True)
    return material


def _table(findings: Findings) -> Table:
    """Table 2: the paper's number, our median and quartiles."""
    table = Table("test MSE", box=box.SIMPLE_HEAD)
    rows: dict[str, list[str]] = {row.method: [row.method] for d in findings.datasets for row in d.rows}
    for d in findings.datasets:
        table.add_column(f"{d.name}\n{'paper, ours' if d.in_paper else 'ours'}")
        for row in d.rows:
            ours = f"{row.median:.3f} ({row.lower:.3f} to {row.upper:.3f})"
            rows[row.method].append(ours if row.paper is None else f"{row.paper:.3f}, {ours}")
    for cells in rows.values():
        table.add_row(*cells)
    return table


def _listed(option: str, given: str | None, default: list[str]) -> list[str]:
    names = default if given is None else list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if not names:
        raise TheoryError(f"{option} {given!r}: names, separated by commas")
    return names


def _sizes(material: Material) -> str:
    (train, length, features), (test, *_) = material.train.shape, material.test.shape
    return f"{train} training and {test} test series of length {length}" + (
        f", {features} features" if features > 1 else ""
    )


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Replica-epochs and the time left: a bar, or a line now and then where no terminal can draw one.

    What is heard first was done by an earlier run, and tells nothing of the speed of this one.
    """
    if not status_console.is_terminal:
        yield _Lines(total)
        return
    columns: list[Any] = [
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("replica-epochs"), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False),
    ]  # fmt: skip
    with Progress(*columns, console=status_console, speed_estimate_period=600) as bar:
        task = bar.add_task("training", total=total)
        heard = itertools.count()
        yield lambda done: bar.advance(task, done) if next(heard) else bar.reset(task, completed=done)


class _Lines:
    """Progress as lines, one in half a minute at most."""

    def __init__(self, total: int) -> None:
        self.total, self.first, self.done = total, -1, 0
        self.started = self.said = time.monotonic()

    def __call__(self, done: int) -> None:
        self.done += done
        now = time.monotonic()
        if self.first < 0:
            self.first = self.done
        elif self.done > self.first and now - self.said > 30 and self.done < self.total:
            left = (now - self.started) * (self.total - self.done) / (self.done - self.first)
            self.said = now
            status_console.print(f"{self.done} of {self.total} replica-epochs, {timedelta(seconds=round(left))} left")
