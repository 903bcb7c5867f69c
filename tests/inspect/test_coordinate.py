"""The coordinate check: flat for a start that scales with the width, sloping for one that does not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from peephole import inspect
from peephole.theory import TheoryError

WIDTHS = (16, 32, 64, 128)


def fixed(lstm: nn.Module) -> None:
    """Weights of one variance, whatever the width."""
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.normal_(std=0.2)


def test_flat_and_not() -> None:
    """Var(h) of normalized weights does not depend on the width; of weights with one variance it grows."""
    flat = inspect.coordinate_check("normalized", WIDTHS, networks=4)
    steep = inspect.coordinate_check(fixed, WIDTHS, networks=4)
    assert flat["width"].tolist() == [width for width in WIDTHS for _ in range(4)]
    slope, error = inspect.slopes(flat)["var_h"]
    assert abs(slope) < 4 * error + 0.05
    grown, error = inspect.slopes(steep)["var_h"]
    assert grown - 4 * error > 0.2
    assert set(steep["method"]) == {"fixed"}


def test_peepholes_and_the_random_state() -> None:
    """PeepholeLSTM is checked too, and the user's random numbers stay as they were."""
    before = torch.get_rng_state()
    frame = inspect.coordinate_check("normalized", (8, 16), kind="PeepholeLSTM", networks=2, steps=5)
    assert torch.equal(torch.get_rng_state(), before)
    assert len(frame) == 4
    again = inspect.coordinate_check("normalized", (8, 16), kind="PeepholeLSTM", networks=2, steps=5)
    assert frame.equals(again)


def test_refusals() -> None:
    """Unknown kinds and methods, and too little for a slope, are told."""
    with pytest.raises(TheoryError, match=r"nn\.LSTM or PeepholeLSTM"):
        inspect.coordinate_check("normalized", kind="GRU")
    with pytest.raises(TheoryError, match="did you mean 'normalized'"):
        inspect.coordinate_check("normalised", (8,))
    with pytest.raises(TheoryError, match="a slope needs"):
        inspect.slopes(inspect.coordinate_check("normalized", (8,), networks=1, steps=3))
