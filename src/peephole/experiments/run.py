"""Runs jobs that have no record yet, on one machine or on many; each record is kept as soon as its group ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any

from peephole.experiments.errors import ExecutorError
from peephole.experiments.jobs import Job
from peephole.experiments.store import Record, Store
from peephole.experiments.training import Material, train_group

EXECUTORS = "serial, processes, processes:N, dask:ADDRESS, ray:ADDRESS"
# Hears of replica-epochs done.
Progress = Callable[[int], None]


def run(
    jobs: Iterable[Job],
    materials: Mapping[str, Material],
    store: Store,
    *,
    executor: str = "processes",
    progress: Progress | None = None,
) -> list[Record]:
    """The records of all jobs, in their order; those that the store has not are trained first.

    What runs where changes nothing in a record but its provenance. Only this process writes: a worker that dies
    costs its group, which its executor starts again elsewhere, and a run that dies costs the groups under way.
    """
    check(executor)
    jobs = list(jobs)
    missing = store.missing(jobs)
    kept = {job: store.read(job) for job in set(jobs) - set(missing)}  # one that is no record is told before training
    if progress is not None:
        progress(sum(job.epochs for job in jobs) - sum(job.epochs for job in missing))
    groups = [list(group) for _, group in itertools.groupby(sorted(missing, key=_order), key=lambda job: job.group)]
    for records in _trained(groups, materials, executor, progress):
        for record in records:
            store.write(record)
    return [kept[job] if job in kept else store.read(job) for job in jobs]


def check(executor: str) -> None:
    """Raise unless the executor is one of those known, with a number or an address where it needs one."""
    kind, _, where = executor.partition(":")
    if kind not in ("serial", "processes", "dask", "ray"):
        raise ExecutorError(f"unknown executor {executor!r}: {EXECUTORS}")
    if kind == "processes" and where and not (where.isdigit() and int(where)):
        raise ExecutorError(f"executor {executor}: N is a whole number of at least 1")


def _order(job: Job) -> tuple[Any, ...]:
    """Seeds first, then data sets: what is there after half the time tells something of everything."""
    return (job.seed, job.dataset, *(str(value) for value in job.group), job.method)


def _trained(
    groups: Sequence[Sequence[Job]], materials: Mapping[str, Material], executor: str, progress: Progress | None
) -> Iterator[list[Record]]:
    """The records of each group, as they come."""
    if not groups:
        return
    kind, _, where = executor.partition(":")
    if kind == "serial":
        for group in groups:
            hears = None if progress is None else _each(progress, len(group))
            yield train_group(materials[group[0].dataset], group, progress=hears)
        return
    results = _on_ray(where, groups, materials) if kind == "ray" else _by_joblib(kind, where, groups, materials)
    with closing(results):
        for records in results:
            yield records
            if progress is not None:
                progress(sum(record["job"]["epochs"] for record in records))


def _by_joblib(
    kind: str, where: str, groups: Sequence[Sequence[Job]], materials: Mapping[str, Material]
) -> Generator[list[Record]]:
    try:
        import joblib
    except ImportError as error:
        raise ExecutorError(f"executor {kind}: pip install 'peephole[reproduce]'") from error
    with _backend(kind, where) as options:
        parallel = joblib.Parallel(return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1, **options)
        tasks = (joblib.delayed(train_group)(materials[group[0].dataset], group, 1) for group in groups)
        with closing(parallel(tasks)) as results:
            yield from results


def _each(progress: Progress, replicas: int) -> Progress:
    return lambda epoch: progress(replicas)


def _backend(kind: str, where: str) -> AbstractContextManager[dict[str, Any]]:
    """A context in which joblib runs where it was asked to."""
    if kind == "processes":
        return nullcontext({"backend": "loky", "n_jobs": int(where or -1)})
    return _dask(where)


@contextmanager
def _dask(address: str) -> Iterator[dict[str, Any]]:
    try:
        import joblib
        from distributed import Client
    except ImportError as error:
        raise ExecutorError("executor dask: pip install 'peephole[dask]'") from error
    try:
        client: Any = Client(address, timeout="10s", set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ExecutorError(f"executor dask:{address}: no scheduler there ({error})") from error
    with client, joblib.parallel_config(backend="dask", client=client, wait_for_workers_timeout=60):
        yield {"n_jobs": -1}


def _on_ray(
    address: str, groups: Sequence[Sequence[Job]], materials: Mapping[str, Material]
) -> Generator[list[Record]]:
    """Without joblib, whose backend for Ray gives nothing back before everything is done."""
    try:
        import ray
    except ImportError as error:
        raise ExecutorError("executor ray: pip install 'peephole[ray]'") from error
    try:
        ray.init(address=address or None, ignore_reinit_error=True, log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise ExecutorError(f"executor ray:{address}: no cluster there ({error})") from error
    data = {name: ray.put(material) for name, material in materials.items()}
    train: Any = ray.remote(train_group)  # a task whose worker died is started again, elsewhere
    pending = [train.remote(data[group[0].dataset], group, 1) for group in groups]
    while pending:
        (done,), pending = ray.wait(pending)
        yield ray.get(done)
