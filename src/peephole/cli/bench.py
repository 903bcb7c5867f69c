"""`peephole bench`: speed against the peers, in one run, refused where outputs disagree."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from peephole.cli import options as opt
from peephole.cli.output import console, print_json, status_console

Sizes = Annotated[
    list[int] | None,
    typer.Option("--size", help="Which rows of the table, from 1; repeat for several. All by default."),
]
Rounds = Annotated[int, typer.Option(help="Rounds in which all peers take turns; the best time of each counts.", min=1)]
Threads = Annotated[int, typer.Option(help="Threads for all peers.", min=1)]
Grow = Annotated[bool, typer.Option("--growth", help="Also how the cost grows with steps, batch, units and replicas.")]

TABLE_WIDTH = 100  # where a narrower terminal would tear the figures apart
HEADINGS = {  # by the names of the ratios
    "nn.LSTM": "nn.LSTM",
    "loop": "loop",
    "loss: nn.LSTM": "loss:\nnn.LSTM",
    "loss: loop": "loss:\nloop",
    "forward: nn.LSTM": "forward:\nnn.LSTM",
    "torchrecurrent": "torch-\nrecurrent",
}
GROWTH = {
    "steps": (50, 100, 200, 400),
    "batch": (32, 64, 128, 256),
    "units": (16, 32, 64, 128, 256),
    "replicas": (1, 2, 4, 8),
}


def bench(
    size: Sizes = None, rounds: Rounds = 5, threads: Threads = 2, growth: Grow = False, json: opt.Json = False
) -> int:
    """Time PeepholeLSTM against nn.LSTM, the plain loop and, where installed, torchrecurrent.

    Each figure is a ratio of best times in one run, forward and backward unless it says otherwise, beside the least
    that is asked of it: the exit status is 1 where one falls short. Before anything is timed outputs, losses and
    gradients must agree; where they do not, nothing is printed and the exit status is 1 too.

    Examples:
      peephole bench

      peephole bench --size 1 --size 5 --rounds 20
    """
    from peephole import bench as speed

    rows_of_table = range(1, len(speed.SIZES) + 1)
    if not set(size or ()) <= set(rows_of_table):
        raise typer.BadParameter(f"--size counts from 1 to {len(speed.SIZES)}")
    chosen = [speed.SIZES[k - 1] for k in size or rows_of_table]
    speed.use_threads(threads)
    rows = []
    try:
        for one in chosen:
            with status_console.status(f"T, B, I, H = {one}"):
                rows.append(speed.measure(one, rounds=rounds))
        with status_console.status("sgemm, replicas"):
            rate, together = speed.sgemm_rate(), speed.replicas()
    except (speed.DisagreementError, speed.KernelError) as error:
        status_console.print(f"peephole: {error}", soft_wrap=True, markup=False)
        return 1 if isinstance(error, speed.DisagreementError) else 2
    grown = {axis: speed.growth(axis, values) for axis, values in GROWTH.items()} if growth else {}
    missed = speed.missed(rows, together)
    if json:
        measured = {"rows": rows, "replicas": together, "sgemm": rate, "growth": grown, "missed": missed}
        print_json(measured | {"machine": speed.machine()})
        return 1 if missed else 0
    console.print(speed.machine(), soft_wrap=True)
    console.width = max(console.width, TABLE_WIDTH)
    console.print(_table(rows, rate))
    console.print(
        f"20 replicas of next_step_loss on shared sequences in one call: {_cell(together)} times as fast as 20 calls"
    )
    for axis, points in grown.items():
        console.print(
            f"{axis}: " + ", ".join(f"{value}: {1e3 * time:.2f} ms" for value, time in points), soft_wrap=True
        )
    for line in missed:
        console.print(f"[red]less than asked[/]: {line}", soft_wrap=True)
    return 1 if missed else 0


def _table(rows: list[Any], rate: float) -> Table:
    """Ratios, each beside the least that is asked of it."""
    table = Table(
        box=box.SIMPLE_HEAD,
        caption="times as fast as the peer; in brackets the least that is asked",
        caption_justify="left",
    )
    table.add_column("T, B, I, H", no_wrap=True)
    for heading in (*HEADINGS.values(), "share of\nsgemm"):
        table.add_column(heading, justify="right")
    for row in rows:
        s = row.size
        share = s.floating_point_operations / row.seconds["ours"] / rate if s.units >= 64 else None
        ratios = [_cell(row.ratios[name]) if name in row.ratios else "" for name in HEADINGS]
        table.add_row(str(s), *ratios, "" if share is None else f"{share:.2f}")
    return table


def _cell(ratio: Any) -> str:
    if ratio.least is None:
        return f"{ratio.ratio:.3g}"
    return f"[{'green' if ratio.met else 'red'}]{ratio.ratio:.3g}[/] ({ratio.least:g})"
