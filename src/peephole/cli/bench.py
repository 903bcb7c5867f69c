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

    Each figure is a ratio of best times in one run, forward and backward unless it says otherwise. Before anything
    is timed outputs and gradients must agree; where they do not, nothing is printed and the exit status is 1.

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
    except speed.DisagreementError as error:
        status_console.print(f"peephole: {error}", soft_wrap=True)
        return 1
    with status_console.status("sgemm, replicas"):
        rate, ratio = speed.sgemm_rate(), speed.replicas()
    grown = {axis: speed.growth(axis, values) for axis, values in GROWTH.items()} if growth else {}
    if json:
        print_json({"rows": rows, "sgemm": rate, "replicas": ratio, "growth": grown, "machine": speed.machine()})
        return 0
    console.print(speed.machine(), soft_wrap=True)
    console.width = max(console.width, TABLE_WIDTH)
    console.print(_table(rows, rate))
    console.print(
        f"20 replicas of next_step_loss on shared sequences in one call: {ratio:.1f} times as fast as 20 calls"
    )
    for axis, points in grown.items():
        console.print(
            f"{axis}: " + ", ".join(f"{value}: {1e3 * time:.2f} ms" for value, time in points), soft_wrap=True
        )
    return 0


def _table(rows: list[Any], rate: float) -> Table:
    """Ratios, each beside the least that is asked of it."""
    table = Table(
        box=box.SIMPLE_HEAD,
        caption="times as fast as the peer; in brackets the least that is asked",
        caption_justify="left",
    )
    table.add_column("T, B, I, H", no_wrap=True)
    for heading in (
        "nn.LSTM",
        "loop",
        "loss:\nnn.LSTM",
        "loss:\nloop",
        "forward:\nnn.LSTM",
        "torch-\nrecurrent",
        "share of\nsgemm",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        s = row.size
        forward = 0.9 if s.units >= 256 else 1.0
        share = s.floating_point_operations / row.seconds["ours"] / rate if s.units >= 64 else None
        table.add_row(
            str(s),
            _cell(row.ratio("nn.LSTM", "ours"), s.least),
            _cell(row.ratio("loop", "ours"), s.least_loop),
            _cell(row.ratio("nn.LSTM", "ours, loss"), s.least_loss),
            _cell(row.ratio("loop, loss", "ours, loss"), s.least_loss_loop),
            _cell(row.ratio("nn.LSTM, forward", "ours, forward"), forward),
            _cell(row.ratio("torchrecurrent", "ours"), 10),
            "" if share is None else f"{share:.2f}",
        )
    return table


def _cell(ratio: float | None, least: float | None) -> str:
    if ratio is None:
        return ""
    if least is None:
        return f"{ratio:.3g}"
    return f"[{'green' if ratio >= least else 'red'}]{ratio:.3g}[/] ({least:g})"
