"""How answers are shown: tables for people, JSON for machines."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from peephole.theory import Cell, Condition, Variances

console = Console(highlight=False)
status_console = Console(stderr=True)


def print_json(answer: dict[str, Any]) -> None:
    """One JSON document on standard output; what JSON cannot say (NaN, infinity) becomes null."""
    json.dump(_plain(answer), sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def describe(cell: Cell) -> str:
    """The cell in half a line."""
    kind = "peephole LSTM" if cell.peepholes else "LSTM"
    parts = [f"{kind}, {cell.inputs} inputs, {cell.units} units", f"gates {cell.gate}"]
    parts += [f"cell input {cell.cell_input}", f"output {cell.output}"]
    if cell.forget_bias:
        parts.append(f"forget bias {cell.forget_bias:g}")
    if cell.kappa != 1:
        parts.append(f"kappa {cell.kappa:.3g}")
    return ", ".join(parts)


def variances_table(v: Variances) -> Table:
    """W, U and V by gate."""
    table = Table("variance of", "W", "U", "V", box=box.SIMPLE_HEAD)
    values = v.as_dict()
    for gate, name in (("f", "forget"), ("i", "input"), ("o", "output"), ("c", "cell input")):
        cells = (values.get(f"{kind}_{gate}") for kind in "wuv")
        table.add_row(f"{name} ({gate})", *("" if value is None else f"{value:.6g}" for value in cells))
    return table


def conditions_table(conditions: Sequence[Condition]) -> Table:
    """Every condition, whether it is printed in the paper, its residual or margin, and whether it holds."""
    table = Table("condition", "from", "printed", "residual", "margin", "holds", box=box.SIMPLE_HEAD)
    for c in conditions:
        residual, margin = ("" if x is None else f"{x:.3g}" for x in (c.residual, c.margin))
        holds = "[green]yes[/]" if c.holds else "[red]no[/]"
        table.add_row(escape(c.name), c.equation, "yes" if c.printed else "no", residual, margin, holds)
    return table
