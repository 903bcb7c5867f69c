"""`peephole bench`: ratios where the outputs agree, and nothing where they do not."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor, nn

from peephole import bench
from peephole.bench import sizes, speed
from peephole.nn import functional, kernel
from tests.cli.test_commands import run

SMALL = bench.Size(4, 5, 3, 3, 0.0, 0.0, 0.0, 0.0)
PATIENT = replace(SMALL, least=1e9)


@pytest.fixture
def one_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of one row that takes no time and asks for nothing, and threads left as they are."""
    monkeypatch.setattr(bench, "SIZES", (SMALL,))
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    monkeypatch.setattr(bench, "use_threads", lambda count: None)
    monkeypatch.setattr(bench.Size, "least_forward", 0.0)
    monkeypatch.setattr(sizes, "LEAST_TORCHRECURRENT", 0.0)
    monkeypatch.setattr(bench, "sgemm_rate", lambda: 1e9)
    replicas = speed.replicas
    monkeypatch.setattr(bench, "replicas", lambda: bench.Ratio(replicas(2, SMALL).ratio, 0.0))


@pytest.mark.usefixtures("one_small_size")
def test_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    """Every peer that fits the size is timed, and each ratio has the least that is asked and whether it is met."""
    assert run("bench", "--rounds", "1", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    (row,) = answer["rows"]
    assert {"ours", "nn.LSTM", "loop", "ours, loss", "torchrecurrent"} <= row["seconds"].keys()
    assert min(row["seconds"].values()) > 0
    assert len(row["ratios"]) == 6
    for ratio in (*row["ratios"].values(), answer["replicas"]):
        assert (ratio["least"], ratio["met"]) == (0.0, True)
        assert ratio["ratio"] > 0
    assert answer["missed"] == []
    assert run("bench", "--rounds", "1") == 0
    assert "less than asked" not in capsys.readouterr().out


@pytest.mark.usefixtures("one_small_size")
def test_less_than_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A ratio below the least that is asked is exit status 1, and is named with both, in words and as JSON."""
    monkeypatch.setattr(bench, "SIZES", (PATIENT,))
    assert run("bench", "--rounds", "1") == 1
    assert re.search(r"less than asked: 4, 5, 3, 3: nn.LSTM [\d.e+]+, not 1e\+09", capsys.readouterr().out)
    assert run("bench", "--rounds", "1", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["missed"]) == 1
    assert answer["rows"][0]["ratios"]["nn.LSTM"]["met"] is False
    assert answer["rows"][0]["ratios"]["loop"]["met"] is True


def spoilt_outputs(right: Any) -> Any:
    """A layer whose fused outputs err by a thousandth."""

    def wrong(x: Tensor, *weights: Any, backend: str) -> object:
        y, state = right(x, *weights, backend=backend)
        return (y * 1.001 if backend == "fused" else y), state

    return wrong


def spoilt_values(right: Any) -> Any:
    """A loss whose fused values do."""
    return lambda *given, backend: right(*given, backend=backend) * (1.001 if backend == "fused" else 1)


def spoilt_gradients(right: Any) -> Any:
    """A loss whose fused gradients do, its value as it should be."""

    def wrong(*given: Any, backend: str) -> Tensor:
        value: Tensor = right(*given, backend=backend)
        return value * 1.001 - 0.001 * value.detach() if backend == "fused" else value

    return wrong


def spoilt_replicas(right: Any) -> Any:
    """A loss that errs where several networks are asked for at once."""
    return lambda *given, backend: right(*given, backend=backend) * (1.001 if given[1].dim() == 3 else 1)


SPOILT = [
    ("peephole_lstm", spoilt_outputs, "outputs"),
    ("next_step_loss", spoilt_values, "next_step_loss"),
    ("next_step_loss", spoilt_gradients, "its gradient of weight_ih"),
    ("next_step_loss", spoilt_replicas, "replicas"),
]


@pytest.mark.usefixtures("one_small_size")
@pytest.mark.parametrize(("name", "spoil", "what"), SPOILT)
def test_refused_where_answers_disagree(
    name: str, spoil: Any, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a kernel that errs by a thousandth nothing is printed but why; exit status 1."""
    monkeypatch.setattr(functional, name, spoil(getattr(functional, name)))
    assert run("bench", "--rounds", "1") == 1
    shown = capsys.readouterr()
    assert not shown.out
    assert "nothing is timed" in shown.err
    assert what in shown.err


@pytest.mark.usefixtures("one_small_size")
def test_gradients_of_nn_lstm_count(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the gradients of nn.LSTM itself are others, nothing is timed."""
    right = nn.LSTM.forward

    def wrong(self: nn.LSTM, x: Tensor) -> Any:
        y, state = right(self, x)
        return y * 1.001 - 0.001 * y.detach(), state

    monkeypatch.setattr(nn.LSTM, "forward", wrong)
    assert run("bench", "--rounds", "1") == 1
    assert "gradient of weight_ih, against nn.LSTM" in capsys.readouterr().err


@pytest.mark.usefixtures("one_small_size")
@pytest.mark.parametrize(
    ("name", "value", "what"),
    [("_wish", "nonsense", "PEEPHOLE_ISA=nonsense"), ("_library", lambda: None, "the fused kernels were not built")],
)
def test_without_kernels(
    name: str, value: object, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without kernels, or with an instruction set that does not exist, there is one line that says so, and status 2."""
    monkeypatch.setattr(kernel, name, value)
    assert run("bench", "--rounds", "1") == 2
    shown = capsys.readouterr()
    assert not shown.out
    (line,) = shown.err.splitlines()
    assert line.startswith("peephole: ")
    assert what in line


def test_rows_that_do_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """A row beyond the table is refused with its length."""
    assert run("bench", "--size", "9") == 2
    assert "--size counts from 1 to 8" in capsys.readouterr().err
