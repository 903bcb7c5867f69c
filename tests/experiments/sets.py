"""Small real material for the tests of experiments: a part of Crop, and jobs on it."""

from __future__ import annotations

from typing import Any

from peephole.experiments import paper
from peephole.experiments.jobs import Job
from peephole.experiments.training import Material


def crop(series: int = 60) -> Material:
    """Some of Crop."""
    whole = paper.series("Crop")
    return Material("Crop", whole.train[:: 7200 // series], whole.test[:: 16800 // series], whole.sha256, whole.source)


def jobs(seeds: int = 2, epochs: int = 10, **descent: Any) -> list[Job]:
    """Three methods on it."""
    return paper.jobs([crop()], ["proposed-4", "normalized", "orthogonal"], seeds, epochs, **descent)


def plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what says where and when it was made."""
    return {name: value for name, value in record.items() if name != "provenance"}
