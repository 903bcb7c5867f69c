"""The benchmark of starts, on a small set of our own making."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.starts import report, work


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Forty series of 30 steps for training and for testing: an exact AR(2), its phase and one of two frequencies."""
    rng = np.random.default_rng(0)
    for part in ("TRAIN", "TEST"):
        labels = rng.integers(1, 3, 40)
        waves = np.sin(0.3 * np.arange(30) + rng.uniform(0, 6, (40, 1)))
        lines = [
            "\t".join([str(label), *map(repr, map(float, label * wave))])
            for label, wave in zip(labels, waves, strict=True)
        ]
        (tmp_path / f"Waves_{part}.tsv").write_text("\n".join(lines) + "\n")
    return str(tmp_path)


def test_peers(folder: str) -> None:
    """A sine is an AR(2) up to what leaves its first step open: AR(2) predicts it, persistence and AR(1) do not."""
    key = ("next", "Waves", 30, folder)
    errors, data = work.peers(key), work.task(*key)
    first = float((data.test_goal[:, 0] - data.test_x[:, 0]).square().mean()) / data.test_goal.shape[1]
    assert errors["AR(2)"] < 2 * first
    assert errors["AR(1)"] > 4 * errors["AR(2)"]
    assert errors["persistence"] > 4 * errors["AR(2)"]
    assert len(data.x) == 30


@pytest.mark.parametrize("kind", ["next", "label"])
def test_a_run(folder: str, kind: str) -> None:
    """A run reports each mark; the fitted head starts better; the same seed gives the same bits; the table has it."""
    key = (kind, "Waves", 40, folder)
    torch.set_num_threads(1)
    found = {start: [work.run(key, "forget-one", start, 0)] for start in work.HEADS}
    assert {len(errors[0]) for errors in found.values()} == {len(work.MARKS)}
    assert found[work.HEADS[1]][0][0] < found[work.HEADS[0]][0][0]
    assert work.run(key, "forget-one", work.HEADS[2], 0) == found[work.HEADS[2]][0]
    table = report.tables({"Waves": {"errors": {"forget-one": found}, "peers": work.peers(key)}}, work.MARKS)
    assert table.count("|") == 3 * (3 * len(work.MARKS) + 2)
