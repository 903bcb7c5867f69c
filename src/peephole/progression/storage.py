"""A fitted model as a folder of two files: numbers as safetensors, all else as JSON. Nothing in them is executed.

`model.json` holds the SHA-256 of `model.safetensors`, and its own over everything else in it, so that a file that was
cut, mixed up with another or edited is refused by name. A checksum is no signature: it tells damage from intent no
better than it can, and a model from a stranger is still only numbers.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peephole.progression.errors import ProgressionError

Arrays = dict[str, NDArray[Any]]
JSON, NUMBERS = "model.json", "model.safetensors"
FORMAT, VERSION = "peephole forecast", 1
TYPES = ("float32", "float64")


def write(folder: str | Path, content: Mapping[str, Any], arrays: Arrays) -> Path:
    """Write the folder; the same content gives the same bytes. Only an empty one or an earlier model is written to."""
    save = _safetensors().save
    folder = check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})
    shapes = {name: [str(array.dtype), list(array.shape)] for name, array in sorted(arrays.items())}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "numbers": {"sha256": hashlib.sha256(numbers).hexdigest(), "arrays": shapes},
        "content": dict(content),
    }
    document["sha256"] = _digest(document)
    _replace(folder / NUMBERS, numbers)
    _replace(folder / JSON, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
    return folder


def check_folder(folder: str | Path) -> Path:
    """The folder, if a model may be written there."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ProgressionError(f"{folder}: a file, expected a folder for the model")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / JSON).is_file():
        raise ProgressionError(f"{folder}: holds something else than a model; name a new folder")
    return folder


def read(folder: str | Path) -> tuple[dict[str, Any], Arrays]:
    """What `write` was given. Raises `ProgressionError` with the file and what is wrong with it."""
    load = _safetensors().load
    folder = Path(folder)
    if not folder.is_dir():
        raise ProgressionError(f"{folder}: no such folder, expected one written by `save` or `peephole forecast train`")
    text, numbers = _bytes(folder / JSON), _bytes(folder / NUMBERS)
    document = _document(folder / JSON, text)
    if hashlib.sha256(numbers).hexdigest() != document["numbers"]["sha256"]:
        raise ProgressionError(
            f"{folder / NUMBERS}: not the bytes that {JSON} was written with: cut, changed or mixed up"
        )
    try:
        arrays: Arrays = dict(load(numbers))
    except Exception as error:  # whatever safetensors finds: its own error is no ValueError
        raise ProgressionError(f"{folder / NUMBERS}: not a safetensors file: {error}") from None
    found = {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}
    if found != document["numbers"]["arrays"] or any(kind not in TYPES for kind, _ in found.values()):
        raise ProgressionError(f"{folder / NUMBERS}: other arrays than {JSON} lists")
    return document["content"], arrays


def _document(path: Path, text: bytes) -> dict[str, Any]:
    """The JSON document, of our format and whole."""
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ProgressionError(f"{path}: not JSON, cut or damaged: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ProgressionError(f"{path}: not a model of `peephole forecast`")
    if document.get("version") != VERSION:
        raise ProgressionError(f"{path}: format version {document.get('version')!r}, this peephole reads {VERSION}")
    if document.get("sha256") != _digest({key: value for key, value in document.items() if key != "sha256"}):
        raise ProgressionError(f"{path}: its checksum does not match: changed or damaged since it was written")
    numbers, content = document.get("numbers"), document.get("content")
    if not (isinstance(numbers, dict) and {"sha256", "arrays"} <= numbers.keys() and isinstance(content, dict)):
        raise ProgressionError(f"{path}: parts of the model are missing")
    return document


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def _digest(document: Mapping[str, Any]) -> str:
    plain = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(plain.encode()).hexdigest()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProgressionError(f"{path}: {error.strerror or error}") from None


def _replace(path: Path, content: bytes) -> None:
    """Whole or not at all: written beside, then renamed."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("models are kept as safetensors: pip install 'peephole[forecast]'") from error
    return safetensors.numpy
