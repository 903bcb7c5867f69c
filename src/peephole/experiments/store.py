"""Records on disk: one JSON file a job, under its key, written once and whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
import time
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
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
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
        part: str | None = None
        try:
            handle, part = tempfile.mkstemp(suffix=".part", dir=self.folder)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(record, file, allow_nan=False, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            os.link(part, path)  # fails where a rename would overwrite
        except FileExistsError:
            pass
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
        finally:
            if part is not None:
                Path(part).unlink(missing_ok=True)
