"""What each method draws, gate by gate, without a framework."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from peephole import init
from peephole.init.methods import Array
from peephole.theory import Cell, TheoryError, Variances, simulate

DRAWN, SEEDS = 4000, 1000  # numbers of one block that a check pools, over so many seeds at most
GATES = ("i", "f", "c", "o")
ORTHOGONAL = [name for name, method in init.METHODS.items() if method.recurrent == "orthogonal"]


def pooled(draw: Callable[[int], dict[str, Array]]) -> dict[str, Array]:
    """Every block's numbers over enough seeds."""
    first = draw(0)
    seeds = {name: min(math.ceil(DRAWN / block.size), SEEDS) for name, block in first.items()}
    draws = [first, *(draw(seed) for seed in range(1, max(seeds.values())))]
    return {name: np.concatenate([d[name].ravel() for d in draws[:count]]) for name, count in seeds.items()}


def standard_errors(numbers: Array, promised: float, uniform: bool) -> float:
    """How many standard errors the mean square lies from the promised variance."""
    if promised == 0:
        return math.inf if numbers.any() else 0.0
    kurtosis = 9 / 5 if uniform else 3
    return abs(float((numbers**2).mean()) / promised - 1) / math.sqrt((kurtosis - 1) / numbers.size)


@pytest.mark.parametrize("peepholes", [False, True], ids=["plain", "peephole"])
@pytest.mark.parametrize("units", [1, 7, 64, 256])
@pytest.mark.parametrize("name", init.METHODS)
def test_each_block_has_the_promised_variance(name: str, units: int, peepholes: bool) -> None:
    """W, U and V of every gate lie within 4 standard errors of what the method promises, N differing from H."""
    cell = Cell(5, units, peepholes, output="identity" if peepholes else "tanh")
    method = init.METHODS[name]
    v = method.variances(cell)
    for block, numbers in pooled(lambda seed: init.weights(name, cell, seed, only="WUV")).items():
        letter, gate = block.split("_")
        if letter == "U" and method.recurrent != "independent":
            assert (numbers**2).mean() == pytest.approx(v.u(gate), rel=1e-12)
        else:
            promised = {"W": v.w, "U": v.u, "V": v.v}[letter](gate)
            assert standard_errors(numbers, promised, method.distribution == "uniform") < 4


def test_the_check_can_fail() -> None:
    """Control: orthogonal drawn for the stack leaves each gate a quarter; a variance 20% off is seen."""
    stacked = torch.nn.init.orthogonal_(torch.empty(1024, 256), generator=torch.Generator().manual_seed(0)).numpy()
    assert standard_errors(stacked[:256].ravel(), 1 / 256, False) > 100
    assert standard_errors(stacked[:256].ravel(), 1 / 1024, False) < 4
    numbers = np.random.default_rng(0).standard_normal(DRAWN)
    assert standard_errors(numbers, 0.8, False) > 4


@pytest.mark.parametrize("name", ORTHOGONAL)
@pytest.mark.parametrize("units", [1, 7, 64, 256])
def test_orthogonal_blocks(name: str, units: int) -> None:
    """Every singular value of every gate's recurrent block is 1, and the blocks differ."""
    drawn = init.weights(name, Cell(5, units, peepholes=False), 0)
    for gate in GATES:
        assert np.linalg.svd(drawn[f"U_{gate}"], compute_uv=False) == pytest.approx(np.ones(units), abs=1e-12)
    assert units == 1 or not np.allclose(drawn["U_i"], drawn["U_f"])


def test_the_stack_is_not_orthogonal_by_gate() -> None:
    """Control: of a stack made orthogonal as one, no gate's block passes."""
    stacked = torch.nn.init.orthogonal_(torch.empty(256, 64), generator=torch.Generator().manual_seed(0)).numpy()
    for block in np.split(stacked, 4):
        assert np.abs(np.linalg.svd(block, compute_uv=False) - 1).max() > 0.1


@pytest.mark.parametrize("distribution", ["normal", "uniform"])
def test_both_distributions_have_the_variance(distribution: Any) -> None:
    """Normal and uniform have the same variance; the fourth moment tells them apart."""
    cell = Cell(50, 80)
    numbers = init.weights("proposed-1", cell, 0, distribution=distribution)["W_f"].ravel()
    assert standard_errors(numbers, 1 / 50, distribution == "uniform") < 4
    kurtosis = (numbers**4).mean() / (numbers**2).mean() ** 2
    assert abs(kurtosis - (1.8 if distribution == "uniform" else 3)) < 0.3


def test_identity() -> None:
    """Each gate's recurrent matrix is the identity."""
    drawn = init.weights("identity", Cell(3, 6, peepholes=False), 0)
    for gate in GATES:
        assert np.array_equal(drawn[f"U_{gate}"], np.eye(6))


def test_biases() -> None:
    """Zero, 1 at the forget gate, chrono's logarithms in pairs, and torch's sum of two, each as promised."""
    cell = Cell(3, 2000, peepholes=False)
    for name in init.METHODS:
        bias = {gate: init.weights(name, cell, 0, only="b", steps=500)[f"b_{gate}"] for gate in GATES}
        if name == "torch-default":
            kurtosis = 2.4  # of the triangular distribution
            for values in bias.values():
                error = math.sqrt((kurtosis - 1) / values.size)
                assert abs((values**2).mean() / (2 / (3 * 2000)) - 1) < 4 * error
            continue
        assert not bias["c"].any()
        assert not bias["o"].any()
        if name == "chrono":
            remembered = np.exp(bias["f"])
            assert remembered.min() > 1
            assert remembered.max() < 499
            assert abs(remembered.mean() - 250) < 4 * 498 / math.sqrt(12 * 2000)
            assert np.array_equal(bias["i"], -bias["f"])
        else:
            assert np.all(bias["f"] == (1 if name == "forget-one" else 0))
            assert not bias["i"].any()


def test_streams() -> None:
    """A matrix's numbers depend on seed and part, not on which others are drawn or how many units there are."""
    cell = Cell(3, 4)
    everything = init.weights("forget-one", cell, 7)
    for letter in "WUVb":
        alone = init.weights("forget-one", cell, 7, only=letter)
        assert alone.keys() == {name for name in everything if name[0] == letter}
        assert all(np.array_equal(alone[name], everything[name]) for name in alone)
    assert not np.array_equal(init.weights("forget-one", cell, 8)["W_i"], everything["W_i"])
    assert not np.array_equal(init.weights("forget-one", cell, 7, part=1)["W_i"], everything["W_i"])


def test_projections_keep_the_scale() -> None:
    """With fewer recurrent inputs their variance grows, so that M u stays; P keeps Var(h); orthogonal ones stay so."""
    cell = Cell(3, 400, peepholes=False)
    drawn = init.weights("normalized", cell, 0, projected=100)
    assert standard_errors(drawn["U_f"].ravel(), 1 / 100, False) < 4
    assert standard_errors(drawn["P"].ravel(), 1 / 400, False) < 4
    assert drawn["P"].shape == (100, 400)
    drawn = init.weights("orthogonal", cell, 0, projected=100)
    for block in ("U_f", "P"):
        assert np.linalg.svd(drawn[block], compute_uv=False) == pytest.approx(np.ones(100), abs=1e-12)
    drawn = init.weights("torch-default", cell, 0, projected=100)
    assert max(np.abs(drawn[block]).max() for block in ("U_f", "P", "W_f")) < 1 / 20


def test_the_method_s_cell() -> None:
    """A method gives theory a cell with its biases: a number where all units have the same, else a list."""
    cell = Cell(4, 8, peepholes=False)
    assert init.METHODS["proposed-1"].cell(cell) == cell
    assert init.METHODS["forget-one"].cell(cell).forget_bias == 1.0
    chrono = init.METHODS["chrono"].cell(cell, steps=50)
    assert np.array_equal(np.asarray(chrono.input_bias), -np.asarray(chrono.forget_bias))
    assert simulate(chrono, init.METHODS["chrono"].variances(chrono), steps=3, networks=2, sequences=2).steps == 3


def test_without_peepholes_table_1_is_solved_anew() -> None:
    """proposed-* of a cell without peepholes satisfies (3), which Table 1's own numbers do not."""
    from peephole.theory import printed_conditions

    cell = Cell(6, 9, peepholes=False)
    with_peepholes = init.METHODS["proposed-4"].variances(Cell(6, 9))
    dropped = Variances(**{**vars(with_peepholes), "v_f": None, "v_i": None, "v_o": None})
    assert all(c.holds for c in printed_conditions(cell, init.METHODS["proposed-4"].variances(cell)))
    assert not all(c.holds for c in printed_conditions(cell, dropped))


def test_inputs_of_another_scale() -> None:
    """proposed-* takes Var(x) and the share observed into account: N kappa w Var(x) is Table 1's number."""
    v = init.METHODS["proposed-1"].variances(Cell(6, 9, input_variance=4.0, observed=0.5))
    assert 6 * 0.5 * 4.0 * v.w_i == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "orthogonl"}, "unknown method 'orthogonl' .did you mean 'orthogonal'"),
        ({"distribution": "normale"}, "normal or uniform"),
        ({"seed": -1}, "seed = -1"),
        ({"method": "chrono", "steps": 0}, "steps = 0"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    """Unknown names and impossible numbers are refused in one line."""
    with pytest.raises(TheoryError, match=message):
        init.weights(**{"method": "normalized", "cell": Cell(2, 2), "seed": 0, **arguments})
