"""`peephole forecast`: a table becomes a model, forecasts and a page; bad tables give one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from peephole.cli import main
from peephole.data import synthetic

QUICK = ["--seeds", "2", "--epochs", "5", "--horizons", "3"]


def run(*arguments: object) -> int:
    """The exit status of the command line, run in this process."""
    with pytest.raises(SystemExit) as ended:
        main(["forecast", *map(str, arguments)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of a made-up cohort, and a model trained on one of them."""
    here = tmp_path_factory.mktemp("forecast")
    table = synthetic.cohort(120, visits=6, seed=0).table
    others = table["id"].isin(table["id"].unique()[80:])
    table[~others].to_csv(here / "train.csv", index=False)
    table[others].to_csv(here / "test.csv", index=False)
    assert run("train", here / "train.csv", "--out", here / "model", *QUICK) == 0
    return here


def test_train(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same table and seed give the same bytes; what was read and trained is told, for machines as well."""
    assert run("train", folder / "train.csv", "--out", folder / "again", *QUICK, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["diagnoses"] == ["AD", "CN", "MCI"]
    assert answer["rows"] == answer["kept"] == len(pd.read_csv(folder / "train.csv"))
    assert run("train", folder / "train.csv", "--out", folder / "other", *QUICK, "--seed", 1) == 0
    shown = capsys.readouterr()
    assert "features: Ventricles_ICV" in shown.out
    assert "training" in shown.err
    for name in ("model.json", "model.safetensors"):
        written = [(folder / model / name).read_bytes() for model in ("model", "again", "other")]
        assert written[0] == written[1]
        assert written[0] != written[2]


def test_predict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each subject and horizon, to the terminal or a file, with the same bytes each time."""
    for name in ("a.csv", "b.csv"):
        command = ("predict", folder / "model", folder / "test.csv", "--horizons", "12,30", "--out", folder / name)
        assert run(*command) == 0
    assert "80 forecasts of 40 subjects" in capsys.readouterr().out
    assert (folder / "a.csv").read_bytes() == (folder / "b.csv").read_bytes()
    found = pd.read_csv(folder / "a.csv")
    assert found["horizon"].tolist()[:2] == [12, 30]
    assert run("predict", folder / "model", folder / "test.csv", "--horizons", "next") == 0
    first = capsys.readouterr().out.splitlines()
    assert first[0] == ",".join(found.columns)
    assert first[1].startswith("S081,")
    assert run("predict", folder / "model", folder / "test.csv", "--horizons", "next", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["forecasts"]) == 40


def test_tadpole(folder: Path) -> None:
    """The challenge's columns in their order, 60 months for each subject, a target that is not forecast empty."""
    command = ("predict", folder / "model", folder / "test.csv", "--format", "tadpole", "--start", "2019-11")
    assert run(*command, "--out", folder / "t.csv") == 0
    found = pd.read_csv(folder / "t.csv")
    assert list(found.columns) == [
        "RID", "Forecast Month", "Forecast Date", "CN relative probability", "MCI relative probability",
        "AD relative probability", "ADAS13", "ADAS13 50% CI lower", "ADAS13 50% CI upper", "Ventricles_ICV",
        "Ventricles_ICV 50% CI lower", "Ventricles_ICV 50% CI upper",
    ]  # fmt: skip
    assert len(found) == 40 * 60
    assert found["Forecast Date"].tolist()[:3] == ["2019-11", "2019-12", "2020-01"]
    assert found["ADAS13"].isna().all()
    assert (found["Ventricles_ICV 50% CI lower"] <= found["Ventricles_ICV"]).all()
    sums = found[[f"{name} relative probability" for name in ("CN", "MCI", "AD")]].sum(axis=1)
    np.testing.assert_allclose(sums, 1.0, atol=1e-6)


def test_evaluate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors beside every baseline's, coverage, and a page of one file with the same bytes each time."""
    command = ("evaluate", folder / "model", folder / "test.csv", "--html", folder / "page.html")
    status = run(*command)
    shown = capsys.readouterr().out
    for text in ("ridge", "inside 50%", "mAUC", "MidTemp_ICV", "36 months"):
        assert text in shown
    assert ("beats every baseline" in shown) == (status == 0)
    page = (folder / "page.html").read_text(encoding="utf-8")
    for text in ("<svg", "ridge autoregression", "90% intervals", "Trajectories", "came later"):
        assert text in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "")
    assert run(*command, "--json") == status
    answer = json.loads(capsys.readouterr().out)
    assert answer["wins"] == (status == 0)
    assert len(answer["mean"]["last value"]) == 3
    assert (folder / "page.html").read_text(encoding="utf-8") == page


def test_adni(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file with ADNIMERGE's columns is trained on and forecast with `--adni`; its volumes are over ICV."""
    table = synthetic.cohort(60, visits=5, jitter=0.0, seed=2).table
    icv = 1.5e6
    month = table["time"].astype(int)
    rows = {
        "RID": table["id"].str[1:].astype(int), "VISCODE": ["bl" if m == 0 else f"m{m:02d}" for m in month],
        "EXAMDATE": "2010-01-01", "DX": table["diagnosis"].replace({"AD": "Dementia"}), "AGE": table["age"],
        "ICV": icv, "Month_bl": month,
    }  # fmt: skip
    rows |= {name.removesuffix("_ICV"): (table[name] * icv).round(1) for name in table if name.endswith("_ICV")}
    path = folder / "ADNIMERGE.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    assert run("train", path, "--adni", "--out", folder / "adni", *QUICK) == 0
    assert "diagnoses: AD, CN, MCI" in capsys.readouterr().out
    assert run("predict", folder / "adni", path, "--adni", "--horizons", "next", "--out", folder / "adni.csv") == 0
    found = pd.read_csv(folder / "adni.csv")
    assert len(found) == 60
    assert found["WholeBrain_ICV"].between(0.3, 1.0).all()


def test_a_model_that_loses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The paper's cell, hardly trained, loses to a baseline: exit status 1."""
    few = ("--architecture", "paper", "--epochs", 1, "--seeds", 1, "--horizons", 1)
    assert run("train", folder / "train.csv", "--out", folder / "paper", *few) == 0
    assert run("evaluate", folder / "paper", folder / "test.csv") == 1
    assert "a baseline is better" in capsys.readouterr().out


HEAD = "id,time,x,y,diagnosis\n"
ROWS = "".join(
    f"{who},{12 * t},{who + t * 0.5:g},{(who * 7 + t * 3) % 5},CN\n" for who in range(1, 9) for t in range(4)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + ROWS + "1,12,5,5,CN\n", "1 row with an (id, time) seen before"),
        (HEAD + ROWS + "9,0,>1700,1,CN\n9,12,3,1,CN\n", ">1700"),
        (HEAD.replace("y,", "y,z,") + ROWS.replace(",CN", ",,CN"), "never observed: z"),
        (HEAD + ROWS + "9,0,1,1,CN\n", "1 subject with one visit"),
        (HEAD + ROWS + "9,0,inf,1,CN\n9,12,3,1,CN\n", "infinite"),
        (HEAD + ROWS.replace("CN", ""), "no diagnosis: column 'diagnosis' is empty"),
        (HEAD.replace(",diagnosis", "") + ROWS.replace(",CN", ""), "no diagnosis: there is no column 'diagnosis'"),
    ],
)
def test_odd_tables_are_used_with_a_warning(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is odd is told in one line with counts on standard error, and the model is trained."""
    path = tmp_path / "odd.csv"
    path.write_text(text)
    assert run("train", path, "--out", tmp_path / "m", "--seeds", 1, "--epochs", 1) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("peephole: warning: ")]
    assert any(message in line and "odd.csv" in line for line in said), said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file"),
        (HEAD, "column names without rows"),
        ((HEAD + ROWS).replace(",", ";"), "delimiter"),
        (HEAD + ROWS + "9,0,many,1,CN\n", "column 'x': 'many'"),
        (HEAD + ROWS + "9,2020-01-01,1,1,CN\n", "column 'time'"),
        (HEAD + ROWS + "9,soon,1,1,CN\n", "column 'time'"),
        (HEAD + ROWS + ",0,1,1,CN\n", "empty, expected the subject's name"),
        (HEAD + "".join(f"{who},0,{who},{who % 3},CN\n" for who in range(9)), "nothing to learn from"),
    ],
)
def test_bad_tables_are_refused(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be used is one line with the file, and with row and column where there are any; status 2."""
    path = tmp_path / "bad.csv"
    path.write_text(text)
    assert run("train", path, "--out", tmp_path / "m", "--seeds", 1, "--epochs", 1) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    lines = [line for line in said if line.startswith("peephole: ")]
    assert len(lines) == 1, said
    assert message in lines[0]
    assert "bad.csv" in lines[0]
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("predict", "none", "test.csv"), "none: no such folder"),
        (("predict", "model", "none.csv"), "none.csv: No such file"),
        (("predict", "model", "test.csv", "--horizons", "soon"), "--horizons 'soon'"),
        (("predict", "model", "test.csv", "--horizons", "-1"), "above 0"),
        (("predict", "model", "test.csv", "--format", "xml"), "--format xml"),
        (("predict", "model", "test.csv", "--format", "tadpole", "--start", "May"), "YYYY-MM"),
        (("train", "train.csv", "--out", "train.csv"), "train.csv: a file"),
        (("train", "train.csv", "--out", "m", "--features", "bili"), "no column 'bili'"),
        (("train", "train.csv", "--out", "m", "--architecture", "grand"), "architecture 'grand'"),
        (("train", "train.csv", "--out", "m", "--unit", "decades"), "unit 'decades'"),
    ],
)
def test_wrong_usage(
    command: tuple[str, ...],
    message: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line that says what and where; status 2."""
    monkeypatch.chdir(folder)
    assert run(*command) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("peephole: ")]
    assert len(lines) == 1
    assert message in lines[0]


def test_a_tampered_model(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model whose numbers were cut is refused by name."""
    import shutil

    shutil.copytree(folder / "model", tmp_path / "cut")
    numbers = tmp_path / "cut" / "model.safetensors"
    numbers.write_bytes(numbers.read_bytes()[:-4])
    assert run("predict", tmp_path / "cut", folder / "test.csv") == 2
    assert "model.safetensors: not the bytes" in capsys.readouterr().err
