"""PeepholeLSTM against `nn.LSTM`, the plain loop and torchrecurrent, at some sizes.

Every figure is a ratio of best times, the peers taking turns in one run, for this machine may be shared and its
absolute times mean little. Nothing is timed before the outputs and gradients to be compared have agreed.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
from torch import Tensor

from peephole.bench.case import WEIGHTS, Case, compare, layer, loss
from peephole.bench.sizes import SIZES, Ratio, Row, Size
from peephole.nn import kernel

SECONDS = 1.5  # at most so long for each peer and size, once it has had its least number of rounds
ROUNDS = 5


def measure(size: Size, *, rounds: int = ROUNDS, seconds: float = SECONDS) -> Row:
    """Best time of each peer at one size, after the outputs have agreed."""
    case = Case(size)
    case.agree()
    return Row(size, best_times(dict(case.peers()), rounds, seconds))


def best_times(work: dict[str, Callable[[], object]], rounds: int, seconds: float) -> dict[str, float]:
    """The best time of each, in rounds in which all take turns; short work is repeated within a round."""
    repeats, best = {}, {}
    for name, run in work.items():
        run()
        once = _time(run, 1)
        repeats[name] = max(1, min(50, int(0.02 / once)))
        best[name] = once
    started, done = time.perf_counter(), 0
    while done < rounds or (time.perf_counter() - started < seconds and done < 10 * rounds):
        for name, run in work.items():
            best[name] = min(best[name], _time(run, repeats[name]))
        done += 1
    return best


def _time(run: Callable[[], object], repeats: int) -> float:
    """The best of some calls in a row."""
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started)
    return best


def sgemm_rate(n: int = 2048) -> float:
    """Floating-point operations a second of torch's own product of two square float32 matrices."""
    a, b = torch.randn(n, n), torch.randn(n, n)
    return 2 * n**3 / best_times({"sgemm": lambda: a @ b}, ROUNDS, SECONDS)["sgemm"]


def replicas(count: int = 20, size: Size = SIZES[2]) -> Ratio:
    """How much faster than `count` calls of next_step_loss one with as many replicas is, on the same sequences."""
    case = Case(size)
    scales = torch.linspace(0.5, 1.5, count)  # each network is another one
    each = [[(w.detach() * scale).requires_grad_() for w in case.weights] for scale in scales]
    stacked = [torch.stack([w.detach() for w in same]).requires_grad_() for same in zip(*each, strict=True)]

    def together() -> Tensor:
        value = loss(case.x, stacked)
        torch.autograd.backward(value.sum())
        return value.detach()

    def one_by_one() -> Tensor:
        values = []
        for weights in each:
            value = loss(case.x, weights)
            torch.autograd.backward(value)
            values.append(value.detach())
        return torch.stack(values)

    value, wanted = {"next_step_loss": together()}, {"next_step_loss": one_by_one().double()}
    for name, stack, *same in zip(WEIGHTS, stacked, *each, strict=True):
        grads = [w.grad for w in same if w.grad is not None]
        if stack.grad is not None:
            value[name] = stack.grad
        wanted[name] = torch.stack(grads).double()
    compare(f"{count} replicas against as many calls", value, wanted)
    best = best_times({"together": together, "one by one": one_by_one}, ROUNDS, SECONDS)
    return Ratio(best["one by one"] / best["together"], 1.0)


def growth(axis: str, values: tuple[int, ...], base: Size = SIZES[3]) -> list[tuple[int, float]]:
    """Seconds forward and back of ours as one of steps, batch, units or replicas grows, all else as in `base`."""
    found = []
    for value in values:
        sizes = {"steps": base.steps, "batch": base.batch, "units": base.units} | (
            {axis: value} if axis != "replicas" else {}
        )
        case = Case(Size(sizes["steps"], sizes["batch"], base.inputs, sizes["units"], 0, 0))
        copies = value if axis == "replicas" else 1
        weights = [w.detach().expand(copies, *w.shape).contiguous().requires_grad_() for w in case.weights]

        def run(case: Case = case, weights: list[Tensor] = weights) -> None:
            y = layer(case.x, weights)
            torch.autograd.backward(y, case.upstream.expand_as(y))

        found.append((value, best_times({"ours": run}, ROUNDS, SECONDS / 2)["ours"]))
    return found


def use_threads(count: int) -> None:
    """Threads for all peers."""
    torch.set_num_threads(count)


def machine() -> str:
    """What the figures were measured on."""
    name, *_ = kernel.instruction_set()
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        models = [
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ]
        cpu = models[0] if models else cpu
    return f"{cpu}, {torch.get_num_threads()} threads, {name} kernels, PyTorch {torch.__version__}, {date.today()}"
