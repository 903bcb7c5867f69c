"""From `torch.nn.LSTM` and back: the same network, its options, and what may be trained."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from peephole import PeepholeLSTM

T, B, I, H = 7, 4, 5, 3
X = torch.randn(T, B, I, generator=torch.Generator().manual_seed(0))


def test_there_and_back() -> None:
    """`to_torch` undoes `from_torch`: equal outputs, the biases summed into the first, options and mode kept."""
    own = nn.LSTM(I, H, 2, batch_first=True, dropout=0.25, bidirectional=True).eval()
    back = PeepholeLSTM.from_torch(own).to_torch()
    assert repr(back) == repr(own)
    assert not back.training
    first, second = (own.get_parameter(f"bias_{side}_l1") for side in ("ih", "hh"))
    assert torch.equal(back.get_parameter("bias_ih_l1"), first + second)
    assert torch.allclose(back(X)[0], own(X)[0], atol=1e-6)


def test_conversion_spends_no_random_number() -> None:
    """Converting leaves torch's default generator where it was."""
    own = nn.LSTM(I, H)
    before = torch.get_rng_state()
    PeepholeLSTM.from_torch(own).to_torch()
    assert torch.equal(torch.get_rng_state(), before)


def test_no_such_torch_lstm() -> None:
    """Peepholes that are not zero, other activations, projections and other modules are refused by name."""
    for lstm, message in (
        (PeepholeLSTM(I, H), "weight_ph_l0 is not all zero"),
        (PeepholeLSTM(I, H, peepholes=False, output_activation="identity"), "output_activation is 'identity'"),
    ):
        with pytest.raises(ValueError, match=message):
            lstm.to_torch()
    with pytest.raises(ValueError, match="proj_size = 2"):
        PeepholeLSTM.from_torch(nn.LSTM(I, H, proj_size=2))
    with pytest.raises(TypeError, match="proj_size"):
        PeepholeLSTM(I, H, proj_size=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="got GRU"):
        PeepholeLSTM.from_torch(nn.GRU(I, H))  # type: ignore[arg-type]


def test_what_is_frozen_stays_frozen() -> None:
    """Each parameter is as trainable as those it comes from, there and back."""
    own = nn.LSTM(I, H, 2)
    for frozen in ("weight_hh_l0", "bias_ih_l0", "bias_ih_l1", "bias_hh_l1"):
        own.get_parameter(frozen).requires_grad_(False)
    lstm = PeepholeLSTM.from_torch(own)
    assert {name for name, p in lstm.named_parameters() if not p.requires_grad} == {
        "weight_hh_l0",
        "weight_ph_l0",
        "bias_l1",
    }
    back = {name for name, p in lstm.to_torch().named_parameters() if not p.requires_grad}
    assert back == {"weight_hh_l0", "bias_ih_l1", "bias_hh_l1"}


def test_idle_dropout_warns_once() -> None:
    """Dropout with one layer has warned where it was asked for, and is kept without another word."""
    with pytest.warns(UserWarning, match="dropout"):
        own = nn.LSTM(I, H, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lstm = PeepholeLSTM.from_torch(own)
        assert lstm.dropout == lstm.to_torch().dropout == 0.5


def test_without_numbers() -> None:
    """On the meta device, where there are no numbers, layers are converted too."""
    own = nn.LSTM(I, H, 2, device="meta")
    back = PeepholeLSTM.from_torch(own).to_torch()
    assert repr(back) == repr(own)
    assert all(p.is_meta for p in back.parameters())
