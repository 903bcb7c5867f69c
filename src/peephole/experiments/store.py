"""Records on disk: one JSON file a job, under its key, written once and whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from peephole.experiments.errors import StoreError
from peephole.experiments.jobs import Job

Record = dict[str, Any]
ABANDONED = 3600.0  # seconds after which an unfinished file is nobody's


class Store:
    """A folder of records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        writable(folder)
        try:
            for part in folder.glob("*.part"):
                if time.time() - part.stat().st_mtime > ABANDONED:
                    part.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{folder} cannot be written: {error.strerror or error}") from error

    def path(self, job: Job) -> Path:
        """Where the job's record is, or will be."""
        return self.folder / f"{job.key}.json"

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs without a record, in order, each once."""
        return [job for job in dict.fromkeys(jobs) if not self.path(job).exists()]

    def read(self, job: Job) -> Record:
        """The record of a job."""
        path = self.path(job)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["key"] != job.key:
                raise KeyError("key")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path}: not a whole record ({error}); delete it to have it made again") from error
        return dict(record)

    def write(self, record: Record) -> None:
        """Keep a record: visible at once and whole, and never over one that is there."""
        path = self.folder / f"{record['key']}.json"
        part: Path | None = None
        try:
            handle, part = _unfinished(self.folder)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(record, file, allow_nan=False, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            _publish(part, path)
        except FileExistsError:
            pass
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
        finally:
            if part is not None:
                part.unlink(missing_ok=True)


def _unfinished(folder: Path) -> tuple[int, Path]:
    """A new file that others may read as the umask has it, which tempfile's may not."""
    path = folder / f"{uuid.uuid4().hex}.part"
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), path


def _publish(part: Path, path: Path) -> None:
    """Give it its name, unless there is one of that name."""
    try:
        os.link(part, path)  # fails where a rename would overwrite
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: whoever is second writes the same losses
        if path.exists():
            raise FileExistsError(path) from None
        part.replace(path)


def writable(folder: Path) -> None:
    """Make the folder, and raise unless a file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror or error}") from error
