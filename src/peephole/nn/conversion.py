"""Between PeepholeLSTM and `torch.nn.LSTM`: the same network, where both have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn

if TYPE_CHECKING:
    from peephole.nn.lstm import PeepholeLSTM

    Layer = TypeVar("Layer", bound=PeepholeLSTM)

SIZES = ("input_size", "hidden_size", "num_layers")
OPTIONS = ("bias", "batch_first", "bidirectional")  # dropout is set afterwards: it has warned once, where it is idle
TORCH_S_OWN = {"gate_activation": "sigmoid", "cell_activation": "tanh", "output_activation": "tanh"}


def from_torch(cls: type[Layer], lstm: nn.LSTM, peepholes: bool) -> Layer:
    """A layer of that class with a torch LSTM's weights, its two biases summed, its peepholes zero."""
    if not isinstance(lstm, nn.LSTM):
        raise TypeError(f"from_torch takes a torch.nn.LSTM, got {type(lstm).__name__}")
    if lstm.proj_size:
        raise ValueError(f"proj_size = {lstm.proj_size}: PeepholeLSTM has no projections")
    like = lstm.get_parameter("weight_ih_l0")
    options = {name: getattr(lstm, name) for name in OPTIONS}
    with torch.random.fork_rng(devices=[]):  # what is overwritten must not cost the user's generator a draw
        made = cls(
            *(getattr(lstm, name) for name in SIZES),
            **options,
            peepholes=peepholes,
            device=like.device,
            dtype=like.dtype,
        )
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            kind, _, suffix = name.rpartition("_l")
            if kind == "bias":
                first, second = getattr(lstm, f"bias_ih_l{suffix}"), getattr(lstm, f"bias_hh_l{suffix}")
                parameter.copy_(first + second).requires_grad_(first.requires_grad or second.requires_grad)
            elif kind == "weight_ph":  # as trainable as the other weights that see the state
                parameter.zero_().requires_grad_(getattr(lstm, f"weight_hh_l{suffix}").requires_grad)
            else:
                own = getattr(lstm, name)
                parameter.copy_(own).requires_grad_(own.requires_grad)
    made.dropout = lstm.dropout
    return made.train(lstm.training)


def to_torch(layer: PeepholeLSTM) -> nn.LSTM:
    """A torch LSTM with equal outputs, its second bias zero; an error where torch has no such cell."""
    for name, usual in TORCH_S_OWN.items():
        if (own := getattr(layer, name)) != usual:
            raise ValueError(f"nn.LSTM has no such cell: {name} is {own!r}, there it is always {usual!r}")
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_ph") and not parameter.is_meta and parameter.detach().any():
            raise ValueError(f"nn.LSTM has no peepholes, and {name} is not all zero")
    like = layer.get_parameter("weight_ih_l0")
    sizes = [getattr(layer, name) for name in SIZES]
    options = {name: getattr(layer, name) for name in OPTIONS}
    with torch.random.fork_rng(devices=[]):
        made = nn.LSTM(*sizes, **options, device=like.device, dtype=like.dtype)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            kind, _, suffix = name.rpartition("_l")
            own = layer.get_parameter(f"bias_l{suffix}" if kind.startswith("bias") else name)
            parameter.copy_(own).requires_grad_(own.requires_grad)
            if kind == "bias_hh":
                parameter.zero_()
    made.dropout = layer.dropout
    return made.train(layer.training)
