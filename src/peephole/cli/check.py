"""`peephole check`: which conditions hold, and what variances do to the signal."""

from __future__ import annotations

import json as json_module
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from peephole import theory
from peephole.cli import options as opt
from peephole.cli.output import (
    conditions_table,
    console,
    describe,
    print_json,
    status_console,
    variances_table,
)
from peephole.theory import Cell, Condition, Flow, LevelError, TheoryError, Variances

SHOWN_STEPS = (1, 2, 3, 5, 10, 20, 40, 60)
MEASURED_UNITS = 2560  # narrow cells are simulated in more networks, so that about as many units are seen

Presets = Annotated[list[str] | None, typer.Argument(help=f"Any of {', '.join(theory.PRESETS)}.")]
File = Annotated[
    str | None,
    typer.Option(
        "--variances", help="JSON of variances, as `peephole solve --json` writes, cell included; - for stdin."
    ),
]
Level = Annotated[
    str,
    typer.Option(help="Whose conditions decide the exit status: printed, linear or feedback."),
]
Correlation = Annotated[float, typer.Option("--autocorrelation", help="Of AR(1) inputs; 0 is white.")]
Networks = Annotated[int | None, typer.Option(help="Random networks to simulate (20 or more by width).")]
Sequences = Annotated[int, typer.Option(help="Sequences through each network.")]
Finite = Annotated[bool, typer.Option(help="Predict at the cell's own width, not in the limit of many units.")]
Plot = Annotated[Path | None, typer.Option(help="Draw Var(h) by step into this file (png, svg, pdf).")]


@dataclass
class Checked:
    """One set of variances and all that was found about it."""

    name: str
    variances: Variances
    conditions: list[Condition] = field(default_factory=list)
    flows: dict[str, Flow] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def check(
    presets: Presets = None,
    variances: File = None,
    fix: opt.Fix = None,
    inputs: opt.Inputs = 64,
    units: opt.Units = None,
    peepholes: opt.Peepholes = True,
    gate: opt.Gate = "sigmoid",
    cell_input: opt.CellInput = "tanh",
    output: opt.Output = "identity",
    forget_bias: opt.ForgetBias = 0.0,
    observed: opt.Observed = 1.0,
    fill_exponent: opt.FillExponent = 0.0,
    autocorrelation: Correlation = 0.0,
    target: opt.Target = 1.0,
    level: Level = "printed",
    steps: opt.Steps = 60,
    networks: Networks = None,
    sequences: Sequences = 20,
    finite: Finite = False,
    seed: opt.Seed = 0,
    plot: Plot = None,
    json: opt.Json = False,
) -> int:
    """Show which conditions hold, and Var(h), Var(c) by step: predicted beside simulated.

    Variances come from presets, from a file, or from --fix alone (which also overrides single values of a
    preset or file). Exit status 0 if every condition of --level holds for all of them, else 1.

    Examples:
      peephole check proposed-4 --inputs 6

      peephole check proposed-1 proposed-2 proposed-3 proposed-4 --plot check.png

      peephole check corrected-1 --level linear --autocorrelation 0.9

      peephole check normalized --no-peepholes --output tanh --forget-bias 1 --inputs 32 --units 256
    """
    cell = opt.build_cell(
        inputs, units, peepholes, gate, cell_input, output, forget_bias, observed, fill_exponent
    )  # fmt: skip
    if level not in ("printed", "linear", "feedback"):
        raise TheoryError(f"--level {level}: printed, linear or feedback, the levels that have conditions")
    if plot is not None:
        _refuse_plot(plot)
    content = None if variances is None else _read(variances)
    if content is not None and "cell" in content:
        cell = Cell(**content["cell"])  # what `solve --json` solved for
    given = None if content is None else (variances or "", _variances_in(content))
    named = _named(cell, presets or [], given, opt.parse_fixed(fix))
    networks = max(20, math.ceil(MEASURED_UNITS / cell.units)) if networks is None else networks
    found = []
    for name, v in named:
        with status_console.status(f"{name}: predicting, and simulating {networks} networks"):
            found.append(
                _examine(Checked(name, v), cell, target, steps, networks, sequences, autocorrelation, finite, seed)
            )
    holds = all(_holds(one, level) for one in found)
    if json:
        print_json({"cell": cell, "target": target, "level": level, "holds": holds, "checked": found})
    else:
        console.print(describe(cell), soft_wrap=True)
        for one in found:
            _show(one, target)
    if plot is not None:
        from peephole.report.plots import draw_signal, save

        save(draw_signal({one.name: one.flows for one in found}, target), plot)
        if not json:
            console.print(f"picture: {escape(str(plot))}", soft_wrap=True)
    return 0 if holds else 1


def _holds(one: Checked, level: str) -> bool:
    """Whether all conditions of a level hold; not if the level has none for this cell.

    The paper prints zero biases in its summary, beside the equation.
    """
    if level == "printed":
        asked = [c for c in one.conditions if c.printed or c.equation == "summary"]
        return any(c.printed for c in asked) and all(c.holds for c in asked)
    asked = [c for c in one.conditions if c.equation == level]
    return bool(asked) and all(c.holds for c in asked)


def _refuse_plot(plot: Path) -> None:
    """Before any work is done for a picture that could not be written."""
    if not plot.parent.is_dir():
        raise TheoryError(f"--plot {plot}: there is no folder {plot.parent}")
    if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise TheoryError(f"--plot {plot}: the name must end in .png, .svg or .pdf")


def _named(
    cell: Cell, presets: list[str], given: tuple[str, dict[str, Any]] | None, fixed: dict[str, float]
) -> list[tuple[str, Variances]]:
    """Names and variances: the presets, then the file, each with the fixed values put over it."""
    bases: list[tuple[str, dict[str, Any]]] = [(name, theory.preset(name, cell).as_dict()) for name in presets]
    if given is not None:
        bases.append(given)
    if not bases:
        if not fixed:
            raise TheoryError(f"nothing to check: name a preset ({', '.join(theory.PRESETS)}), --variances or --fix")
        bases.append(("given", {}))
    return [(name, Variances.build(cell, {**base, **fixed})) for name, base in bases]


def _read(file: str) -> dict[str, Any]:
    """The JSON object in a file, or on standard input, checked to hold variances and perhaps a cell."""
    where = "standard input" if file == "-" else file
    try:
        content = json_module.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
        _variances_in(content)
        if not isinstance(content.get("cell", {}), dict):
            raise ValueError
    except (ValueError, AttributeError, TypeError):
        example = '{"w_f": 0.1, ...}'
        raise TheoryError(f"--variances {where}: not a JSON object of variances such as {example}") from None
    return dict(content)


def _variances_in(content: dict[str, Any]) -> dict[str, Any]:
    inner = content.get("solution", content)
    inner = inner.get("variances", inner)
    return {str(name): None if value is None else float(value) for name, value in inner.items()}


def _examine(
    one: Checked, cell: Cell, target: float, steps: int, networks: int, sequences: int,
    autocorrelation: float, finite: bool, seed: int,
) -> Checked:  # fmt: skip
    """Conditions, predictions at both levels and a simulation; what cannot be had leaves a note instead."""
    correlation = autocorrelation or None

    def attempt(work: Callable[[], None]) -> None:
        try:
            work()
        except LevelError as error:
            if str(error) not in one.notes:
                one.notes.append(str(error))

    def linear() -> None:
        one.flows["linear"] = theory.propagate(cell, one.variances, steps=steps, level="linear", held=target)

    def wide() -> None:
        one.flows["wide"] = theory.propagate(
            cell, one.variances, steps=steps, finite=finite, input_autocorrelation=correlation, seed=seed
        )

    attempt(lambda: one.conditions.extend(theory.printed_conditions(cell, one.variances)))
    attempt(lambda: one.conditions.extend(theory.unprinted_conditions(cell, one.variances, target)))
    attempt(linear)
    attempt(wide)
    one.flows["simulated"] = theory.simulate(
        cell,
        one.variances,
        steps=steps,
        networks=networks,
        sequences=sequences,
        seed=seed,
        input_autocorrelation=correlation,
    )
    return one


def _show(one: Checked, target: float) -> None:
    console.rule(escape(one.name), align="left")
    console.print(variances_table(one.variances))
    if one.conditions:
        console.print(conditions_table(one.conditions))
    console.print(_signal_table(one.flows))
    for note in one.notes:
        console.print(f"note: {escape(note)}", soft_wrap=True)
    flow = one.flows["simulated"]
    console.print(
        f"Var(h) of simulated networks is {flow.var_h[-1]:.3g} ± {2 * flow.se_var_h[-1]:.1g} at step {flow.steps} "
        f"(median of h²: {flow.median_h[-1]:.2g}); the target is {target:g}.",
        soft_wrap=True,
    )


def _signal_table(flows: dict[str, Flow]) -> Table:
    """Var(h) and Var(c) at some steps, for each level."""
    table = Table("step", box=box.SIMPLE_HEAD, caption="± two standard errors", caption_justify="left")
    for quantity in ("Var(h)", "Var(c)"):
        for level in flows:
            table.add_column(f"{quantity}\n{level}", justify="right")
    simulated = flows["simulated"]
    for step in [s for s in SHOWN_STEPS if s < simulated.steps] + [simulated.steps]:
        row = []
        for quantity in ("var_h", "var_c"):
            for level, flow in flows.items():
                error = getattr(flow, f"se_{quantity}")[step - 1] if level == "simulated" else np.nan
                value = f"{getattr(flow, quantity)[step - 1]:.3g}"
                row.append(f"{value} ± {2 * error:.1g}" if np.isfinite(error) else value)
        table.add_row(str(step), *row)
    return table
