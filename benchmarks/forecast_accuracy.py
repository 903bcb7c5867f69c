"""Does the forecaster beat what is simpler? Repeated cross-validation over subjects, beside the baselines.

Trains the default and the paper's architecture on four fifths of the subjects and forecasts every visit of the others
from each visit before it. Prints Markdown tables of the mean absolute error, averaged over standardised features, at
the next visit and at three years, and of the intervals' coverage. The made-up cohort has 30% missing at random; Mayo's
PBC data (`pbcseq` of R's package survival, as CSV) come from a file:

    python benchmarks/forecast_accuracy.py pbcseq.csv
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from peephole.data import DataWarning, Grid, folds, read_table, synthetic, to_grid
from peephole.progression import Evaluation, ProgressionModel, evaluate

Array = NDArray[np.float64]
BLOOD = ("bili", "albumin", "alk.phos", "ast", "platelet", "protime")
FOLDS, SHOWN = 5, {"next visit": 0, "3 years": 2}
PAPER = "the paper's architecture"


@dataclass
class Found:
    """The evaluations on the test folds of one data set."""

    ours: list[Evaluation] = field(default_factory=list)
    paper: list[Evaluation] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)  # test subjects over training subjects

    def errors(self) -> dict[str, Array]:
        """Mean absolute error (folds, K) by method."""
        found = {name: np.stack([one.mean[name][:3] for one in self.ours]) for name in self.ours[0].mean}
        return {**found, PAPER: np.stack([one.mean["model"][:3] for one in self.paper])}

    def spread(self, values: Array) -> Array:
        """The standard error of a mean over folds, for training sets overlap (Nadeau and Bengio 2003)."""
        n = len(values)
        return np.asarray(np.sqrt((1 / n + np.mean(self.shares)) * values.var(axis=0, ddof=1)))


def data(path: Path | None, subjects: int) -> Iterator[tuple[str, Grid]]:
    """Each data set on its grid."""
    if path is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # 27 subjects have one visit
            table = read_table(path, time="day", unit="days", features=BLOOD, diagnosis=None)
            yield "PBC", to_grid(table)
    yield f"made-up cohort of {subjects}, 30% missing", to_grid(synthetic.cohort(subjects, missing=0.3, seed=0).table)


def measure(grid: Grid, repeats: int, seeds: int) -> Found:
    """Train and judge on every fold."""
    found = Found()
    for number, (train, test) in enumerate(folds(grid, FOLDS, repeats=repeats, seed=1)):
        started = time.perf_counter()
        for architecture, kept in (("residual", found.ours), ("paper", found.paper)):
            epochs = 1000 if architecture == "paper" else 200
            model = ProgressionModel(architecture=architecture, seeds=seeds, seed=number, epochs=epochs)
            kept.append(evaluate(model.fit(grid.take(train)), grid.take(test)))
        found.shares.append(len(test) / len(train))
        seconds = time.perf_counter() - started
        print(f"fold {number + 1}: {found.ours[-1].mean['model'][[0, 2]].round(4)}, {seconds:.0f} s", file=sys.stderr)
    return found


def table(found: Found) -> str:
    """Errors with their standard errors, and by how much the default is better than each."""
    errors = found.errors()
    ours = errors["model"]
    lines = [
        "| | " + " | ".join(f"{name} | default better by" for name in SHOWN) + " |",
        "|---|" + "---|---|" * len(SHOWN),
    ]
    for name, values in errors.items():
        cells = []
        for k in SHOWN.values():
            gain = values[:, k] - ours[:, k]
            cells.append(f"{values[:, k].mean():.4f} ± {found.spread(values)[k]:.4f}")
            better = (
                f"{gain.mean() / values[:, k].mean():.1%} ± {found.spread(gain[:, None])[0] / values[:, k].mean():.1%}"
            )
            cells.append("" if name == "model" else f"{better}, in {(gain > 0).sum()} of {len(gain)} folds")
        lines.append(f"| {'**default**' if name == 'model' else name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def covered(found: Found) -> str:
    """The share of truths inside the intervals, over all folds, at each horizon."""
    K = min(len(one.months) for one in found.ours)
    months = found.ours[0].months[:K]
    lines = ["| inside | " + " | ".join(f"{m:g} months" for m in months) + " |", "|---|" + "---|" * K]
    counts = np.stack([one.counts[:K].sum(axis=1) for one in found.ours])
    for place, level in enumerate(found.ours[0].levels):
        shares = np.stack([one.covered[place, :K] for one in found.ours])
        mean = (shares * counts).sum(axis=0) / counts.sum(axis=0)
        lines.append(f"| {level:.0%} intervals | " + " | ".join(f"{share:.1%}" for share in mean) + " |")
    return "\n".join(lines)


def speed() -> str:
    """How long the default takes for 500 subjects of 10 visits with 6 features."""
    grid = to_grid(synthetic.cohort(500, visits=10, dropout=0.0, seed=0).table)
    wall, cpu = time.perf_counter(), time.process_time()
    model = ProgressionModel().fit(grid)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    threads = torch.get_num_threads()
    return f"{model.seeds} networks on {grid.X.shape}: {wall:.0f} s, {cpu:.0f} s of CPU on {threads} threads"


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pbcseq", type=Path, nargs="?", help="pbcseq.csv; without it the made-up cohort alone")
    parser.add_argument("--repeats", type=int, default=2, help="of five folds")
    parser.add_argument("--seeds", type=int, default=10, help="networks in an ensemble")
    parser.add_argument("--subjects", type=int, default=300, help="in the made-up cohort")
    parser.add_argument("--speed", action="store_true", help="only how long a fit takes")
    given = parser.parse_args()
    if given.speed:
        print(speed())
        return
    print(f"{FOLDS} folds, {given.repeats} times, ensembles of {given.seeds}, {date.today()}")
    for name, grid in data(given.pbcseq, given.subjects):
        found = measure(grid, given.repeats, given.seeds)
        print(f"\n**{name}**\n\n{table(found)}\n\n{covered(found)}", flush=True)


if __name__ == "__main__":
    main()
