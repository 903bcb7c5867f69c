"""Records: whole or not at all, once, and refused by name where they cannot be."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peephole.experiments.errors import StoreError
from peephole.experiments.jobs import Job
from peephole.experiments.store import Store

JOB = Job("Crop", "abc", "proposed-1", 0, 10)


def record(job: Job = JOB, **more: Any) -> dict[str, Any]:
    """A record of nothing much."""
    return {"key": job.key, "train": [1.0], **more}


def test_a_key_is_the_job() -> None:
    """Every field of a job is in its key; the same job has the same key in any process."""
    others = [
        replace(JOB, **change)
        for change in ({"dataset": "A"}, {"data": "b"}, {"method": "m"}, {"seed": 1}, {"epochs": 9}, {"share": 0.5},
                       {"rate": 0.2}, {"momentum": 0.5}, {"decay": 0.0}, {"patience": 3},
                       {"format": 9})
    ]  # fmt: skip
    assert len({JOB.key, *(job.key for job in others)}) == 12
    assert replace(JOB).key == JOB.key == "cb2566ba03d18f89635a1397"


def test_written_once(tmp_path: Path) -> None:
    """A second record under the same key changes nothing, and nothing else is left in the folder."""
    store = Store(tmp_path / "new")
    assert store.missing([JOB, JOB]) == [JOB]
    store.write(record(note="first"))
    store.write(record(note="second"))
    assert store.read(JOB)["note"] == "first"
    assert store.missing([JOB]) == []
    assert [path.name for path in store.folder.iterdir()] == [f"{JOB.key}.json"]


def test_readable_by_others(tmp_path: Path) -> None:
    """A record has the mode of any file that one makes."""
    store = Store(tmp_path)
    store.write(record())
    (tmp_path / "any").write_text("")
    assert store.path(JOB).stat().st_mode == (tmp_path / "any").stat().st_mode


def test_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without hard links a record is written once too, and nothing else is left."""
    monkeypatch.setattr(os, "link", lambda part, path: os.mkdir("/proc/no"))
    store = Store(tmp_path)
    store.write(record(note="first"))
    store.write(record(note="second"))
    assert store.read(JOB)["note"] == "first"
    assert [path.name for path in tmp_path.iterdir()] == [f"{JOB.key}.json"]


def test_what_is_no_record(tmp_path: Path) -> None:
    """A file that was cut off, or belongs to another job, is refused by its path."""
    store = Store(tmp_path)
    for content in ('{"key": "', "[]", json.dumps(record(replace(JOB, seed=5)))):
        store.path(JOB).write_text(content)
        with pytest.raises(StoreError, match=rf"{JOB.key}\.json: not a whole record .*delete it"):
            store.read(JOB)


def test_not_a_folder(tmp_path: Path) -> None:
    """A file where the folder should be, and a folder that cannot be made, are told in one line."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file cannot be written"):
        Store(tmp_path / "file")
    with pytest.raises(StoreError, match=r"/proc/nothing cannot be written"):
        Store(Path("/proc/nothing"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full disk to write to")
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk the record is not there at all, and the message says so."""
    store = Store(tmp_path)
    full = lambda folder: (os.open("/dev/full", os.O_WRONLY), folder / "x.part")  # noqa: E731
    monkeypatch.setattr("peephole.experiments.store._unfinished", full)
    with pytest.raises(StoreError, match="No space left on device"):
        store.write(record())
    assert list(tmp_path.iterdir()) == []


def test_abandoned_parts_go(tmp_path: Path) -> None:
    """What a killed process left unfinished is removed after an hour, and not before."""
    for name, age in (("old.part", 4000), ("young.part", 10)):
        (tmp_path / name).write_text("{")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    Store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["young.part"]
