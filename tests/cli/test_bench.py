"""`peephole bench`: ratios where the outputs agree, and nothing where they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from peephole import bench
from peephole.bench import speed
from peephole.nn import functional
from tests.cli.test_commands import run

SMALL = speed.Size(4, 5, 3, 3, 1.0, 1.0)


@pytest.fixture
def one_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of one row that takes no time, and threads left as they are."""
    monkeypatch.setattr(bench, "SIZES", (SMALL,))
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    monkeypatch.setattr(bench, "use_threads", lambda count: None)


@pytest.mark.usefixtures("one_small_size")
def test_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    """Every peer that fits the size is timed."""
    assert run("bench", "--rounds", "1", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert {"ours", "nn.LSTM", "loop", "ours, loss", "torchrecurrent"} <= row["seconds"].keys()
    assert min(row["seconds"].values()) > 0


@pytest.mark.usefixtures("one_small_size")
def test_refused_where_outputs_disagree(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With a kernel that errs by a thousandth nothing is printed but why; exit status 1."""
    right = functional.peephole_lstm

    def wrong(x: torch.Tensor, *weights: Any, backend: str) -> object:
        y, state = right(x, *weights, backend=backend)
        return (y * 1.001 if backend == "fused" else y), state

    monkeypatch.setattr(functional, "peephole_lstm", wrong)
    assert run("bench", "--rounds", "1") == 1
    shown = capsys.readouterr()
    assert not shown.out
    assert "nothing is timed" in shown.err


def test_rows_that_do_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """A row beyond the table is refused with its length."""
    assert run("bench", "--size", "9") == 2
    assert "--size counts from 1 to 8" in capsys.readouterr().err
