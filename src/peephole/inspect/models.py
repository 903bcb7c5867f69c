"""Saved LSTMs: what `peephole.interop` wrote, ONNX, and plain weights. Nothing is unpickled, nothing executed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from peephole.inspect.errors import InspectError
from peephole.interop import files, onnx

MODELS = (".safetensors", ".onnx")
PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt")
_WEIGHT = re.compile(
    r"(?P<prefix>.*?)(?P<kind>weight_ih|weight_hh|weight_ph|weight_hr|bias_ih|bias_hh|bias)"
    r"_l(?P<layer>\d{1,4})(?P<reverse>_reverse)?"
)


def load_model(path: Path | str) -> nn.Module:
    """The LSTM in a file: a .safetensors that `interop.files.save` wrote, or an .onnx.

    A .safetensors with the weights of one `nn.LSTM` and no description, such as `safetensors.torch.save_file` makes of
    a `state_dict`, will do too: sizes and directions are read from the tensors' names and shapes.
    """
    path = existing(path, MODELS, "a model")
    if path.suffix == ".onnx":
        return onnx.load(path)
    tensors, described = _read(path)
    return files.load(path) if described else _inferred(tensors, path)


def existing(path: Path | str, suffixes: tuple[str, ...], what: str) -> Path:
    """The path, if a file is there whose name ends as it should."""
    path = Path(path)
    if path.suffix in PICKLED:
        raise InspectError(
            f"{path}: pickled files can run code and are not opened; save the LSTM by peephole.interop.files.save"
        )
    if path.suffix not in suffixes:
        raise InspectError(f"{path}: {what} is a file that ends in {', '.join(suffixes[:-1])} or {suffixes[-1]}")
    if not path.is_file():
        raise InspectError(f"{path}: there is no such file")
    return path


def tensors_of(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, Tensor], bool]:
    """All tensors, and whether there is a description of an LSTM beside them."""
    try:
        import safetensors
    except ImportError as error:
        raise ImportError("safetensors files need safetensors: pip install 'peephole[inspect]'") from error
    try:
        with safetensors.safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
            return tensors, files.KEY in (file.metadata() or {})
    except safetensors.SafetensorError as error:
        raise InspectError(f"{path} is not a safetensors file, or is cut off: {error}") from error


def _inferred(tensors: Mapping[str, Tensor], path: Path) -> nn.Module:
    """The `nn.LSTM` that names and shapes tell, whatever leads the names."""
    named = {name: match for name in tensors if (match := _WEIGHT.fullmatch(name))}
    prefixes = sorted({match["prefix"] for match in named.values()})
    if not prefixes:
        raise InspectError(f"{path} holds no LSTM: none of its {len(tensors)} tensors is named like weight_ih_l0")
    if len(prefixes) > 1:
        raise InspectError(
            f"{path} holds {len(prefixes)} LSTMs ({', '.join(prefixes)}): save the one meant by interop.files.save"
        )
    own = {name.removeprefix(prefixes[0]): tensors[name] for name in named}
    kinds = {match["kind"] for match in named.values()}
    if {"weight_ph", "bias"} & kinds:
        raise InspectError(
            f"{path} holds a PeepholeLSTM without its activations: save it by peephole.interop.files.save"
        )
    first, back = own.get("weight_ih_l0"), own.get("weight_hh_l0")
    if first is None or back is None or first.dim() != 2 or back.dim() != 2 or 0 in first.shape or len(first) % 4:
        raise InspectError(f"{path}: weight_ih_l0 (4H, I) and weight_hh_l0 (4H, H) are not both there")
    options = {
        "input_size": first.shape[1], "hidden_size": len(first) // 4, "bias": "bias_ih" in kinds,
        "num_layers": 1 + max(int(match["layer"]) for match in named.values()),
        "bidirectional": any(match["reverse"] for match in named.values()),
        "proj_size": back.shape[1] if "weight_hr" in kinds else 0,
    }  # fmt: skip
    if options["num_layers"] > len(own):
        raise InspectError(f"{path}: {options['num_layers']} layers, and {len(own)} tensors")
    try:
        module = nn.LSTM(**options, device="meta")
    except (TypeError, ValueError, RuntimeError) as error:
        raise InspectError(f"{path}: no nn.LSTM has these sizes: {error}") from error
    return _filled(module, own, path)


def _filled(module: nn.LSTM, own: Mapping[str, Tensor], path: Path) -> nn.Module:
    """The module with these tensors; each must be there, and fit."""
    wanted: dict[str, Any] = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    for name in sorted(wanted.keys() ^ own.keys()):
        raise InspectError(f"{path}: {name} is {'missing' if name in wanted else 'none of an nn.LSTM of these sizes'}")
    for name, tensor in own.items():
        if tuple(tensor.shape) != wanted[name] or not tensor.is_floating_point():
            found = f"{tuple(tensor.shape)} of {tensor.dtype}"
            raise InspectError(f"{path}: {name} is {found}; {wanted[name]} of a floating type is wanted")
    kind = torch.float64 if any(tensor.dtype == torch.float64 for tensor in own.values()) else torch.float32
    module.load_state_dict({name: tensor.to(kind) for name, tensor in own.items()}, assign=True)
    return module
