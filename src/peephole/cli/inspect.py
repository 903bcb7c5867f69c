"""`peephole inspect`: is a saved LSTM starting right on a batch?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from peephole import __version__
from peephole.cli import options as opt
from peephole.cli.output import console, print_json
from peephole.theory import TheoryError
from peephole.theory.errors import check_target

Model = Annotated[Path, typer.Argument(help="An LSTM: .safetensors (peephole.interop.files.save) or .onnx.")]
Batch = Annotated[
    Path,
    typer.Option(help="Sequences: .npy, .npz, .csv or .safetensors, with the axes sequences, steps, features."),
]
Out = Annotated[Path, typer.Option(help="The page to write.")]
Target = Annotated[
    float | None, typer.Option(help="Variance of what h is to estimate, where no layer comes after the LSTM.")
]


def inspect(
    model: Model, batch: Batch, out: Out = Path("inspect.html"), target: Target = None, json: opt.Json = False
) -> int:
    """Measure the signal, the gates and the gradient inside a saved LSTM, and say what is wrong with its start.

    Writes a page with pictures into --out and prints a sentence for each finding. The gradient is that of the last
    output in a fixed random direction. Nothing in a file is executed. Exit status 0 where nothing is wrong, 1 where
    something is.

    Examples:
      peephole inspect lstm.safetensors --batch batch.npy

      peephole inspect lstm.onnx --batch sequences.csv --out page.html --json
    """
    if out.suffix != ".html":
        raise TheoryError(f"--out {out}: the page is an .html file")
    if out.is_dir():
        raise TheoryError(f"--out {out}: a folder is there")
    if target is not None:
        check_target(target)
    if not out.absolute().parent.is_dir():
        raise TheoryError(f"--out {out}: there is no folder {out.parent}")
    from peephole import inspect as room
    from peephole.report.inspection import write

    measured = room.measure_files(model, batch)
    advice = room.advise(measured, target=target)
    sentences = [str(line) for line in advice]
    try:
        compared, notes = room.compare(measured), []
    except TheoryError as error:
        compared, notes = None, [f"No prediction: {error}."]
    command = shlex.join(["peephole", *sys.argv[1:]])
    provenance = {"model": str(model), "batch": str(batch), "command": command, "version": __version__}
    write(
        out, measured.frame, measured.summary, measured.histograms, sentences, compared=compared, provenance=provenance,
        notes=notes,
    )  # fmt: skip
    if json:
        print_json({"advice": advice, "layers": measured.summary.to_dict("records"), "page": str(out)})
    else:
        console.print(escape(str(measured)), soft_wrap=True)
        for sentence in sentences or ["nothing is wrong by any threshold"]:
            console.print(f"- {escape(sentence)}", soft_wrap=True)
        console.print(f"page: {escape(str(out))}", soft_wrap=True)
    return 1 if advice else 0
