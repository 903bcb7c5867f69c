"""Speed against the peers: ratios in one run, printed only where the outputs agree."""

from peephole.bench.speed import (
    SIZES,
    DisagreementError,
    Row,
    Size,
    growth,
    machine,
    measure,
    replicas,
    sgemm_rate,
    use_threads,
)

__all__ = [
    "SIZES",
    "DisagreementError",
    "Row",
    "Size",
    "growth",
    "machine",
    "measure",
    "replicas",
    "sgemm_rate",
    "use_threads",
]
