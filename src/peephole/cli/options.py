"""Options that the commands share, and how their text becomes a cell and variances."""

from __future__ import annotations

from typing import Annotated

import typer

from peephole.theory import Cell, TheoryError

_CELL = "The cell"
_RUN = "How to run"

Inputs = Annotated[int, typer.Option(help="N, inputs of the layer.", rich_help_panel=_CELL)]
Units = Annotated[int | None, typer.Option(help="M, units; as many as inputs by default.", rich_help_panel=_CELL)]
Peepholes = Annotated[bool, typer.Option(help="Whether gates see the cell state.", rich_help_panel=_CELL)]
Gate = Annotated[str, typer.Option(help="Activation of the gates f, i, o.", rich_help_panel=_CELL)]
CellInput = Annotated[str, typer.Option(help="Activation of the cell input.", rich_help_panel=_CELL)]
Output = Annotated[str, typer.Option(help="Activation of the cell state on its way out.", rich_help_panel=_CELL)]
ForgetBias = Annotated[float, typer.Option(help="Bias of the forget gate.", rich_help_panel=_CELL)]
Observed = Annotated[float, typer.Option(help="Share of the inputs observed.", rich_help_panel=_CELL)]
FillExponent = Annotated[
    float,
    typer.Option(
        help="Each visit times (share observed) to this power: 0 plain zero fill, -0.5 keeps the variance.",
        rich_help_panel=_CELL,
    ),
]
Fix = Annotated[list[str] | None, typer.Option(help="A variance to hold, as w_f=0.1; repeat or separate by commas.")]
Target = Annotated[float, typer.Option(help="The Var(h) to reach.")]
Steps = Annotated[int, typer.Option(help="Steps of the sequence.", rich_help_panel=_RUN)]
Seed = Annotated[int, typer.Option(help="Same seed, same numbers.", rich_help_panel=_RUN)]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.", rich_help_panel=_RUN)]


def build_cell(
    inputs: int,
    units: int | None,
    peepholes: bool,
    gate: str,
    cell_input: str,
    output: str,
    forget_bias: float,
    observed: float,
    fill_exponent: float,
) -> Cell:
    """The cell that the options describe."""
    return Cell(
        inputs=inputs,
        units=inputs if units is None else units,
        peepholes=peepholes,
        gate=gate,
        cell_input=cell_input,
        output=output,
        forget_bias=forget_bias,
        observed=observed,
        fill_exponent=fill_exponent,
    )


def parse_fixed(options: list[str] | None) -> dict[str, float]:
    """`["w_f=0.1,u_f=0.2"]` as a mapping."""
    fixed: dict[str, float] = {}
    for item in ",".join(options or []).split(","):
        name, _, value = item.partition("=")
        if not item.strip():
            continue
        if name.strip() in fixed:
            raise TheoryError(f"--fix {item.strip()}: {name.strip()} is fixed twice")
        try:
            fixed[name.strip()] = float(value)
        except ValueError:
            raise TheoryError(f"--fix {item.strip()!r}: write NAME=NUMBER, such as w_f=0.1") from None
    return fixed
