"""PeepholeLSTM against `nn.LSTM`, the plain loop and torchrecurrent, at some sizes.

Every figure is a ratio of best times, the peers taking turns in one run, for this machine may be shared and its
absolute times mean little. Nothing is timed before the outputs and gradients to be compared have agreed.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from peephole.nn import functional as F  # noqa: N812 - as torch.nn.functional is imported
from peephole.nn import kernel

RELATIVE_RMS = 1e-5  # of float32 outputs and gradients against the loop in float64
SECONDS = 1.5  # at most so long for each peer and size, once it has had its least number of rounds
ROUNDS = 5


@dataclass(frozen=True)
class Size:
    """Steps, batch, inputs, units, and the ratios that are the floor: against nn.LSTM, and against the loop."""

    steps: int
    batch: int
    inputs: int
    units: int
    least: float
    least_loop: float
    least_loss: float | None = None
    least_loss_loop: float | None = None

    def __str__(self) -> str:
        return f"{self.steps}, {self.batch}, {self.inputs}, {self.units}"

    @property
    def floating_point_operations(self) -> int:
        """Of the matrix products of one step forward and back, without the gradient of the input."""
        rows, width = 4 * self.units, self.inputs + self.units
        return 2 * self.steps * self.batch * rows * (width + self.units + width)


SIZES = (
    Size(95, 7587, 1, 1, 10, 5, 50, 20),
    Size(499, 3060, 1, 1, 10, 5, 50, 20),
    Size(9, 282, 6, 6, 2.5, 8),
    Size(96, 64, 16, 32, 2.5, 10),
    Size(100, 64, 64, 64, 1.5, 5),
    Size(100, 64, 128, 128, 1.3, 3.5),
    Size(100, 64, 256, 256, 1.1, 2.5),
    Size(100, 32, 512, 512, 1.0, 2.5),
)


class DisagreementError(AssertionError):
    """Outputs or gradients that ought to be equal are not: there is nothing to time."""


@dataclass
class Row:
    """What was measured at one size: seconds by name, and the ratios that follow."""

    size: Size
    seconds: dict[str, float] = field(default_factory=dict)

    def ratio(self, peer: str, ours: str) -> float | None:
        """How many times longer the peer takes."""
        if peer not in self.seconds or ours not in self.seconds:
            return None
        return self.seconds[peer] / self.seconds[ours]


class _Case:
    """One size: data, weights, and every peer as a function to time."""

    def __init__(self, size: Size, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int, scale: float = 1.0) -> Tensor:
            return torch.randn(shape, generator=generator) * scale

        self.size, rows = size, 4 * size.units
        self.x = normal(size.steps, size.batch, size.inputs)
        self.upstream = normal(size.steps, size.batch, size.units)
        self.weights = [
            normal(rows, size.inputs, scale=size.inputs**-0.5),
            normal(rows, size.units, scale=size.units**-0.5),
            normal(3 * size.units, scale=0.1),
            normal(rows, scale=0.1),
        ]
        for weight in self.weights:
            weight.requires_grad_()
        self.torch = nn.LSTM(size.inputs, size.units)
        with torch.no_grad():
            for name, weight in zip(("weight_ih_l0", "weight_hh_l0"), self.weights, strict=False):
                getattr(self.torch, name).copy_(weight)
            self.torch.get_parameter("bias_ih_l0").copy_(self.weights[3])
            self.torch.get_parameter("bias_hh_l0").zero_()

    def ours(self, backend: str = "fused") -> None:
        torch.autograd.backward(_layer(self.x, self.weights, backend), self.upstream)

    def loss(self, backend: str = "fused") -> None:
        torch.autograd.backward(_loss(self.x, self.weights, backend))

    def builtin(self) -> None:
        torch.autograd.backward(self.torch(self.x)[0], self.upstream)

    def forward_only(self, builtin: bool) -> None:
        with torch.no_grad():
            if builtin:
                self.torch(self.x)
            else:
                _layer(self.x, self.weights)

    def peers(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Name and work of everything that is timed at this size."""
        yield "ours", self.ours
        yield "nn.LSTM", self.builtin
        yield "loop", lambda: self.ours("reference")
        yield "ours, forward", lambda: self.forward_only(False)
        yield "nn.LSTM, forward", lambda: self.forward_only(True)
        if self.size.inputs == self.size.units:
            yield "ours, loss", self.loss
            yield "loop, loss", lambda: self.loss("reference")
        if self.size.units <= 64 and (other := _torchrecurrent(self.size)) is not None:
            yield "torchrecurrent", lambda: torch.autograd.backward(other(self.x)[0], self.upstream)

    def agree(self) -> None:
        """Raise unless ours equals the loop in float64, and `nn.LSTM` where the peepholes are zero."""
        exact = self._results(torch.float64, "reference")
        for name, value, wanted in zip(_COMPARED, self._results(torch.float32, "fused"), exact, strict=True):
            _compare(f"{name}, fused against the loop, at {self.size}", value, wanted)
        plain = [w.detach() * (0.0 if k == 2 else 1.0) for k, w in enumerate(self.weights)]
        with torch.no_grad():
            y = _layer(self.x, plain)
            _compare(f"outputs against nn.LSTM at {self.size}", y, self.torch(self.x)[0].double())

    def _results(self, dtype: torch.dtype, backend: str) -> list[Tensor]:
        weights = [w.detach().to(dtype).requires_grad_() for w in self.weights]
        y = _layer(self.x.to(dtype), weights, backend)
        torch.autograd.backward(y, self.upstream.to(dtype))
        return [y.detach(), *(w.grad for w in weights if w.grad is not None)]


def _layer(x: Tensor, weights: list[Tensor], backend: str = "fused") -> Tensor:
    w_ih, w_hh, w_ph, bias = weights
    return F.peephole_lstm(x, w_ih, w_hh, w_ph, bias, backend=backend)[0]


def _loss(x: Tensor, weights: list[Tensor], backend: str = "fused") -> Tensor:
    w_ih, w_hh, w_ph, bias = weights
    return F.next_step_loss(x, w_ih, w_hh, w_ph, bias, backend=backend)


_COMPARED = ("outputs", "gradient of weight_ih", "gradient of weight_hh", "gradient of weight_ph", "gradient of bias")


def _compare(what: str, value: Tensor, wanted: Tensor) -> None:
    error = float((value.double() - wanted).norm() / wanted.norm())
    if not error < RELATIVE_RMS:
        raise DisagreementError(f"{what}: relative RMS {error:.2g}, not below {RELATIVE_RMS:g}; nothing is timed")


def _torchrecurrent(size: Size) -> Any:
    """The peer's layer, or None where the extra `bench` is not installed."""
    try:
        from torchrecurrent import PeepholeLSTM as Peer
    except ImportError:
        return None
    return Peer(size.inputs, size.units)


def measure(size: Size, *, rounds: int = ROUNDS, seconds: float = SECONDS) -> Row:
    """Best time of each peer at one size, after the outputs have agreed."""
    case = _Case(size)
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


def replicas(count: int = 20, size: Size = SIZES[2]) -> float:
    """How much faster than `count` calls of next_step_loss one with as many replicas is, on the same sequences."""
    case = _Case(size)
    stacked = [w.detach().expand(count, *w.shape).contiguous().requires_grad_() for w in case.weights]

    def together() -> None:
        torch.autograd.backward(_loss(case.x, stacked).sum())

    def one_by_one() -> None:
        for _ in range(count):
            case.loss()

    best = best_times({"together": together, "one by one": one_by_one}, ROUNDS, SECONDS)
    return best["one by one"] / best["together"]


def growth(axis: str, values: tuple[int, ...], base: Size = SIZES[3]) -> list[tuple[int, float]]:
    """Seconds forward and back of ours as one of steps, batch, units or replicas grows, all else as in `base`."""
    found = []
    for value in values:
        sizes = {"steps": base.steps, "batch": base.batch, "units": base.units} | (
            {axis: value} if axis != "replicas" else {}
        )
        case = _Case(Size(sizes["steps"], sizes["batch"], base.inputs, sizes["units"], 0, 0))
        copies = value if axis == "replicas" else 1
        weights = [w.detach().expand(copies, *w.shape).contiguous().requires_grad_() for w in case.weights]

        def run(case: _Case = case, weights: list[Tensor] = weights) -> None:
            y = _layer(case.x, weights)
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
