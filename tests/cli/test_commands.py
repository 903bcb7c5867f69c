"""The command line: answers, exit statuses, and one line for whatever is wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from peephole.cli import main

QUICK = ["--steps", "4", "--networks", "2", "--sequences", "4"]


def run(*arguments: str) -> int:
    """The exit status of the command line, run in this process."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("level", ["printed", "linear"])
def test_solve(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Variances, conditions and the verdict are shown; status 0."""
    assert run("solve", "--inputs", "6", "--units", "4", "--level", level) == 0
    shown = capsys.readouterr().out
    assert "peephole LSTM, 6 inputs, 4 units" in shown
    assert f"solved (level {level})" in shown
    assert "E[o]^2" in shown


def test_solve_says_no(capsys: pytest.CaptureFixture[str]) -> None:
    """Out of reach is status 1, with the reason on standard output."""
    assert run("solve", "--inputs", "1", "--fix", "w_f=13") == 1
    assert "no stable Var(h) exists" in capsys.readouterr().out


def test_solve_json_feeds_check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`solve --json` is what `check --variances -` reads; printed conditions then hold, status 0."""
    assert run("solve", "--inputs", "6", "--level", "printed", "--fix", "w_f=0.1,u_f=0.05", "--json") == 0
    text = capsys.readouterr().out
    solution = json.loads(text)["solution"]
    assert solution["variances"]["w_f"] == 0.1
    assert solution["result"] == "solved"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run("check", "--variances", "-", "--json", *QUICK) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["cell"]["inputs"] == 6  # the cell comes along
    assert answer["holds"] is True
    assert len(answer["checked"][0]["flows"]["wide"]["var_h"]) == 4


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["proposed-1", "proposed-4"], 0),
        (["normalized"], 1),
        (["proposed-1", "normalized"], 1),
        (["corrected-2", "--level", "linear"], 0),
        (["proposed-1", "--level", "linear"], 1),
        (["corrected-2", "--level", "feedback"], 1),
        (["normalized", "--gate", "hard_sigmoid"], 1),
    ],
)
def test_the_status_of_check(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """0 if every condition of the level holds for all that was asked, else 1."""
    assert run("check", *arguments, "--inputs", "8", *QUICK) == status
    assert "Var(h) of simulated networks is" in capsys.readouterr().out


def test_check_given_variances(capsys: pytest.CaptureFixture[str]) -> None:
    """--fix alone gives all variances; those of (3) worked out by hand hold."""
    fixed = "w_f=2,u_f=0,w_i=4,u_i=0,w_o=4,u_o=0,w_c=5,u_c=0"
    assert run("check", "--no-peepholes", "--inputs", "1", "--fix", fixed, *QUICK) == 0
    assert "A_o A_c / 16" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_check_draws(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--plot leaves a picture of that kind and says where."""
    picture = tmp_path / f"check.{suffix}"
    assert run("check", "proposed-1", "--inputs", "4", "--plot", str(picture), *QUICK) == 0
    assert picture.stat().st_size > 5000
    assert "picture:" in capsys.readouterr().out


BAD = [
    (["chek"], "No such command 'chek'"),
    (["solve", "--inputs", "0"], "inputs = 0: a cell needs"),
    (["solve", "--inputs", "x"], "Invalid value for '--inputs'"),
    (["solve", "--gate", "sigmod"], "did you mean 'sigmoid'"),
    (["solve", "--level", "wild"], "did you mean 'wide'"),
    (["solve", "--fix", "w_f"], "write NAME=NUMBER"),
    (["solve", "--fix", "w_f=-1"], "w_f = -1.0: a variance must be finite and not negative"),
    (["solve", "--fix", "w_f=nan"], "w_f = nan"),
    (["solve", "--fix", "w_g=1"], "unknown variance 'w_g'"),
    (["solve", "--target", "nan"], "target = nan"),
    (["solve", "--gate", "relu", "--level", "printed"], "levels 'linear' (smooth activations) and 'wide' (any)"),
    (["check"], "nothing to check"),
    (["check", "proposd-1"], "did you mean 'proposed-1'"),
    (["check", "normalized", "--fix", "v_f=-1"], "v_f = -1.0"),
    (["check", "normalized", "--steps", "0"], "steps"),
    (["check", "normalized", "--level", "x"], "printed, linear or feedback"),
    (["check", "normalized", "--plot", "no/such/folder/x.png"], "there is no folder"),
    (["check", "normalized", "--plot", "x.gif"], ".png, .svg or .pdf"),
    (["check", "--variances", "no-such-file.json"], "no-such-file.json"),
    (["check", "proposed-1", "--autocorrelation", "1.5"], "lies in [-1, 1]"),
    (["check", "proposed-1", "--autocorrelation", "nan"], "finite numbers"),
    (["check", "proposed-1", "--target", "nan"], "target = nan"),
    (["check", "proposed-1", "--networks", "0"], "networks = 0"),
    (["check", "proposed-1", "--seed", "-1"], "seed = -1"),
    (["check", "normalized", "--fix", "w_f=1e300"], "w_f = 1e+300"),
    (["solve", "--fix", "w_f=1,w_f=2"], "w_f is fixed twice"),
    (["solve", "--level", "wide", "--steps", "0"], "steps = 0"),
    (["solve", "--level", "wide", "--feedback"], "level 'linear' alone"),
    (["solve", "--seed", "-1"], "seed = -1"),
    (["solve", "--gate", "identity", "--cell-input", "sigmoid", "--forget-bias", "1"], "makes E[c] grow"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, nothing on standard output, and one line that says what is wrong."""
    assert run(*arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert message in output.err


def test_a_file_that_is_not_variances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of something else is named in the message."""
    for content in (b"", b"[1, 2]", b'{"w_f": "much"}', b"\xff\xfe\x00", b'{"cell": 3}'):
        (tmp_path / "v.json").write_bytes(content)
        assert run("check", "--variances", str(tmp_path / "v.json")) == 2
        assert "v.json: not a JSON object of variances" in capsys.readouterr().err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command has help with examples; nothing at all is the help too, with status 2."""
    for command in ("solve", "check"):
        assert run(command, "--help") == 0
        assert f"peephole {command} " in capsys.readouterr().out
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("peephole 0.")
    assert run() == 2
