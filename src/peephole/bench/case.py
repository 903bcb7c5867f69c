"""One size: data, weights, every peer as work to time, and whether their answers agree."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from peephole.bench.sizes import Size
from peephole.nn import functional as F  # noqa: N812 - as torch.nn.functional is imported

RELATIVE_RMS = 1e-5  # of float32 outputs and gradients against float64
WEIGHTS = ("weight_ih", "weight_hh", "weight_ph", "bias")


class DisagreementError(AssertionError):
    """Outputs or gradients that ought to be equal are not: there is nothing to time."""


class Case:
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

    # --- what is timed ---

    def ours(self, backend: str = "fused") -> None:
        """PeepholeLSTM forward and backward, or the plain loop."""
        torch.autograd.backward(layer(self.x, self.weights, backend), self.upstream)

    def loss(self, backend: str = "fused") -> None:
        """The next-step loss forward and backward."""
        torch.autograd.backward(loss(self.x, self.weights, backend))

    def builtin(self) -> None:
        """`nn.LSTM` forward and backward."""
        torch.autograd.backward(self.torch(self.x)[0], self.upstream)

    def forward_only(self, builtin: bool) -> None:
        """Forward without gradients, of either."""
        with torch.no_grad():
            if builtin:
                self.torch(self.x)
            else:
                layer(self.x, self.weights)

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

    # --- what must agree before ---

    def agree(self) -> None:
        """Raise unless ours equals the loop in float64, the loss too, and nn.LSTM where the peepholes are zero."""
        where = f"fused against the loop, at {self.size}"
        compare(where, self._outputs(torch.float32, "fused"), self._outputs(torch.float64, "reference"))
        if self.size.inputs == self.size.units:
            compare(where, self._losses(torch.float32, "fused"), self._losses(torch.float64, "reference"))
        builtin = copy.deepcopy(self.torch).double()
        y, _ = builtin(self.x.double())
        torch.autograd.backward(y, self.upstream.double())
        # Its two biases have the same gradient, which is that of our one.
        gradients = {name: builtin.get_parameter(f"{name}_l0").grad for name in ("weight_ih", "weight_hh")}
        gradients["bias"] = builtin.get_parameter("bias_ih_l0").grad
        wanted = {"outputs": y.detach()} | {f"gradient of {n}": g for n, g in gradients.items() if g is not None}
        ours = self._outputs(torch.float32, "fused", peepholes=0.0)
        compare(f"against nn.LSTM at {self.size}", {name: ours[name] for name in wanted}, wanted)

    def _leaves(self, dtype: torch.dtype, peepholes: float = 1.0) -> list[Tensor]:
        factors = (1.0, 1.0, peepholes, 1.0)
        return [
            (w.detach() * f).to(dtype).requires_grad_() for w, f in zip(self.weights, factors, strict=True)
        ]  # fmt: skip

    def _outputs(self, dtype: torch.dtype, backend: str, peepholes: float = 1.0) -> dict[str, Tensor]:
        weights = self._leaves(dtype, peepholes)
        y = layer(self.x.to(dtype), weights, backend)
        torch.autograd.backward(y, self.upstream.to(dtype))
        return {"outputs": y.detach()} | gradients(weights)

    def _losses(self, dtype: torch.dtype, backend: str) -> dict[str, Tensor]:
        weights = self._leaves(dtype)
        value = loss(self.x.to(dtype), weights, backend)
        torch.autograd.backward(value)
        return {"next_step_loss": value.detach()} | {f"its {name}": g for name, g in gradients(weights).items()}


def layer(x: Tensor, weights: list[Tensor], backend: str = "fused") -> Tensor:
    """Outputs of the layer."""
    w_ih, w_hh, w_ph, bias = weights
    return F.peephole_lstm(x, w_ih, w_hh, w_ph, bias, backend=backend)[0]


def loss(x: Tensor, weights: list[Tensor], backend: str = "fused") -> Tensor:
    """The next-step loss."""
    w_ih, w_hh, w_ph, bias = weights
    return F.next_step_loss(x, w_ih, w_hh, w_ph, bias, backend=backend)


def gradients(weights: list[Tensor]) -> dict[str, Tensor]:
    """Those of the four weights, by name."""
    return {f"gradient of {name}": w.grad for name, w in zip(WEIGHTS, weights, strict=True) if w.grad is not None}


def compare(where: str, found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Raise unless all that was found is what is wanted, but for rounding."""
    for name in found | wanted:
        error = float((found[name].double() - wanted[name]).norm() / wanted[name].norm())
        if not error < RELATIVE_RMS:
            raise DisagreementError(
                f"{name}, {where}: relative RMS {error:.2g}, not below {RELATIVE_RMS:g}; nothing is timed"
            )


def _torchrecurrent(size: Size) -> Any:
    """The peer's layer, or None where the extra `bench` is not installed."""
    try:
        from torchrecurrent import PeepholeLSTM as Peer
    except ImportError:
        return None
    return Peer(size.inputs, size.units)
