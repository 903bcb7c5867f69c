"""The table in docs/architecture.md, the contracts in pyproject.toml and the code say the same."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from docs.figures.architecture import FIGURE, PLACES, contracts, rooms

ROOT = Path(__file__).resolve().parents[1]
TABLE = rooms()
STANDING = {room.name for room in TABLE if room.stands}


def test_every_room_is_in_the_table() -> None:
    """What lies directly under src/peephole is a room that stands, and each of those lies there."""
    source = ROOT / "src" / "peephole"
    modules = {path.stem for path in source.glob("*.py")} - {"__init__", "__main__"}
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    assert modules | packages == STANDING


def test_rooms_import_rooms() -> None:
    """A room may import only rooms of the table, and one that stands only such as stand."""
    for room in TABLE:
        assert set(room.imports) <= (STANDING if room.stands else {other.name for other in TABLE})


def test_contracts_say_what_the_table_says() -> None:
    """The contracts in pyproject.toml are those that follow from the table."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["importlinter"]["contracts"] == contracts()


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter with the configuration in this folder."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_code_keeps_the_contracts() -> None:
    """Import-linter finds no import that the table forbids."""
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("lapse", ["import torch", "from shadow import init", "import shadow.cli"])
def test_contracts_can_fail(tmp_path: Path, lapse: str) -> None:
    """In a package of the same rooms, a theory that imports torch or another room is found out."""
    for name in STANDING:
        (tmp_path / "shadow" / name).mkdir(parents=True)
        (tmp_path / "shadow" / name / "__init__.py").touch()
    (tmp_path / "shadow" / "__init__.py").touch()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(project.replace("peephole", "shadow"), encoding="utf-8")
    assert lint_imports(tmp_path).returncode == 0
    (tmp_path / "shadow" / "theory" / "late.py").write_text(f"def f() -> None:\n    {lapse}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "shadow.theory.late" in result.stdout


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("peephole", {"torch", "numpy", "scipy", "matplotlib", "typer", "rich", "jax", "keras", "onnx"}),
        ("peephole.theory", {"torch", "matplotlib", "typer", "rich"}),
        ("peephole.cli", {"matplotlib"}),
    ],
)
def test_import_stays_light(module: str, absent: set[str]) -> None:
    """Importing a room loads none of the packages that it does not need."""
    program = f"import sys, {module}; print(*{absent!r} & sys.modules.keys())"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_the_picture_shows_every_room() -> None:
    """Every room of the table has its place in the picture and stands in it by name."""
    picture = FIGURE.read_text(encoding="utf-8")
    assert PLACES.keys() == {room.name for room in TABLE}
    for room in TABLE:
        assert f">{room.name}</text>" in picture
