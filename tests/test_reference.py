"""The reference in docs/reference.md and the public names are the same set, and each name is documented."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import griffe
import pytest

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"


def public_names(module: ModuleType) -> Iterator[str]:
    """The dotted names that a module makes public, those of its public submodules among them."""
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            yield from public_names(value)
        else:
            yield f"{module.__name__}.{name}"


NAMES = sorted(public_names(import_module("peephole")))


@pytest.fixture(scope="module")
def package() -> griffe.Object | griffe.Alias:
    """What the source says, read as the documentation reads it: without importing."""
    return griffe.load("peephole", resolve_aliases=True)


def entry(package: griffe.Object | griffe.Alias, name: str) -> str:
    """Where the source has a public name: `theory.solve` is a function in a module of the same name."""
    short = name.rpartition(".")[2]
    return f"{name}.{short}" if package[name.removeprefix("peephole.")].is_module else name


def undocumented(package: griffe.Object | griffe.Alias, name: str) -> list[str]:
    """A public name and its public methods, as far as they lack a docstring."""
    subject = package[entry(package, name).removeprefix("peephole.")]
    members = [subject]
    if subject.is_class:
        members += [
            member
            for key, member in subject.members.items()
            if not key.startswith("_") and (member.is_function or "property" in member.labels)
        ]
    return [member.path for member in members if not member.has_docstring]


def test_reference_is_complete(package: griffe.Object | griffe.Alias) -> None:
    """Every public name has its entry in the reference, and every entry is a public name."""
    entries = re.findall(r"^::: (\S+)$", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(entries) == sorted(entry(package, name) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_documented(package: griffe.Object | griffe.Alias, name: str) -> None:
    """A public name has a docstring, and so has each of its public methods."""
    assert undocumented(package, name) == []


def test_a_missing_docstring_is_noticed(tmp_path: Path) -> None:
    """A function, a method and a constant without a docstring are each found out."""
    (tmp_path / "peephole.py").write_text("def f(): ...\nclass C:\n  'd'\n  def m(self): ...\nX = 1\n")
    package = griffe.load("peephole", search_paths=[tmp_path])
    missing = [path for name in ("f", "C", "X") for path in undocumented(package, f"peephole.{name}")]
    assert missing == ["peephole.f", "peephole.C.m", "peephole.X"]
