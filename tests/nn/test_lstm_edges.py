"""The layer at its edges: conversion, initialisation, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from peephole import PeepholeLSTM, init
from peephole.theory import Cell, TheoryError, preset

T, B, I, H = 7, 4, 5, 3
S = torch.zeros(1, B, H)
X = torch.randn(T, B, I, generator=torch.Generator().manual_seed(0))


def gates(lstm: PeepholeLSTM, name: str) -> Tensor:
    """A stacked parameter, its gates along an axis of their own."""
    stacked = lstm.get_parameter(name).detach()
    return stacked.reshape(-1, lstm.hidden_size, *stacked.shape[1:])


def z_score(block: torch.Tensor, promised: float) -> float:
    """How many standard errors the mean square of normal numbers lies from the promised variance."""
    squares = float((block.detach().double() ** 2).mean())
    return abs(squares / promised - 1) / math.sqrt(2 / block.numel())


def test_proposed_is_table_1() -> None:
    """With peepholes, proposed-4 is the paper's row: v of 1, N w of 1/4, 1, 2, 1/4 and M u of 3/4, 3, 4, 1/4."""
    torch.manual_seed(2)
    lstm = PeepholeLSTM(100, 300, init="proposed-4")
    w, u = (gates(lstm, f"weight_{kind}_l0") for kind in ("ih", "hh"))
    # Rows i, f, c, o; Table 1 in the order f, i, o, c.
    for row, n_w, m_u in ((1, 1 / 4, 3 / 4), (0, 1, 3), (3, 2, 4), (2, 1 / 4, 1 / 4)):
        assert z_score(w[row], n_w / 100) < 4.5
        assert z_score(u[row], m_u / 300) < 4.5
    assert z_score(lstm.get_parameter("weight_ph_l0"), 1.0) < 4.5
    assert z_score(w[1], 1 / 100) > 20  # control: the row of i is another one


def test_the_seed_decides() -> None:
    """`torch.manual_seed` decides the bits; without peepholes they are nn.LSTM's under the same method."""
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(PeepholeLSTM(I, H, 2, peepholes=False).state_dict())
    assert all(torch.equal(drawn[0][key], drawn[1][key]) for key in drawn[0])
    assert not torch.equal(drawn[0]["weight_hh_l1"], drawn[2]["weight_hh_l1"])
    own = init.initialise_(nn.LSTM(I, H, 2), "normalized", generator=torch.Generator().manual_seed(1))
    assert torch.equal(drawn[0]["weight_hh_l1"], own.get_parameter("weight_hh_l1"))
    lstm = PeepholeLSTM(I, H)
    init.variances_(lstm, preset("proposed-1", Cell(I, H)))
    before = lstm.get_parameter("weight_ph_l0").clone()
    lstm.reset_parameters()
    assert not torch.equal(lstm.get_parameter("weight_ph_l0"), before)


def test_peepholes_in_their_order() -> None:
    """Peepholes are stacked i, f, o: each gate gets the variance meant for it."""
    table = preset("proposed-1", Cell(I, 300))
    torch.manual_seed(3)
    lstm = init.variances_(PeepholeLSTM(I, 300), replace(table, v_i=1.0, v_f=4.0, v_o=16.0))
    peepholes = gates(lstm, "weight_ph_l0")
    assert max(z_score(peepholes[row], v) for row, v in enumerate((1.0, 4.0, 16.0))) < 4.5
    assert z_score(peepholes[0], 4.0) > 6


def test_no_such_preset() -> None:
    """A method that does not exist for the layer's cell is named with the module; the weights stay as they were."""
    lstm = PeepholeLSTM(I, H, output_activation="relu")
    before = lstm.get_parameter("weight_hh_l0").clone()
    with pytest.raises(
        TheoryError, match=r"corrected-1 cannot initialise PeepholeLSTM\(5, 3, output_activation='relu'"
    ):
        init.initialise_(lstm, "corrected-1")
    assert torch.equal(lstm.get_parameter("weight_hh_l0"), before)
    with pytest.raises(TheoryError, match="did you mean 'orthogonal'"):
        PeepholeLSTM(I, H, init="orthogonl")


REFUSED: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "rank 1": (lambda lstm: lstm(X[0, 0]), r"1D of shape \(5,\)"),
    "rank 4": (lambda lstm: lstm(X[None]), r"4D of shape \(1, 7, 4, 5\)"),
    "width": (lambda lstm: lstm(X[..., :3]), r"expected 5, got 3 in \(7, 4, 3\)"),
    "no steps": (lambda lstm: lstm(X[:0]), r"\(0, 4, 5\)"),
    "no steps, unbatched": (lambda lstm: lstm(X[:0, 0]), "larger than 0"),
    "dtype": (lambda lstm: lstm(X.double()), r"\(7, 4, 5\) is torch.float64"),
    "whole numbers": (lambda lstm: lstm(X.long()), "torch.int64"),
    "device": (lambda lstm: lstm(X.to("meta")), "meta and cpu"),
    "state's batch": (lambda lstm: lstm(X[:, :2], (S, S)), r"\(1, 2, 3\), got \(1, 4, 3\)"),
    "c0's layers": (lambda lstm: lstm(X, (S, torch.cat([S, S]))), r"hx\[1\] of size \(1, 4, 3\), got \(2, 4, 3\)"),
    "state's rank": (lambda lstm: lstm(X, (S[0], S[0])), r"got shape \(4, 3\)"),
    "state's rank, unbatched": (lambda lstm: lstm(X[:, 0], (S, S)), r"got shape \(1, 4, 3\)"),
    "state's dtype": (lambda lstm: lstm(X, (S.double(), S.double())), r"hx\[0\] is torch.float64"),
    "state's device": (lambda lstm: lstm(X, (S.to("meta"), S.to("meta"))), "on meta, input is torch.float32 on cpu"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_as_torch_does(name: str) -> None:
    """Where nn.LSTM raises, so does the layer, by the same kind of error, with the shapes that were met."""
    call, message = REFUSED[name]
    with pytest.raises((ValueError, RuntimeError)) as own:
        call(nn.LSTM(I, H))
    with pytest.raises(own.type, match=message):
        call(PeepholeLSTM(I, H))


def test_bad_packed_input_is_refused() -> None:
    """Packed steps and their state are checked too, where nn.LSTM reads beyond its buffers and may end the process."""
    packed = pack_padded_sequence(X, torch.full((B,), T))
    for x, state, message in (
        (pack_padded_sequence(X[..., :2], torch.full((B,), T)), None, r"\(steps, 5\), got \(28, 2\)"),
        (packed, (S[:, :1], S[:, :1]), r"\(1, 4, 3\), got \(1, 1, 3\)"),
        (packed, (S.double(), S.double()), "torch.float64"),
    ):
        with pytest.raises(RuntimeError, match=message):
            PeepholeLSTM(I, H)(x, state)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((0, H), {}, ValueError),
        ((I, 0), {}, ValueError),
        ((I, H, 0), {}, ValueError),
        ((1.5, H), {}, TypeError),
        ((I, H), {"dropout": 1.5}, ValueError),
        ((I, H, 2), {"dropout": True}, ValueError),
        ((I, H), {"bias": 1}, TypeError),
        ((I, H), {"batch_first": None}, TypeError),
        ((I, H), {"output_activation": "tanhh"}, ValueError),
        ((I, H), {"backend": "cuda"}, ValueError),
    ],
)
def test_bad_options_are_refused(arguments: Any, options: dict[str, Any], error: type[Exception]) -> None:
    """Sizes, dropout and flags are refused where nn.LSTM refuses them; so are names that nobody knows."""
    with pytest.raises(error):
        PeepholeLSTM(*arguments, **options)
    if not {"output_activation", "backend"} & options.keys():
        with pytest.raises(error):
            nn.LSTM(*arguments, **options)


def test_dropout_without_layers_warns_as_torch_does() -> None:
    """Dropout with one layer drops nothing, and the warning says so in torch's words."""
    said = []
    for module in (nn.LSTM, PeepholeLSTM):
        with pytest.warns(UserWarning, match="num_layers greater than 1") as caught:
            module(I, H, dropout=0.5)
        said.append(str(caught[0].message))
        assert caught[0].filename == __file__ or module is nn.LSTM
    assert said[0] == said[1]


def test_what_is_no_tensor_is_refused() -> None:
    """Lists in place of tensors, and a state that is not a pair, are a TypeError that names the type."""
    for arguments, message in (
        (([1.0],), "list"),
        ((X, S), "got Tensor"),
        ((X, (S,)), "got tuple of Tensor"),
        ((X, (None, None)), "got tuple of NoneType, NoneType"),
    ):
        with pytest.raises(TypeError, match=message):
            PeepholeLSTM(I, H)(*arguments)


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_an_empty_batch_is_empty(backend: str) -> None:
    """B = 0 gives empty outputs and states of torch's shapes, and zero gradients."""
    own, lstm = nn.LSTM(I, H, 2, bidirectional=True), PeepholeLSTM(I, H, 2, bidirectional=True, backend=backend)
    for state in (None, (torch.zeros(4, 0, H), torch.zeros(4, 0, H))):
        (y, (h, c)), (y_own, (h_own, c_own)) = lstm(X[:, :0], state), own(X[:, :0], state)
        assert (y.shape, h.shape, c.shape) == (y_own.shape, h_own.shape, c_own.shape)
        y.sum().backward()
        assert all(p.grad is not None and not p.grad.any() for p in lstm.parameters())


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_nan_is_passed_on(backend: str) -> None:
    """One NaN in the recurrent weights makes the last outputs NaN, as in nn.LSTM."""
    lstm = PeepholeLSTM(I, H, backend=backend)
    with torch.no_grad():
        lstm.get_parameter("weight_hh_l0")[:] = torch.nan
    assert lstm(X)[0][1:].isnan().all()


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_any_strides(backend: str) -> None:
    """Transposed, sliced, flipped and expanded inputs and states give what contiguous ones give."""
    lstm = PeepholeLSTM(I, H, backend=backend)
    wide = torch.randn(I, 2 * B, T, generator=torch.Generator().manual_seed(0))
    state = torch.randn(1, 1, H).expand(1, B, H)

    def run(x: Tensor, h: Tensor) -> Tensor:
        y, _ = lstm(x, (h, h))
        assert isinstance(y, Tensor)
        return y

    for x in (wide.permute(2, 1, 0)[:, ::2], wide.permute(2, 1, 0)[:, :1].expand(T, B, I)):
        assert not x.is_contiguous()
        assert torch.equal(run(x, state), run(x.contiguous(), state.contiguous()))


def test_what_code_for_nn_lstm_may_ask() -> None:
    """`flatten_parameters` and `all_weights` are there: the parameters by layer and direction, in their order."""
    own, lstm = nn.LSTM(I, H, 2, bidirectional=True), PeepholeLSTM(I, H, 2, bidirectional=True)
    lstm.flatten_parameters()
    assert [len(group) for group in own.all_weights] == [len(group) for group in lstm.all_weights] == [4] * 4
    flat = [parameter for group in lstm.all_weights for parameter in group]
    assert all(a is b for a, b in zip(flat, lstm.parameters(), strict=True))
    assert [len(group) for group in PeepholeLSTM(I, H, bias=False, peepholes=False).all_weights] == [2]


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_autocast_rounds_nothing(backend: str) -> None:
    """Under autocast to half precision the layer computes as ever, and takes half-precision input as it comes."""
    lstm = PeepholeLSTM(I, H, backend=backend)
    wanted, _ = lstm(X.bfloat16().float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, (h, c) = lstm(X.bfloat16())
    assert (y.dtype, h.dtype, c.dtype) == (torch.float32,) * 3
    assert torch.equal(y, wanted)
