"""The notebooks in examples/ run from beginning to end, and are kept without what a run leaves in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.ipynb"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Jupyter's own
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    """Every cell runs without an error, in a folder of its own; where it asserts something, that holds."""
    import nbclient
    import nbformat

    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert said
    assert not [output for output in said if output.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_notebooks_are_clean(path: Path) -> None:
    """No outputs, no counts, cells numbered in order: a run leaves no trace in the repository."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for number, cell in enumerate(notebook["cells"]):
        assert cell["id"] == f"cell-{number}"
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_there_are_notebooks() -> None:
    """The folder is where it is looked for."""
    assert {"signal", "streaming"} <= {path.stem for path in NOTEBOOKS}
