"""The layer: a drop-in for `torch.nn.LSTM` with peepholes, any activation and an initialiser."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from peephole.init.torch import StackedCell, initialise_
from peephole.nn import checks, conversion, functional, kernel

State = tuple[Tensor, Tensor]
_DEFAULTS = {
    "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False, "peepholes": True,
    "gate_activation": "sigmoid", "cell_activation": "tanh", "output_activation": "tanh", "init": "normalized",
    "backend": "auto",
}  # fmt: skip


class PeepholeLSTM(nn.Module):
    """An LSTM whose gates see the cell: in, out and named as `torch.nn.LSTM`, sizes, states and packing included.

    Its parameters for layer k are `weight_ih_l{k}` (4H, I) and `weight_hh_l{k}` (4H, H), stacked i, f, g, o; one
    bias `bias_l{k}` (4H); and, with `peepholes`, `weight_ph_l{k}` (3H), stacked i, f, o. The reverse direction's
    end in `_reverse`. `init` is a name of `init.METHODS`, drawn anew by `reset_parameters`; `torch.manual_seed`
    decides. `backend` is as in `functional.peephole_lstm`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        peepholes: bool = True,
        gate_activation: str = "sigmoid",
        cell_activation: str = "tanh",
        output_activation: str = "tanh",
        init: str = "normalized",
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        checks.sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        checks.flags(bias=bias, batch_first=batch_first, bidirectional=bidirectional, peepholes=peepholes)
        checks.dropout(dropout, num_layers)
        checks.names("activation", (gate_activation, cell_activation, output_activation), kernel.ACTIVATIONS)
        checks.names("backend", (backend,), functional.BACKENDS)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.peepholes = bidirectional, peepholes
        self.gate_activation, self.cell_activation = gate_activation, cell_activation
        self.output_activation, self.init, self.backend = output_activation, init, backend
        for (layer, _), suffix in self._suffixes():
            inputs = input_size if layer == 0 else hidden_size * self._directions
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (4 * hidden_size, inputs),
                "weight_hh": (4 * hidden_size, hidden_size),
            }
            shapes |= {"weight_ph": (3 * hidden_size,)} if peepholes else {}
            shapes |= {"bias": (4 * hidden_size,)} if bias else {}
            for name, shape in shapes.items():
                empty = torch.empty(shape, device=device, dtype=dtype)
                self.register_parameter(f"{name}_{suffix}", nn.Parameter(empty))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights by the method `init`; the bias becomes zero."""
        initialise_(self, self.init)

    def stacked_cells(self) -> Iterator[StackedCell]:
        """Parameters and activations of each layer and direction, in order: what `init.initialise_` asks for."""
        for (layer, _), suffix in self._suffixes():
            w_ih, w_hh, w_ph, bias = self._weights(suffix)
            yield StackedCell(
                w_ih, w_hh, w_ph, biases=() if bias is None else (bias,), layer=layer, gate=self.gate_activation,
                cell_input=self.cell_activation, output=self.output_activation,
            )  # fmt: skip

    def forward(self, input: Any, hx: State | None = None) -> tuple[Any, State]:
        """Outputs and the last h and c, shaped as those of `torch.nn.LSTM`.

        `input` is (T, B, I), (B, T, I) with `batch_first`, (T, I), or a PackedSequence; `hx` is (h0, c0).
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        input, hx = checks.same_kind(input, hx, self._weights("l0")[0])
        batched = checks.input_shape(input, self.input_size)
        x = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        checks.some_steps(x)
        checks.state_shape(hx, (self.num_layers * self._directions, x.shape[1], self.hidden_size), batched)
        if hx is not None and not batched:
            hx = hx[0].unsqueeze(1), hx[1].unsqueeze(1)
        y, h, c = self._layers(x, hx, None)
        if not batched:
            return y.squeeze(1), (h.squeeze(1), c.squeeze(1))
        return y.transpose(0, 1) if self.batch_first else y, (h, c)

    def _packed(self, packed: PackedSequence, hx: State | None) -> tuple[PackedSequence, State]:
        data, hx = checks.same_kind(packed.data, hx, self._weights("l0")[0])
        checks.packed_shape(data, self.input_size)
        batch = int(packed.batch_sizes[0])
        checks.state_shape(hx, (self.num_layers * self._directions, batch, self.hidden_size), batched=True)
        if hx is not None and packed.sorted_indices is not None:
            hx = hx[0].index_select(1, packed.sorted_indices), hx[1].index_select(1, packed.sorted_indices)
        # Without their indices the sequences stay in the order of their lengths, longest first.
        x, lengths = pad_packed_sequence(PackedSequence(data, packed.batch_sizes))
        y, h, c = self._layers(x, hx, lengths.to(x.device))
        steps = pack_padded_sequence(y, lengths).data
        out = PackedSequence(steps, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        if packed.unsorted_indices is not None:
            h, c = h.index_select(1, packed.unsorted_indices), c.index_select(1, packed.unsorted_indices)
        return out, (h, c)

    def _layers(self, x: Tensor, hx: State | None, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """All layers over (T, B, I): outputs (T, B, directions H), last h and c (layers directions, B, H)."""
        last: list[State] = []
        outputs: list[Tensor] = []
        for (layer, reverse), suffix in self._suffixes():
            if not reverse and layer:
                x = self._joined(outputs)
                x, outputs = nn.functional.dropout(x, self.dropout, self.training), []
            state = None if hx is None else (hx[0][len(last)], hx[1][len(last)])
            y, final = self._direction(_backwards(x, lengths) if reverse else x, suffix, state, lengths)
            outputs.append(_backwards(y, lengths) if reverse else y)
            last.append(final)
        return self._joined(outputs), torch.stack([h for h, _ in last]), torch.stack([c for _, c in last])

    def _direction(self, x: Tensor, suffix: str, state: State | None, lengths: Tensor | None) -> tuple[Tensor, State]:
        weights = self._weights(suffix)
        return functional.peephole_lstm(
            x, *weights, state, gate_activation=self.gate_activation, cell_activation=self.cell_activation,
            output_activation=self.output_activation, lengths=lengths, backend=self.backend,
        )  # fmt: skip

    def _weights(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return (
            getattr(self, f"weight_ih_{suffix}"),
            getattr(self, f"weight_hh_{suffix}"),
            getattr(self, f"weight_ph_{suffix}") if self.peepholes else None,
            getattr(self, f"bias_{suffix}") if self.bias else None,
        )

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction, in the order of their names' kinds as listed above."""
        kinds = ["weight_ih", "weight_hh", *["weight_ph"] * self.peepholes, *["bias"] * self.bias]
        return [[getattr(self, f"{kind}_{suffix}") for kind in kinds] for _, suffix in self._suffixes()]

    def flatten_parameters(self) -> None:
        """Nothing: code that was written for `torch.nn.LSTM` may call it, and the kernels need it not."""

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self) -> Iterator[tuple[tuple[int, int], str]]:
        """Layer and direction, and how their parameters' names end."""
        for layer, reverse in itertools.product(range(self.num_layers), range(self._directions)):
            yield (layer, reverse), f"l{layer}_reverse" if reverse else f"l{layer}"

    @staticmethod
    def _joined(outputs: list[Tensor]) -> Tensor:
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)

    def extra_repr(self) -> str:
        """The sizes, and what is not as by default."""
        changed = [
            f"{name}={getattr(self, name)!r}" for name, usual in _DEFAULTS.items() if getattr(self, name) != usual
        ]
        return ", ".join([str(self.input_size), str(self.hidden_size), *changed])

    @classmethod
    def from_torch(cls, lstm: nn.LSTM, peepholes: bool = True) -> Self:
        """The same network as a torch LSTM: weights copied, its two biases summed, peepholes zero."""
        return conversion.from_torch(cls, lstm, peepholes)

    def to_torch(self) -> nn.LSTM:
        """The same network as a torch LSTM; refused where that has no such cell."""
        return conversion.to_torch(self)


def _backwards(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence with its steps in reverse, the padding after it left where it is."""
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(x.shape[0], device=x.device)[:, None]
    order = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x.gather(0, order.unsqueeze(-1).expand_as(x))
