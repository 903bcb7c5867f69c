"""LSTMs and batches as files: safetensors with a JSON configuration, ONNX; arrays and tables. Nothing is unpickled."""

from __future__ import annotations

import csv
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from peephole.inspect.errors import InspectError
from peephole.nn import PeepholeLSTM

KEY = "peephole"  # of the configuration in the metadata of a safetensors file
MODELS = (".safetensors", ".onnx")
BATCHES = (".npy", ".npz", ".csv", ".safetensors")
_SIZES = ("input_size", "hidden_size", "num_layers")
_COMMON = ("bias", "batch_first", "dropout", "bidirectional")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "nn.LSTM": (*_COMMON, "proj_size"),
    "PeepholeLSTM": (*_COMMON, "peepholes", "gate_activation", "cell_activation", "output_activation"),
}
_KINDS: dict[str, Callable[..., nn.Module]] = {"nn.LSTM": nn.LSTM, "PeepholeLSTM": PeepholeLSTM}
_WEIGHT = re.compile(
    r"(?P<prefix>.*?)(?P<kind>weight_ih|weight_hh|weight_ph|weight_hr|bias_ih|bias_hh|bias)_l(?P<layer>\d+)(?P<reverse>_reverse)?"
)


def save(module: nn.LSTM | PeepholeLSTM, path: Path | str) -> Path:
    """Write an `nn.LSTM` or a `PeepholeLSTM` as safetensors, its sizes and options as JSON in the metadata."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InspectError(f"{path}: an LSTM is saved as .safetensors")
    kind = next((name for name, made in _KINDS.items() if type(module) is made), None)
    if kind is None:
        raise InspectError(f"{type(module).__name__} cannot be saved here: nn.LSTM and PeepholeLSTM can")
    configuration = {"kind": kind} | {name: getattr(module, name) for name in (*_SIZES, *_OPTIONS[kind])}
    tensors = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    _safetensors().save_file(tensors, path, metadata={KEY: json.dumps(configuration)})
    return path


def load(path: Path | str) -> nn.Module:
    """The LSTM in a file: .safetensors, as `save` writes it, or .onnx.

    The configuration is read from the file's metadata, else from a file of the same name that ends in .json. Without
    either, sizes and directions are read from the weights' names and shapes, and activations are those of `nn.LSTM`.
    """
    path = _existing(path, MODELS, "a model")
    if path.suffix == ".onnx":
        from peephole.interop import onnx

        module: nn.Module = onnx.load(path)
        return module
    tensors, metadata = _tensors(path)
    beside = path.with_suffix(".json")
    if KEY in metadata:
        configuration = _json(metadata[KEY], f"{path}, metadata {KEY!r}")
    elif beside.exists():
        configuration = _json(beside.read_bytes(), str(beside))
    else:
        configuration, tensors = _inferred(tensors, path)
    module = _built(configuration, path)
    _fill(module, tensors, path)
    return module


def load_batch(path: Path | str, inputs: int) -> Tensor | PackedSequence:
    """A batch of sequences from a file, steps first; packed where sequences have different lengths.

    Arrays (.npy, .npz, .safetensors: the only one, or that named x, and optionally `lengths`) have the axes
    sequences, steps, features; one sequence alone may leave the first out. A .csv has a header and a row a step; a
    column `sequence` tells sequences apart, and all others are features. `inputs` is the number of features wanted.
    """
    path = _existing(path, BATCHES, "a batch")
    if path.suffix == ".csv":
        x, lengths = _table(path)
    else:
        arrays = _arrays(path)
        x, lengths = _chosen(arrays, path), arrays.get("lengths")
    if x.ndim == 2:
        x = x[None]
    if x.ndim != 3 or 0 in x.shape or x.dtype.kind not in "fiub":
        raise InspectError(
            f"{path}: an array of shape {x.shape} and type {x.dtype}; a batch has numbers by sequence, step and feature"
        )
    if x.shape[2] != inputs:
        raise InspectError(f"{path}: sequences of {x.shape[2]} features (shape {x.shape}); the model takes {inputs}")
    tensor = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64)).transpose(0, 1)
    if lengths is None:
        _refuse(tensor, path)
        return tensor
    ends = np.asarray(lengths)
    if ends.shape != x.shape[:1] or ends.dtype.kind not in "iu" or ends.min() < 1 or ends.max() > x.shape[1]:
        raise InspectError(f"{path}: lengths must be {len(x)} whole numbers from 1 to {x.shape[1]}")
    packed = pack_padded_sequence(tensor, torch.from_numpy(ends.astype(np.int64)), enforce_sorted=False)
    _refuse(packed.data, path)
    return packed


def _refuse(values: Tensor, path: Path) -> None:
    bad = int((~values.isfinite()).sum())
    if bad:
        raise InspectError(f"{path}: {bad} of {values.numel()} values are NaN or infinite; fill what is missing first")


def _existing(path: Path | str, suffixes: tuple[str, ...], what: str) -> Path:
    path = Path(path)
    if path.suffix in (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt"):
        raise InspectError(
            f"{path}: pickled files can run code and are not opened; save the LSTM by peephole.inspect.save(lstm, path)"
        )
    if path.suffix not in suffixes:
        raise InspectError(f"{path}: {what} is a file that ends in {', '.join(suffixes[:-1])} or {suffixes[-1]}")
    if not path.is_file():
        raise InspectError(f"{path}: there is no such file")
    return path


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ImportError("safetensors files need safetensors: pip install 'peephole[inspect]'") from error
    return safetensors.torch


def _tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a safetensors file, and its metadata."""
    _safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except SafetensorError as error:
        raise InspectError(f"{path} is not a safetensors file, or is cut off: {error}") from error


def _json(text: str | bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InspectError(f"{where} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InspectError(f"{where}: an object is wanted, such as {{'kind': 'nn.LSTM', 'input_size': 3, ...}}")
    return found


def _inferred(tensors: Mapping[str, Tensor], path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration that names and shapes tell, and the LSTM's own tensors without what leads their names."""
    named = {name: match for name in tensors if (match := _WEIGHT.fullmatch(name))}
    prefixes = sorted({match["prefix"] for match in named.values()})
    if not prefixes:
        raise InspectError(f"{path} holds no LSTM: none of its {len(tensors)} tensors is named like weight_ih_l0")
    if len(prefixes) > 1:
        raise InspectError(
            f"{path} holds {len(prefixes)} LSTMs ({', '.join(prefixes)}): save the one meant by peephole.inspect.save"
        )
    own = {name.removeprefix(prefixes[0]): tensors[name] for name in named}
    if "weight_ih_l0" not in own or "weight_hh_l0" not in own or own["weight_ih_l0"].dim() != 2:
        raise InspectError(f"{path}: weight_ih_l0 (4H, I) and weight_hh_l0 (4H, H) are not both there")
    kinds = {match["kind"] for match in named.values()}
    rows, inputs = own["weight_ih_l0"].shape
    ours = bool({"weight_ph", "bias"} & kinds)
    configuration: dict[str, Any] = {
        "kind": "PeepholeLSTM" if ours else "nn.LSTM",
        "input_size": inputs,
        "hidden_size": rows // 4,
        "num_layers": 1 + max(int(match["layer"]) for match in named.values()),
        "bias": bool({"bias", "bias_ih"} & kinds),
        "bidirectional": any(match["reverse"] for match in named.values()),
    }
    if ours:
        configuration["peepholes"] = "weight_ph" in kinds
    elif "weight_hr" in kinds:
        configuration["proj_size"] = len(own.get("weight_hr_l0", ()))
    return configuration, own


def _built(configuration: dict[str, Any], path: Path) -> nn.Module:
    """A module without weights of its own, so that sizes that lie cost no memory."""
    kind = configuration.get("kind")
    if kind not in _KINDS:
        raise InspectError(f"{path}: kind {kind!r} is not an LSTM; {' and '.join(_KINDS)} are")
    unknown = sorted(configuration.keys() - {"kind", *_SIZES, *_OPTIONS[kind]})
    if unknown:
        raise InspectError(f"{path}: {kind} has no option {unknown[0]!r}")
    try:
        idle = ("kind", "dropout", "batch_first")  # dropout is off; in which order a batch comes is told elsewhere
        options = {name: value for name, value in configuration.items() if name not in idle}
        return _KINDS[kind](**options, device="meta")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InspectError(f"{path}: no {kind} of this configuration: {error}") from error


def _fill(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Give the module the tensors of the file; each must be there, and fit."""
    wanted = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    for name, shape in wanted.items():
        if name not in tensors:
            raise InspectError(f"{path}: {name} {shape} is missing")
        if tuple(tensors[name].shape) != shape or not tensors[name].is_floating_point():
            found = f"{tuple(tensors[name].shape)} of {tensors[name].dtype}"
            raise InspectError(f"{path}: {name} is {found}, its configuration wants {shape} of a floating type")
    extra = sorted(tensors.keys() - wanted.keys())
    if extra:
        raise InspectError(f"{path}: {extra[0]} belongs to no {type(module).__name__} of its configuration")
    double = any(tensor.dtype == torch.float64 for tensor in tensors.values())
    kind = torch.float64 if double else torch.float32
    module.load_state_dict({name: tensors[name].to(kind) for name in wanted}, assign=True)


def _arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file by name; a .npy's is called x."""
    if path.suffix == ".safetensors":
        return {name: tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy()
                for name, tensor in _tensors(path)[0].items()}  # fmt: skip
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {"x": found}
        with found:
            return dict(found)
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError, NotImplementedError, SyntaxError) as error:
        raise InspectError(f"{path} is not a NumPy file of plain numbers: {error}") from error


def _chosen(arrays: dict[str, Any], path: Path) -> Any:
    names = [name for name in arrays if name != "lengths"]
    name = "x" if "x" in names else names[0] if len(names) == 1 else None
    if name is None:
        raise InspectError(
            f"{path} holds {', '.join(names) or 'no array'}: the batch is the only array, or that named x"
        )
    return arrays[name]


def _table(path: Path) -> tuple[Any, Any]:
    """Sequences (B, T, I), padded with zeros, and their lengths, None where they are equal."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = list(csv.reader(file)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InspectError(f"{path} is not a table in UTF-8: {error}") from error
    rows = [row for row in rows if row]
    if not header or not rows:
        raise InspectError(f"{path}: a header and at least one row are wanted")
    key = header.index("sequence") if "sequence" in header else None
    sequences: dict[str, list[list[float]]] = {}
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise InspectError(f"{path}, line {number}: {len(row)} values under a header of {len(header)}")
        try:
            values = [float(value) if value.strip() else float("nan") for k, value in enumerate(row) if k != key]
        except ValueError as error:
            raise InspectError(f"{path}, line {number}: {error}") from error
        sequences.setdefault("" if key is None else row[key], []).append(values)
    lengths = np.array([len(sequence) for sequence in sequences.values()])
    x = np.zeros((len(sequences), lengths.max(), len(header) - (key is not None)))
    for place, sequence in zip(x, sequences.values(), strict=True):
        place[: len(sequence)] = sequence
    return x, None if (lengths == lengths[0]).all() else lengths
