"""What does a start buy? The error before any training and after 1, 5 and 20 epochs of Adam, by method.

An LSTM of 64 units with a linear head, on real series, 10 seeds: with the head as torch draws it, with
`init.fit_readout_`, and with that and what keeps the first steps from undoing it (a least penalty and a warm-up).
Two tasks: the next step of ElectricDevices, FordA and Crop (mean squared error on the test set, beside persistence
and AR(p) by least squares), and the label of three sets that aeon ships (the share that is wrong, from the last
state). Training uses a random part of the training series (`--series`), the same for all, the readout and the peers
too; tested is on 1000 test series at most.

    pip install --no-deps aeon                           # its data files are all that is read
    python -m benchmarks.starts --jobs 2 --save starts.json --out docs/figures
    python -m benchmarks.starts --load starts.json --out docs/figures     # tables and pictures once more
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.starts.report import first_steps_table, pictures, tables
from benchmarks.starts.work import HEADS, MARKS, SETS, SHOWN, Key, first_steps, peers, run
from peephole import init
from peephole.nn import kernel


def results(
    kinds: list[str], names: list[str], methods: list[str], seeds: int, series: int, folder: str | None, jobs: int
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, set and what was found there, set by set: every method, head and seed, so many at a time."""
    started = time.perf_counter()
    # A process that is forked after torch has started its threads may hang: these are started afresh.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        asked: dict[tuple[str, str], dict[str, Any]] = {}
        for kind, name in [(one, name) for one in kinds for name in SETS[one] if name in names]:
            key: Key = (kind, name, series, folder)
            asked[kind, name] = {
                "peers": pool.submit(peers, key),
                "errors": {
                    method: {
                        start: [pool.submit(run, key, method, start, seed) for seed in range(seeds)] for start in HEADS
                    }
                    for method in methods
                },
                "first steps": {
                    method: [pool.submit(first_steps, key, method, seed) for seed in range(seeds)]
                    for method in SHOWN
                    if kind == "next"
                },
            }
        for (kind, name), futures in asked.items():
            found = answered(futures)
            print(f"{name}: done after {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
            yield kind, name, found


def answered(futures: Any) -> Any:
    """The same with each future's result in its place."""
    if isinstance(futures, Future):
        return futures.result()
    if isinstance(futures, dict):
        return {key: answered(value) for key, value in futures.items()}
    return [answered(value) for value in futures]


def about(options: argparse.Namespace) -> dict[str, Any]:
    """What the numbers depend on."""
    kernels = kernel.instruction_set()[0] if kernel.available() else "none"
    return {
        "date": str(date.today()), "series": options.series, "seeds": options.seeds, "marks": list(MARKS),
        "python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__, "kernels": kernels,
    }  # fmt: skip


def main() -> None:
    """Run or load, print the tables, draw the pictures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.starts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = list(itertools.chain.from_iterable(SETS.values()))
    parser.add_argument("--kinds", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--sets", nargs="+", choices=every, default=every, help="only these of the kinds' sets")
    parser.add_argument("--series", type=int, default=500, help="training series of each set")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--methods", nargs="+", choices=init.METHODS, default=list(init.METHODS))
    parser.add_argument("--data-dir", metavar="DIR", help="folder with NAME_TRAIN.tsv (or .ts) and NAME_TEST.tsv")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, of one thread each")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="write what was found, after each set")
    parser.add_argument("--load", type=Path, nargs="+", metavar="FILE.json", help="instead of running; files add up")
    parser.add_argument("--out", type=Path, help="folder for the pictures (these need matplotlib)")
    options = parser.parse_args()
    found: dict[str, Any] = {"about": [about(options)]}
    if options.load:
        found = {"about": []}
        for file in options.load:
            for part, content in json.loads(file.read_text()).items():
                if part == "about":
                    found[part] += content
                else:
                    found.setdefault(part, {}).update(content)
    else:
        asked = (options.methods, options.seeds, options.series, options.data_dir, options.jobs)
        for kind, name, one in results(options.kinds, options.sets, *asked):
            found.setdefault(kind, {})[name] = one
            if options.save:
                options.save.parent.mkdir(parents=True, exist_ok=True)
                options.save.write_text(json.dumps(found))
    for conditions in found["about"]:
        print(", ".join(f"{name} {value}" for name, value in conditions.items()), end="\n\n")
    for kind in SETS:
        print(tables(found.get(kind, {}), MARKS))
    if "next" in found:
        print(first_steps_table(found["next"]))
    if options.out:
        pictures(found, MARKS, options.out)


if __name__ == "__main__":
    main()
