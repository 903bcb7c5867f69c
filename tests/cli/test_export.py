"""`peephole export`: what it writes, says and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from peephole import PeepholeLSTM
from peephole.cli import main
from peephole.init.layouts import ONNX, Layout
from peephole.interop import files, onnx


def run(*arguments: object) -> int:
    """The exit status of the command line, run in this process."""
    with pytest.raises(SystemExit) as ended:
        main(["export", *map(str, arguments)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved module with peepholes that count."""
    module = PeepholeLSTM(3, 4, 2, bidirectional=True)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(0))
    files.save(module, tmp_path / "lstm.safetensors")
    return tmp_path / "lstm.safetensors"


def test_exports(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file has the module's weights; people and machines are told how far ONNX Runtime was; status 0."""
    out = saved.with_name("lstm.onnx")
    assert run(saved, out) == 0
    said = capsys.readouterr().out
    assert "PeepholeLSTM, 3 inputs, 4 units, layers: 2, directions: 2" in said
    assert all(map(torch.equal, onnx.load(out).parameters(), files.load(saved).parameters()))
    assert run(saved, out, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["difference"] < 1e-5
    assert (answer["class"], answer["inputs"], answer["units"], answer["layers"]) == ("PeepholeLSTM", 3, 4, 2)


def test_disagreement_is_a_no(saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where ONNX Runtime computes something else nothing is written, and the status is 1."""
    monkeypatch.setattr("peephole.interop.graph.layouts.ONNX", Layout(ONNX.gates, ("i", "f", "o")))
    assert run(saved, saved.with_name("lstm.onnx")) == 1
    assert "differs from the module's" in capsys.readouterr().err
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_bad_input(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no saved LSTM, and where nothing can be written, is told in one line; status 2."""
    text, out = tmp_path / "a.txt", tmp_path / "a.onnx"
    text.write_text("import os")
    double = tmp_path / "double"
    files.save(PeepholeLSTM(2, 2, dtype=torch.float64), double)
    for arguments, message in (
        ((text, out), "not a whole safetensors file"),
        ((text, out), "one that peephole.interop.files.save wrote is wanted"),
        ((tmp_path / "none", out), "No such file"),
        ((saved, tmp_path / "none" / "a.onnx"), "no such folder"),
        ((saved, text), "the name must end in .onnx"),
        ((double, out), "export module.float()"),
        ((saved,), "Missing argument"),
    ):
        assert run(*arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert error.startswith("peephole: ")
    assert not out.exists()
