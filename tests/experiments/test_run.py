"""A sweep on one machine and on many: the same records, none lost, none doubled."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray
from distributed import LocalCluster

from peephole.experiments.errors import ExecutorError, StoreError
from peephole.experiments.run import run
from peephole.experiments.store import Record, Store
from tests.experiments.sets import crop, jobs, plain

MATERIAL = {"Crop": crop()}


def serial(folder: Path, seeds: int = 2, epochs: int = 10) -> list[Record]:
    """The records by the plainest way."""
    return run(jobs(seeds, epochs), MATERIAL, Store(folder), executor="serial")


def test_a_record_is_a_job_s_whole_course(tmp_path: Path) -> None:
    """Records come in the order of the jobs, with spec, curves, final scores, versions and time."""
    wanted = jobs()
    records = run(wanted, MATERIAL, Store(tmp_path), executor="serial")
    assert [record["key"] for record in records] == [job.key for job in wanted]
    first = records[0]
    assert first["job"]["method"] == "proposed-4"
    assert len(first["train"]) == 11
    assert len(first["marks"]) == len(first["validation"]) == len(first["test"])
    assert first["final"]["test"] == first["test"][-1]
    assert first["provenance"]["seconds"] > 0
    assert first["train"] != records[1]["train"]


def test_no_record_is_told_before_training(tmp_path: Path) -> None:
    """A file that is no record is refused while nothing has been trained."""
    store, wanted = Store(tmp_path), jobs()
    store.path(wanted[-1]).write_text("{")
    with pytest.raises(StoreError, match="not a whole record"):
        run(wanted, MATERIAL, store, executor="serial")
    assert len(list(tmp_path.iterdir())) == 1


def test_groups_change_nothing(tmp_path: Path) -> None:
    """A job has the same record alone as among the other methods of its seed."""
    together = {record["key"]: plain(record) for record in serial(tmp_path / "all")}
    for number, job in enumerate(jobs()):
        (alone,) = run([job], MATERIAL, Store(tmp_path / str(number)), executor="serial")
        assert plain(alone) == together[job.key]


def test_processes(tmp_path: Path) -> None:
    """Two processes make the same records as one."""
    records = run(jobs(), MATERIAL, Store(tmp_path / "processes"), executor="processes:2")
    assert [plain(r) for r in records] == [plain(r) for r in serial(tmp_path / "serial")]


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    """A second run trains nothing, a larger one only what is new; progress counts all of it."""
    heard: list[int] = []
    serial(tmp_path, seeds=1)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    run(jobs(2), MATERIAL, Store(tmp_path), executor="serial", progress=heard.append)
    assert heard[0] == 3 * 10
    assert sum(heard) == 6 * 10
    assert all(path.stat().st_mtime_ns == made for path, made in times.items())
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.filterwarnings("ignore")  # distributed speaks of its own matters when a worker dies
def test_dask_loses_a_worker(tmp_path: Path) -> None:
    """On two Dask workers over TCP, one killed half way, the records are bit for bit the serial ones."""
    seeds, epochs = 10, 400
    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=2, threads_per_worker=1, processes=True, protocol="tcp", dashboard_address=None
    ) as cluster:
        done = 0

        def kill_one(replica_epochs: int) -> None:
            nonlocal done
            done += replica_epochs
            if done >= 3 * epochs * 3 and killed:
                os.kill(killed.pop(), signal.SIGKILL)

        killed = [next(iter(cluster.workers.values())).pid]
        address = cluster.scheduler_address
        assert address.startswith("tcp://")
        records = run(
            jobs(seeds, epochs), MATERIAL, Store(tmp_path / "dask"), executor=f"dask:{address}", progress=kill_one
        )
        assert not killed
    assert [plain(r) for r in records] == [plain(r) for r in serial(tmp_path / "serial", seeds, epochs)]


@pytest.mark.filterwarnings("ignore")  # ray speaks of its own future
def test_ray(tmp_path: Path) -> None:
    """On a Ray cluster the records are bit for bit the serial ones."""
    try:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        records = run(jobs(), MATERIAL, Store(tmp_path / "ray"), executor="ray:auto")
    finally:
        ray.shutdown()
    assert [plain(r) for r in records] == [plain(r) for r in serial(tmp_path / "serial")]


SWEEP = """
import sys
from pathlib import Path
from peephole.experiments.run import run
from peephole.experiments.store import Store
from tests.experiments.sets import crop, jobs
run(jobs(12, 400), {"Crop": crop()}, Store(Path(sys.argv[1])), executor=sys.argv[2])
"""


@pytest.mark.parametrize("executor", ["serial", "processes:2"])
def test_killed_in_the_middle(tmp_path: Path, executor: str) -> None:
    """After kill -9 in the middle a second run finishes: no record lost, none doubled, none half-written."""
    folder = tmp_path / "records"
    command = [sys.executable, "-c", SWEEP, str(folder), executor]
    first = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    while len(list(folder.glob("*.json"))) < 6:
        assert first.poll() is None
        time.sleep(0.02)
    first.kill()
    first.wait()
    kept = {path: path.read_bytes() for path in folder.glob("*.json")}
    assert 0 < len(kept) < 36
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True)
    assert {path.name for path in folder.glob("*.json")} == {f"{job.key}.json" for job in jobs(12, 400)}
    assert all(path.read_bytes() == content for path, content in kept.items())
    store = Store(folder)
    assert [plain(store.read(job)) for job in jobs(12, 400)] == [plain(r) for r in serial(tmp_path / "whole", 12, 400)]


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        ("threads", "unknown executor 'threads': serial, processes"),
        ("processes:0", "whole number"),
        ("processes:many", "whole number"),
        ("dask:tcp://127.0.0.1:9", "no scheduler there"),
    ],
)
def test_no_such_executor(tmp_path: Path, executor: str, message: str) -> None:
    """Unknown executors and addresses where nobody listens are told in one line."""
    with pytest.raises(ExecutorError, match=message):
        run(jobs(1), MATERIAL, Store(tmp_path), executor=executor)
