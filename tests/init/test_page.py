"""The page about initialisers says what the registry says."""

from pathlib import Path

from peephole import init

PAGE = (Path(__file__).parents[2] / "docs" / "initialisers.md").read_text()


def rows() -> list[str]:
    """The table of methods: those that differ by a number only share a row."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for method in init.METHODS.values():
        drawn = method.recurrent if method.recurrent != "independent" else ""
        kind = f"{method.distribution}{', U ' + drawn if drawn else ''}"
        lines.setdefault((method.formula, kind, method.source), []).append(method.name)
    return [f"| {', '.join(f'`{name}`' for name in names)} | {' | '.join(cells)} |" for cells, names in lines.items()]


def test_the_table_of_methods() -> None:
    """The table has each method's formula, distribution and source as they stand in the registry, and no other row."""
    table = PAGE[PAGE.index("| method | formula") :].split("\n\n")[0].splitlines()[2:]
    assert table == rows()
