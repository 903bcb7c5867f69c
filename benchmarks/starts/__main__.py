"""What does a start buy? The error before any training and after 1, 5 and 20 epochs of Adam, by method.

An LSTM of 64 units with a linear head, on real series, 10 seeds, with the head as torch draws it and with
`init.fit_readout_`. Two tasks: the next step of ElectricDevices, FordA and Crop (mean squared error on the test
set, beside persistence and AR(p) by least squares), and the label of three sets that aeon ships (the share that is
wrong, from the last state). Training uses a random part of the training series (`--series`), the same for all, the
readout too; tested is on 1000 test series at most.

    pip install --no-deps aeon                          # its data files are all that is read
    python -m benchmarks.starts --out docs/figures      # both tasks, tables printed; some 40 minutes on two cores
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path
from typing import Any

import joblib

from benchmarks.starts.report import draw, draw_first_steps, first_steps_table, tables
from benchmarks.starts.work import MARKS, SETS, first_steps, peers, run, task
from peephole import init
from peephole.report.plots import save


def results(kind: str, methods: list[str], seeds: int, series: int) -> dict[str, Any]:
    """Every method, readout and seed on every set of a kind, two at a time."""
    found: dict[str, Any] = {}
    for name in SETS[kind]:
        started, work = time.perf_counter(), task(kind, name, series)
        cases = list(itertools.product(methods, (False, True), range(seeds)))
        with joblib.Parallel(n_jobs=2) as parallel:
            errors = parallel(joblib.delayed(run)(work, *case) for case in cases)
            found[name] = {
                "errors": {(method, readout): [] for method, readout, _ in cases},
                "peers": peers(work),
                "first steps": [],
            }
            for (method, readout, _), error in zip(cases, errors, strict=True):
                found[name]["errors"][method, readout].append(error)
            if kind == "next":
                found[name]["first steps"] = parallel(joblib.delayed(first_steps)(work, seed) for seed in range(seeds))
        print(f"{name}: {len(cases)} runs in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Run, print the tables and draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument("--series", type=int, default=500, help="training series of each set")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--methods", nargs="*", default=list(init.METHODS))
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for kind in options.kinds:
        found = results(kind, options.methods, options.seeds, options.series)
        print(tables(found, MARKS))
        save(draw(found, MARKS, kind), options.out / f"starts-{kind}.svg")
        if kind == "next":
            print(first_steps_table(found))
            save(draw_first_steps(found), options.out / "starts-first-steps.svg")


if __name__ == "__main__":
    main()
