"""`peephole reproduce`: the paper's comparison over many seeds, and what of it holds."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from peephole.cli import options as opt
from peephole.cli.output import console, print_json, status_console
from peephole.theory import TheoryError
from peephole.theory.errors import check_count

if TYPE_CHECKING:
    from peephole.experiments.training import Material

_WHAT = "What is compared"
Datasets = Annotated[
    str | None,
    typer.Option(
        help="Names of UCR sets by commas, `cohort` for the fourth column; the paper's four by default.",
        rich_help_panel=_WHAT,
    ),
]
Methods = Annotated[str | None, typer.Option(help="By commas; the paper's six by default.", rich_help_panel=_WHAT)]
Seeds = Annotated[int, typer.Option(help="Seeds: each a split and a draw, the same for every method.")]
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
    json: opt.Json = False,
) -> int:
    """Train every method over many seeds, and set the distribution beside the paper's Table 2 and Figure 1.

    Writes report.html, table.md, records.parquet and the figures into --out. What was trained before is not
    trained again: a run that was stopped continues. The same seeds give the same losses, whatever the executor.
    Exit status 0 if every claim of the paper holds, 1 if not all do.

    Examples:
      peephole reproduce

      peephole reproduce --datasets Crop,FordA --seeds 8 --epochs 200 --out demo

      peephole reproduce --executor dask:tcp://10.0.0.1:8786 --adni ADNIMERGE.csv
    """
    from peephole.experiments import paper
    from peephole.experiments.findings import gather
    from peephole.experiments.run import run
    from peephole.experiments.store import Store
    from peephole.init.methods import find as method
    from peephole.report.page import write

    for name, number in (("--seeds", seeds), ("--epochs", epochs), ("--patience", 1 if patience is None else patience)):
        check_count(name, number, 1)
    names = _listed("--datasets", datasets, [*paper.UNIVARIATE, "cohort"])
    chosen = [method(name).name for name in _listed("--methods", methods, [*paper.PROPOSED, *paper.BASELINES])]
    store = Store(out / "records")
    materials = {}
    for name in names:
        with status_console.status(f"{name}: reading"):
            material = paper.cohort(adni) if name == "cohort" else paper.series(name, data_dir)
        materials[material.name] = material
        _say(json, f"{material.name}: {_sizes(material)}, from {material.source}")
    jobs = paper.jobs(materials.values(), chosen, seeds, epochs, patience=patience)
    with _progress(sum(job.epochs for job in jobs)) as progress:
        records = run(jobs, materials, store, executor=executor, progress=progress)
    with status_console.status("reporting"):
        peers = {name: paper.peers(material) for name, material in materials.items()}
        provenance = paper.provenance(shlex.join(["peephole", *sys.argv[1:]]), materials.values(), executor)
        findings = gather(records, paper_table=paper.TABLE_2, peers=peers, provenance=provenance)
        page = write(findings, out)
    holds = all(claim.verdict == "holds" for claim in findings.claims)
    if json:
        print_json({"report": str(page), "holds": holds, "claims": findings.claims, "table": findings.summary})
    else:
        console.print(escape(findings.text), soft_wrap=True)
        console.print(f"report: {escape(str(page))}", soft_wrap=True)
    return 0 if holds else 1


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


def _say(quiet: bool, line: str) -> None:
    if not quiet:
        console.print(escape(line), soft_wrap=True)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar in replica-epochs with the time left; lines where there is no terminal to draw on."""
    columns: list[Any] = [
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("replica-epochs"), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False),
    ]  # fmt: skip
    with Progress(*columns, console=status_console) as bar:
        task = bar.add_task("training", total=total)
        yield lambda done: bar.advance(task, done)
