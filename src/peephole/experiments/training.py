"""What a worker does: train the methods of one data set and seed together, and tell what came out."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from peephole import __version__
from peephole.experiments.jobs import Job
from peephole.init import weights
from peephole.init.layouts import TORCH
from peephole.nn import kernel
from peephole.theory import Cell
from peephole.train import WEIGHTS, Course, Sequences, descend

Record = dict[str, Any]
LETTERS = dict(zip(WEIGHTS, "WUVb", strict=True))


@dataclass(frozen=True, eq=False)
class Material:
    """A data set as the experiment needs it: standardised series (n, T, N), NaN where nothing was observed."""

    name: str
    train: NDArray[np.float32] = field(repr=False)
    test: NDArray[np.float32] = field(repr=False)
    sha256: str
    source: str

    def cell(self) -> Cell:
        """The paper's cell for it: M = N, peepholes, sigma_h the identity; gaps do not change its Table 1."""
        return Cell(self.train.shape[-1], self.train.shape[-1])


def train_group(
    material: Material, jobs: Sequence[Job], threads: int | None = None, progress: Callable[[int], None] | None = None
) -> list[Record]:
    """Train jobs of one group, and return their records; on so many threads, or on as many as there are."""
    started = time.perf_counter()
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        course = _course(material, jobs, progress)
    finally:
        torch.set_num_threads(before)
    seconds = (time.perf_counter() - started) / len(jobs)
    return [_record(job, column, course, seconds) for column, job in enumerate(jobs)]


def draw(material: Material, jobs: Sequence[Job]) -> dict[str, Tensor]:
    """The weights that the jobs start from, stacked as `descend` takes them."""
    drawn = [weights(job.method, material.cell(), job.seed) for job in jobs]
    return {
        name: torch.from_numpy(np.stack([TORCH.stack(one, letter) for one in drawn]).astype(np.float32))
        for name, letter in LETTERS.items()
    }


def _course(material: Material, jobs: Sequence[Job], progress: Callable[[int], None] | None) -> Course:
    first = jobs[0]
    trained, validation = first.split(len(material.train))
    watch = {"validation": sequences(material.train[validation]), "test": sequences(material.test)}
    return descend(draw(material, jobs), sequences(material.train[trained]), first.how, watch=watch, progress=progress)


def sequences(series: NDArray[np.float32]) -> Sequences:
    """Series (n, T, N) as (T, n, N), with a mask if anything is missing."""
    x = torch.from_numpy(np.ascontiguousarray(series.transpose(1, 0, 2)))
    seen = ~x.isnan()
    return Sequences(x) if bool(seen.all()) else Sequences(x, seen)


def _record(job: Job, column: int, course: Course, seconds: float) -> Record:
    """JSON knows no infinity: a loss that is lost is null."""

    def numbers(losses: NDArray[np.float64]) -> list[float | None]:
        return [float(loss) if np.isfinite(loss) else None for loss in losses[:, column]]

    curves = {
        "train": numbers(course.train),
        **{name: numbers(course.watched[name]) for name in ("validation", "test")},
    }
    end = int(course.stopped[column])
    return {
        "job": asdict(job),
        "key": job.key,
        **curves,
        "marks": course.marks,
        "final": {name: curve[_place(name, end, course.marks)] for name, curve in curves.items()},
        "stopped": end,
        "diverged": int(course.diverged[column]),
        "provenance": {
            "versions": {"peephole": __version__, "torch": torch.__version__, "numpy": np.__version__},
            "kernels": kernel.instruction_set()[0] if kernel.available() else "none: the plain loop",
            "machine": platform.machine(),
            "date": datetime.now(UTC).date().isoformat(),
            "seconds": round(seconds, 3),
        },
    }


def _place(curve: str, epoch: int, marks: list[int]) -> int:
    """Where a curve has its value of this epoch; the last is -1."""
    return marks.index(epoch) if epoch >= 0 and curve != "train" else epoch
