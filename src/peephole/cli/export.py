"""`peephole export`: a saved LSTM as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from peephole.cli import options as opt
from peephole.cli.output import console, print_json, status_console
from peephole.interop.errors import DisagreementError, InteropError

Model = Annotated[Path, typer.Argument(help="A file that peephole.interop.files.save wrote.", show_default=False)]
Out = Annotated[Path, typer.Argument(help="The ONNX file to write, ending in .onnx.", show_default=False)]


def export(model: Model, out: Out, json: opt.Json = False) -> int:
    """Write a saved PeepholeLSTM or nn.LSTM as ONNX, checked against ONNX Runtime before the file is kept.

    The file has ONNX's own LSTM operator, one a layer, peepholes included. Batch and length are free; inputs are x and,
    where one wants them, h0, c0 and lengths. Dropout is left out. Exit status 1, and no file, if the two disagree.

    Examples:
      peephole export lstm.safetensors lstm.onnx

      peephole export lstm.safetensors lstm.onnx --json
    """
    if out.suffix.lower() != ".onnx":
        raise InteropError(f"{out}: the name must end in .onnx")
    from peephole.interop import files, onnx

    with status_console.status(f"{model}: exporting"):
        module = files.load(model)
        try:
            difference = onnx.export(module, out)
        except DisagreementError as error:
            status_console.print(f"peephole: {error}", soft_wrap=True, markup=False)
            return 1
    kind = type(module).__name__
    directions = 1 + module.bidirectional
    if json:
        sizes = {"inputs": module.input_size, "units": module.hidden_size, "layers": module.num_layers}
        about = {"class": kind, "directions": directions, "batch_first": module.batch_first, "difference": difference}
        print_json({"model": str(model), "onnx": str(out)} | sizes | about)
        return 0
    what = f"{kind}, {module.input_size} inputs, {module.hidden_size} units, layers: {module.num_layers}"
    console.print(f"{what}, directions: {directions}", soft_wrap=True)
    console.print(
        f"{escape(str(out))}: ONNX Runtime agrees to {difference:.1g} of an output's root mean square", soft_wrap=True
    )
    return 0
