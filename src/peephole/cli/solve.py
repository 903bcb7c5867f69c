"""`peephole solve`: variances for a cell."""

from __future__ import annotations

from typing import Annotated

import typer

from peephole import theory
from peephole.cli import options as opt
from peephole.cli.output import conditions_table, console, describe, print_json, variances_table

Level = Annotated[str, typer.Option(help="printed, linear or wide: what the target is measured by.")]
Ratios = Annotated[str, typer.Option(help="Preset whose ratios the free variances keep.")]
Feedback = Annotated[bool, typer.Option(help="At level linear, feed the map's own Var(h) back.")]


def solve(
    inputs: opt.Inputs = 64,
    units: opt.Units = None,
    peepholes: opt.Peepholes = True,
    gate: opt.Gate = "sigmoid",
    cell_input: opt.CellInput = "tanh",
    output: opt.Output = "identity",
    forget_bias: opt.ForgetBias = 0.0,
    observed: opt.Observed = 1.0,
    fill_exponent: opt.FillExponent = 0.0,
    level: Level = "linear",
    fix: opt.Fix = None,
    ratios: Ratios = "normalized",
    target: opt.Target = 1.0,
    feedback: Feedback = False,
    steps: opt.Steps = 60,
    seed: opt.Seed = 0,
    json: opt.Json = False,
) -> int:
    """Find weight variances with which a cell's output has the variance wished for.

    Fixed variances stay; all others keep their ratios and are scaled by one factor. Where the target is out
    of reach, or is only passed through on the way to somewhere else, the nearest answer is shown and the
    exit status is 1.

    Examples:
      peephole solve --inputs 6 --units 6 --level printed

      peephole solve --inputs 64 --ratios proposed-4 --level linear --feedback

      peephole solve --no-peepholes --forget-bias 3 --level wide --fix w_f=0.002,u_f=0.002

      peephole solve --inputs 64 --json | peephole check --variances - --level linear
    """
    cell = opt.build_cell(
        inputs, units, peepholes, gate, cell_input, output, forget_bias, observed, fill_exponent
    )  # fmt: skip
    solution = theory.solve(
        cell, opt.parse_fixed(fix), ratios=ratios, target=target, level=level, feedback=feedback,
        steps=steps, seed=seed, throw=False,
    )  # fmt: skip
    if json:
        print_json({"cell": cell, "solution": solution})
    else:
        console.print(describe(cell), soft_wrap=True)
        console.print(variances_table(solution.variances))
        if solution.conditions:
            console.print(conditions_table(solution.conditions))
        if level != "wide":
            console.print(
                "Real networks may settle elsewhere: `--json | peephole check --variances -` shows where.",
                soft_wrap=True,
            )
        console.print(f"{solution.result.value} (level {solution.level}): {solution.message}", soft_wrap=True)
    return 0 if solution.solved else 1
