"""An LSTM in one file: its weights by safetensors, the constructor's arguments as JSON in the metadata; no code."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from peephole.init import METHODS
from peephole.interop.errors import InteropError
from peephole.interop.writing import replacing
from peephole.nn import PeepholeLSTM

__all__ = ["load", "save"]

KEY, VERSION = "peephole", 1
_BOTH = {
    "input_size": int, "hidden_size": int, "num_layers": int, "bias": bool, "batch_first": bool, "dropout": float,
    "bidirectional": bool,
}  # fmt: skip
_NAMES = ("gate_activation", "cell_activation", "output_activation", "init", "backend")
# What a file may hold: no class is ever looked up by a name that stands in it.
CLASSES: dict[str, type[nn.Module]] = {"PeepholeLSTM": PeepholeLSTM, "torch.nn.LSTM": nn.LSTM}
ARGUMENTS: dict[str, dict[str, type]] = {
    "PeepholeLSTM": _BOTH | {"peepholes": bool} | dict.fromkeys(_NAMES, str),
    "torch.nn.LSTM": _BOTH | {"proj_size": int},
}


def save(module: PeepholeLSTM | nn.LSTM, path: str | os.PathLike[str]) -> None:
    """Write a PeepholeLSTM or a `torch.nn.LSTM` to a safetensors file, whole or not at all.

    The tensors have the names and shapes of the module's parameters, as (4H, I). Whether it trains, and which
    parameters are frozen, is not kept.
    """
    from_file = _safetensors()
    name = next((name for name, cls in CLASSES.items() if type(module) is cls), None)
    if name is None:
        raise InteropError(f"{type(module).__name__} cannot be saved: {' and '.join(CLASSES)} can, by themselves")
    arguments = {argument: getattr(module, argument) for argument in ARGUMENTS[name]}
    tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in module.state_dict().items()}
    _check_tensors(str(path), name, arguments, {key: (tuple(t.shape), str(t.dtype)) for key, t in tensors.items()})
    described = {"version": VERSION, "class": name, "arguments": arguments, "sha256": _digest(tensors)}
    with replacing(path) as unfinished:
        from_file.torch.save_file(tensors, unfinished, {KEY: json.dumps(described)})


def load(path: str | os.PathLike[str]) -> PeepholeLSTM | nn.LSTM:
    """The module in a file that `save` wrote, on the CPU; a file that is anything else is an `InteropError`."""
    safetensors = _safetensors()
    where = os.fspath(path)
    with open(where, "rb"):  # what is missing or may not be read has the system's own error
        pass
    try:
        with safetensors.safe_open(where, "pt") as file:
            described = _described(where, file.metadata())
            name, arguments = described["class"], described["arguments"]
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118  # no mapping
            headers = {key: (tuple(part.get_shape()), str(part.get_dtype())) for key, part in slices.items()}
            _check_tensors(where, name, arguments, headers)
            tensors = {key: file.get_tensor(key) for key in slices}
    except (safetensors.SafetensorError, OSError) as error:
        why = " ".join(str(error).split())
        raise InteropError(
            f"{where}: not a whole safetensors file ({why}); one that peephole.interop.files.save wrote is wanted"
        ) from None
    if described["sha256"] != _digest(tensors):
        raise InteropError(f"{where}: the weights are not those that were saved; copy the file again, or save anew")
    module: PeepholeLSTM | nn.LSTM = _made(where, name, arguments, tensors)
    return module


def _made(where: str, name: str, arguments: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """The module, with no draw from the user's generator, and dropout set where it cannot warn a second time."""
    given = {key: value for key, value in arguments.items() if key not in ("dropout", "init")}
    try:
        with torch.random.fork_rng(devices=[]):
            module: Any = CLASSES[name](**given, dtype=next(iter(tensors.values())).dtype)
    except (TypeError, ValueError) as error:
        raise InteropError(f"{where}: {' '.join(str(error).split())}") from None
    module.dropout = arguments["dropout"]
    if name == "PeepholeLSTM":
        module.init = arguments["init"]
    module.load_state_dict(dict(tensors))
    return module


def _described(where: str, metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """What the metadata say: class, arguments of the right types, digest."""
    if KEY not in (metadata or {}):
        raise InteropError(f"{where}: no LSTM that peephole.interop.files.save wrote: the metadata have no {KEY!r}")
    try:
        described = json.loads((metadata or {})[KEY])
        version, name, arguments = (described[key] for key in ("version", "class", "arguments"))
        described["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InteropError(f"{where}: the metadata {KEY!r} are not what peephole.interop.files.save writes") from None
    if version != VERSION:
        raise InteropError(f"{where}: version {version!r} of the format, this peephole reads version {VERSION}")
    if not isinstance(name, str) or name not in CLASSES:
        raise InteropError(f"{where}: unknown class {name!r}; {', '.join(CLASSES)} can be loaded")
    if not isinstance(arguments, dict) or arguments.keys() != ARGUMENTS[name].keys():
        raise InteropError(f"{where}: the arguments are not those of {name}: {', '.join(ARGUMENTS[name])}")
    for key, kind in ARGUMENTS[name].items():
        if type(arguments[key]) is not kind:
            raise InteropError(f"{where}: {key} = {arguments[key]!r} is not of type {kind.__name__}")
    if not 0 <= arguments["dropout"] <= 1 or arguments.get("init", "normalized") not in METHODS:
        raise InteropError(f"{where}: dropout is a share, and init one of {', '.join(METHODS)}")
    return dict(described)


def _check_tensors(
    where: str, name: str, arguments: Mapping[str, Any], found: Mapping[str, tuple[tuple[int, ...], str]]
) -> None:
    """Raise unless names and shapes are those of the module; nothing of its size is made before."""
    if arguments["num_layers"] > len(found):
        raise InteropError(f"{where}: {arguments['num_layers']} layers, and {len(found)} tensors")
    expected = dict(_shapes(peepholes=arguments.get("peepholes"), **_sizes(arguments)))
    for key in sorted(expected.keys() ^ found.keys()):
        raise InteropError(f"{where}: {key!r} is {'missing' if key in expected else 'none of its parameters'} ({name})")
    for key, (shape, _) in found.items():
        if shape != expected[key]:
            raise InteropError(f"{where}: {key!r} has shape {shape}, its arguments say {expected[key]}")
    kinds = {kind for _, kind in found.values()}
    if len(kinds) != 1 or not kinds <= {"F16", "BF16", "F32", "F64", *map(str, _FLOATS)}:
        raise InteropError(f"{where}: weights of one floating-point type are needed, not {', '.join(sorted(kinds))}")


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _sizes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    wanted = ("input_size", "hidden_size", "num_layers", "bias", "bidirectional")
    return {key: arguments[key] for key in wanted} | {"proj_size": arguments.get("proj_size", 0)}


def _shapes(
    *, input_size: int, hidden_size: int, num_layers: int, bias: bool, bidirectional: bool, proj_size: int,
    peepholes: bool | None,
) -> Iterator[tuple[str, tuple[int, ...]]]:  # fmt: skip
    """Name and shape of every parameter; `peepholes` is None for torch's own LSTM, which has two biases."""
    rows, back = 4 * hidden_size, proj_size or hidden_size
    for layer in range(num_layers):
        for end in (f"l{layer}", f"l{layer}_reverse")[: 1 + bidirectional]:
            yield f"weight_ih_{end}", (rows, back * (1 + bidirectional) if layer else input_size)
            yield f"weight_hh_{end}", (rows, back)
            if peepholes:
                yield f"weight_ph_{end}", (3 * hidden_size,)
            if proj_size:
                yield f"weight_hr_{end}", (proj_size, hidden_size)
            for name in () if not bias else ("bias_ih", "bias_hh") if peepholes is None else ("bias",):
                yield f"{name}_{end}", (rows,)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """Of names and bytes, to find damage. It is no signature: whoever can write the file can write this too."""
    digest = hashlib.sha256()
    for key in sorted(tensors):
        digest.update(key.encode() + b"\0")
        digest.update(tensors[key].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise ImportError(
            f"safetensors cannot be imported ({error}): pip install 'peephole[onnx]' or 'peephole[inspect]'"
        ) from error
    return safetensors
