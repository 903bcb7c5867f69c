"""Speed against the peers: ratios in one run, printed only where the outputs agree."""

from peephole.bench.case import DisagreementError
from peephole.bench.sizes import SIZES, Ratio, Row, Size, missed
from peephole.bench.speed import growth, machine, measure, replicas, sgemm_rate, use_threads
from peephole.nn.kernel import KernelError

__all__ = [
    "SIZES",
    "DisagreementError",
    "KernelError",
    "Ratio",
    "Row",
    "Size",
    "growth",
    "machine",
    "measure",
    "missed",
    "replicas",
    "sgemm_rate",
    "use_threads",
]
