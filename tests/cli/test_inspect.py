"""`peephole inspect`: page, JSON and status."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from peephole import init, interop
from peephole.cli import main


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A good start, a bad one, and a batch, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    interop.files.save(init.initialise_(nn.LSTM(3, 16), "forget-one", generator=0), "good.safetensors")
    bad = init.initialise_(nn.LSTM(3, 16), "forget-one", generator=0)
    bad.get_parameter("bias_ih_l0").data[16:32] = -5
    interop.files.save(bad, "bad.safetensors")
    np.save("x.npy", np.random.default_rng(0).standard_normal((8, 30, 3)))


def run(*arguments: str) -> int:
    """The exit status of the command line, run in this process."""
    with pytest.raises(SystemExit) as ended:
        main(["inspect", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


class Outline(HTMLParser):
    """Tags and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note them."""
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "srcset", "xlink:href")]


def test_a_good_start(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing wrong is status 0, and a page is written that needs nothing from outside."""
    assert run("good.safetensors", "--batch", "x.npy") == 0
    assert "nothing is wrong" in capsys.readouterr().out
    page = Outline()
    text = Path("inspect.html").read_text(encoding="utf-8")
    page.feed(text)
    assert page.tags.count("svg") == 3
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all(address.startswith("#") for address in page.addresses)
    assert len(page.ids) == len(set(page.ids))
    assert "Nothing is wrong" in text
    assert "good.safetensors" in text


def test_a_bad_start(capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong is status 1, and the same sentence stands on the terminal and in the page."""
    assert run("bad.safetensors", "--batch", "x.npy", "--out", "page.html") == 1
    (sentence,) = re.findall(r"^- (.*stuck closed.*)$", capsys.readouterr().out, flags=re.MULTILINE)
    assert "averages 0.00" in sentence
    assert sentence.replace("'", "&#39;") in Path("page.html").read_text(encoding="utf-8")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The findings and a row a layer, for machines."""
    assert run("bad.safetensors", "--batch", "x.npy", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["advice"][0]["rule"] == "forget-closed"
    assert answer["advice"][0]["figure"] == 1.0
    assert answer["layers"][0]["mean_f"] < 0.05
    assert answer["page"] == "inspect.html"
    assert run("good.safetensors", "--batch", "x.npy", "--json", "--target", "100") == 1
    assert json.loads(capsys.readouterr().out)["advice"][0]["rule"] == "target"


def test_a_model_in_onnx(capsys: pytest.CaptureFixture[str]) -> None:
    """An exported LSTM gets the verdict of the LSTM itself."""
    interop.onnx.export(init.initialise_(nn.LSTM(3, 16), "forget-one", generator=0), "good.onnx")
    assert run("good.onnx", "--batch", "x.npy") == 0
    assert "nothing is wrong" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch speaks of its own kernels
def test_projections_have_no_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    """A layer that the theory does not cover is measured, and the page says that there is no prediction."""
    interop.files.save(init.initialise_(nn.LSTM(3, 16, proj_size=8), "forget-one", generator=0), "p.safetensors")
    assert run("p.safetensors", "--batch", "x.npy") == 0
    assert "No prediction" in Path("inspect.html").read_text(encoding="utf-8")


BAD = [
    (["good.safetensors"], "Missing option '--batch'"),
    (["missing.safetensors", "--batch", "x.npy"], "missing.safetensors: there is no such file"),
    (["good.safetensors", "--batch", "good.safetensors"], "the batch is the only array, or that named x"),
    (["x.npy", "--batch", "x.npy"], "ends in .safetensors or .onnx"),
    (["good.safetensors", "--batch", "wide.npy"], "sequences of 4 features (shape (2, 5, 4)); the model takes 3"),
    (["good.safetensors", "--batch", "nan.npy"], "nan.npy: 1 of 30 values are NaN or infinite"),
    (["broken.onnx", "--batch", "x.npy"], "broken.onnx"),
    (["linear.safetensors", "--batch", "x.npy"], "holds no LSTM"),
    (["good.safetensors", "--batch", "x.npy", "--out", "page.txt"], "the page is an .html file"),
    (["good.safetensors", "--batch", "x.npy", "--out", "no/page.html"], "there is no folder no"),
    (["good.safetensors", "--batch", "x.npy", "--out", "folder.html"], "--out folder.html: a folder is there"),
    (["good.safetensors", "--batch", "x.npy", "--target", "nan"], "target = nan: a variance to reach"),
    (["good.safetensors", "--batch", "x.npy", "--target", "-1"], "target = -1.0: a variance to reach"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD)
def test_one_line_for_bad_input(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad input is status 2 and one line on standard error."""
    from safetensors.torch import save_file

    save_file(nn.Linear(3, 2).state_dict(), "linear.safetensors")
    Path("folder.html").mkdir()
    Path("broken.onnx").write_bytes(b"\x08\x07hello")
    np.save("wide.npy", np.zeros((2, 5, 4)))
    np.save("nan.npy", np.where(np.arange(30).reshape(2, 5, 3) == 7, np.nan, 1.0))
    assert run(*arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.count("\n") == 1
