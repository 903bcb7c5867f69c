"""Batches as files: arrays and tables. Nothing is unpickled."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from peephole.inspect.errors import InspectError
from peephole.inspect.models import existing, tensors_of

BATCHES = (".npy", ".npz", ".csv", ".safetensors")


def load_batch(path: Path | str, inputs: int) -> Tensor | PackedSequence:
    """A batch of sequences from a file, steps first; packed where sequences have different lengths.

    Arrays (.npy, .npz, .safetensors: the only one, or that named x, and optionally `lengths`) have the axes
    sequences, steps, features; one sequence alone may leave the first out. A .csv has a header and a row a step; a
    column `sequence` tells sequences apart, and all others are features. `inputs` is the number of features wanted.
    """
    path = existing(path, BATCHES, "a batch")
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


def _arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file by name; a .npy's is called x."""
    if path.suffix == ".safetensors":
        return {name: tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy()
                for name, tensor in tensors_of(path).items()}  # fmt: skip
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {"x": found}
        with found:
            return dict(found)
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError, NotImplementedError, SyntaxError) as error:
        raise InspectError(f"{path} is not a NumPy file of plain numbers, or is cut off") from error


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
    if header and all(_is_number(name) for name in header):
        raise InspectError(f"{path}, line 1: numbers, where the names of the features are wanted")
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


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
