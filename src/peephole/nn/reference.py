"""The peephole LSTM as a plain loop: the definition of the cell, and the oracle of the fused kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "identity": lambda a: a,
    "relu": torch.relu,
    # torch's own rounds 1/6 to float32, in float64 too.
    "hard_sigmoid": lambda a: ((a + 3) / 6).clamp(0, 1),
}


def peephole_lstm(
    x: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    weight_ph: Tensor | None,
    bias: Tensor | None,
    h: Tensor,
    c: Tensor,
    *,
    gate: str,
    cell_input: str,
    output: str,
    lengths: Tensor | None = None,
    observed: Tensor | None = None,
    detach_fill: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """All steps of the paper's cell: outputs by step, and the last h and c.

    `x` is (T, B, I); every tensor but `lengths` may lead with a replica axis. Steps at or beyond a sequence's
    length leave its state as it is and put out zeros. Where `observed`, of x's shape, is false, h(t-1) is taken for
    x(t), with its gradient or detached.
    """
    sigma_g, sigma_c, sigma_h = ACTIVATIONS[gate], ACTIVATIONS[cell_input], ACTIVATIONS[output]
    # Peepholes act unit by unit: V is diagonal. Without them they are zero.
    p_i, p_f, p_o = (0.0, 0.0, 0.0) if weight_ph is None else weight_ph.unsqueeze(-2).chunk(3, -1)
    outputs = []
    for t in range(x.shape[-3]):
        now = x.select(-3, t)
        if observed is not None:
            now = torch.where(observed.select(-3, t), now, h.detach() if detach_fill else h)
        a = now @ weight_ih.mT + h @ weight_hh.mT
        if bias is not None:
            a = a + bias.unsqueeze(-2)
        a_i, a_f, a_c, a_o = a.chunk(4, -1)
        f = sigma_g(a_f + p_f * c)  # W_f x(t) + U_f h(t-1) + V_f c(t-1) + b_f
        i = sigma_g(a_i + p_i * c)  # W_i x(t) + U_i h(t-1) + V_i c(t-1) + b_i
        z = sigma_c(a_c)  # W_c x(t) + U_c h(t-1) + b_c
        c_next = f * c + i * z
        o = sigma_g(a_o + p_o * c_next)  # W_o x(t) + U_o h(t-1) + V_o c(t) + b_o
        h_next = o * sigma_h(c_next)
        if lengths is None:
            h, c = h_next, c_next
            outputs.append(h)
        else:
            runs = (t < lengths).unsqueeze(-1)
            h, c = torch.where(runs, h_next, h), torch.where(runs, c_next, c)
            outputs.append(torch.where(runs, h_next, torch.zeros_like(h_next)))
    return torch.stack(outputs, -3), h, c


def squared_error(y: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """The squared error of all outputs of a network, averaged, or weighted where a weight is not zero."""
    if weight is None:
        return (y - target).square().mean((-3, -2, -1))
    error = torch.where(weight != 0, y - target, 0.0)
    return (weight * error.square()).sum((-3, -2, -1))
