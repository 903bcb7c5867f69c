"""The page on serving says that ONNX Runtime and NumPy are enough: its script runs where torch cannot be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"
BLOCKED = "import sys; sys.modules.update(dict.fromkeys(('torch', 'peephole', 'onnx', 'scipy')))\n"


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    """The page's blocks in Python, in order."""
    text = PAGE.read_text(encoding="utf-8")
    return [part.partition("\n```")[0] for part in text.split("```python\n")[1:]]


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A Python of its own, in that folder."""
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300)


def test_without_torch(blocks: list[str], tmp_path: Path) -> None:
    """What the first block exports the second one streams, as at once, with torch and peephole out of reach."""
    export, serve = blocks[:2]
    done = run(export, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "InferenceSession" in serve
    assert "assert" in serve
    done = run(BLOCKED + serve + "\nassert sys.modules['torch'] is None", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_state(blocks: list[str], tmp_path: Path) -> None:
    """Control: where the state is not carried over, the stream differs; and the block is real, for torch is blocked."""
    assert run(blocks[0], tmp_path).returncode == 0
    forgetful = blocks[1].replace('state = {"h0": h, "c0": c}', "state = {}")
    assert forgetful != blocks[1]
    assert "AssertionError" in run(BLOCKED + forgetful, tmp_path).stderr
    assert "ModuleNotFoundError" in run(BLOCKED + blocks[0], tmp_path).stderr
