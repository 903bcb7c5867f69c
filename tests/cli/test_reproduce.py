"""`peephole reproduce`: the files it leaves, what a second run costs, and one line for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_commands import run

FILES = {"report.html", "table.md", "records.parquet", "losses.svg", "scores.svg", "runs.svg", "records"}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with a UCR set of a few random walks."""
    rng = np.random.default_rng(0)
    for part, series in (("TRAIN", 20), ("TEST", 12)):
        walks = rng.normal(size=(series, 15)).cumsum(1).round(6).tolist()
        lines = ["\t".join(["1", *(f"{value:g}" for value in walk)]) for walk in walks]
        (tmp_path / f"Tiny_{part}.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


def call(folder: Path, *more: str, seeds: int = 2) -> int:
    """The command on the walks and on the cohort, in one process."""
    here = ("--data-dir", str(folder), "--out", str(folder / "out"))
    small = ("--datasets", "Tiny,cohort", "--seeds", str(seeds), "--epochs", "4", "--executor", "serial")
    return run("reproduce", *small, *here, *more)


def test_the_report(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All files are there, the report's path is the last that is said, and the page names source and made-up data."""
    assert call(tiny, "--docs", str(tiny / "docs" / "page.md")) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"report: {tiny / 'out' / 'report.html'}"
    assert {path.name for path in (tiny / "out").iterdir()} == FILES
    page = (tiny / "out" / "report.html").read_text(encoding="utf-8")
    assert f"files in {tiny}" in page
    assert "synthetic cohort (made up)" in page
    text = (tiny / "docs" / "page.md").read_text(encoding="utf-8")
    for figure in ("losses", "scores", "runs"):
        assert f"(figures/page-{figure}.svg)" in text
        assert (tiny / "docs" / "figures" / f"page-{figure}.svg").exists()


def test_again_and_more(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second call trains nothing, one with more seeds only those, and JSON has what the page has."""
    assert call(tiny) == 0
    records = {path: path.stat().st_mtime_ns for path in (tiny / "out" / "records").iterdir()}
    assert len(records) == 2 * 6 * 2
    assert call(tiny) == 0
    capsys.readouterr()
    assert call(tiny, "--json", seeds=3) == 0
    assert all(path.stat().st_mtime_ns == made for path, made in records.items())
    assert len(list((tiny / "out" / "records").iterdir())) == 2 * 6 * 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["report"].endswith("report.html")
    assert answer["claims"] == {}  # neither set is the paper's
    assert [d["name"] for d in answer["datasets"]] == ["Tiny", "synthetic cohort"]
    assert {row["seeds"] for d in answer["datasets"] for row in d["rows"]} == {3}


def test_bad_input(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is malformed, unknown or out of range is one line on standard error and status 2."""
    path = tiny / "Tiny_TRAIN.tsv"
    lines = path.read_text().splitlines()
    lines[6] = lines[6].replace("\t", "\tx", 1)
    path.write_text("\n".join(lines) + "\n")
    for arguments, message in (
        ((), f"{path}:7: value 1 is"),
        (("--seeds", "0"), "--seeds"),
        (("--patience", "0"), "--patience"),
        (("--methods", "proposed-9"), "proposed-9"),
        (("--datasets", ","), "names, separated by commas"),
        (("--datasets", "cohort", "--adni", str(path)), str(path)),
        (("--executor", "threads"), "unknown executor"),  # before the data, which is malformed, is read
        (("--docs", str(path / "page.md")), "figures cannot be written"),
        (("--docs", str(tiny)), "it is a folder"),
    ):
        assert call(tiny, *arguments) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("peephole: ")
        assert message in line


def test_a_folder_that_cannot_be_written(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file where the folder should be is told before anything is trained."""
    (tiny / "out").write_text("")
    assert call(tiny) == 2
    assert "out/records cannot be written" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full disk to write to")
def test_a_full_disk(tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full when the report is written leaves records and no report, in one line; then it goes on."""
    write = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda self, data: write(Path("/dev/full"), data))
    assert call(tiny) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "peephole: " in line]
    assert "No space left on device" in line
    assert str(tiny / "out") in line
    assert {path.name for path in (tiny / "out").iterdir()} == {"records"}
    monkeypatch.undo()
    assert call(tiny) == 0


def test_early_stopping(tiny: Path) -> None:
    """With --patience runs have records of their own, which end at the best mark."""
    assert call(tiny, "--patience", "1", "--epochs", "100", "--datasets", "Tiny") == 0
    found = [json.loads(path.read_text()) for path in (tiny / "out" / "records").iterdir()]
    stopped = [record for record in found if record["stopped"] >= 0]
    assert stopped
    for record in stopped:
        assert record["final"]["validation"] == min(record["validation"])
        assert record["final"]["train"] == record["train"][record["stopped"]]
