"""`wide` predictions against real random networks, within multiples of the standard error."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from peephole.theory import (
    Cell,
    Flow,
    TheoryError,
    autocorrelation,
    moments,
    preactivation_variance,
    preset,
    propagate,
    simulate,
)

STEPS = 30


def distance(predicted: Flow, measured: Flow, quantity: str = "var_h") -> float:
    """The largest difference by step, in standard errors of the difference."""
    errors = np.hypot(getattr(predicted, f"se_{quantity}"), getattr(measured, f"se_{quantity}"))
    return float(np.max(np.abs(getattr(predicted, quantity) - getattr(measured, quantity)) / errors))


CASES: dict[str, tuple[Cell, str, Any]] = {
    "plain": (Cell(64, 64, peepholes=False, output="tanh"), "normalized", None),
    "identity, AR(1)": (Cell(64, 64, peepholes=False), "normalized", 0.9),
    "forget bias, N != M": (Cell(16, 96, peepholes=False, output="tanh", forget_bias=1.0), "proposed-4", None),
    "moving average, all biases": (
        Cell(64, 64, peepholes=False, forget_bias=0.5, input_bias=-0.5, output_bias=0.3, cell_bias=0.4),
        "normalized",
        [1.0, 0.5],
    ),
    "spread of biases": (
        Cell(64, 64, peepholes=False, forget_bias=[0.0, 1.0, 2.0], input_bias=[0.0, -1.0, -2.0]),
        "normalized",
        None,
    ),
    "relu and hard sigmoid": (Cell(64, 64, peepholes=False, gate="hard_sigmoid", output="relu"), "normalized", None),
    "a callable": (Cell(64, 64, peepholes=False, cell_input=np.sin), "normalized", None),
    "gaps": (Cell(8, 64, peepholes=False, observed=0.6, fill_exponent=1.0), "normalized", 0.7),
    "peepholes": (Cell(64, 64, output="tanh"), "proposed-4", None),
}  # fmt: skip


def weights(cell: Cell, name: str) -> Any:
    """Variances of that name, for the cell's sizes."""
    return preset(
        "normalized" if name == "corrected-tanh" else name, Cell(cell.inputs, cell.units, peepholes=cell.peepholes)
    )


@pytest.mark.parametrize("case", CASES)
def test_the_finite_law_is_that_of_real_networks(case: str) -> None:
    """At the cell's own width the prediction is exact: Var(h), Var(c) and medians within 4.5 standard errors."""
    cell, name, correlation = CASES[case]
    v = weights(cell, name)
    predicted = propagate(cell, v, steps=STEPS, finite=True, samples=40_000, input_autocorrelation=correlation)
    measured = simulate(cell, v, steps=STEPS, networks=60, input_autocorrelation=correlation, seed=1)
    for quantity in ("var_h", "var_c", "median_h", "median_c"):
        assert distance(predicted, measured, quantity) < 4.5


def test_gates() -> None:
    """Means and variances of the gates agree within five standard errors, those taken between eight simulations."""
    cell = Cell(32, 64, peepholes=False, forget_bias=1.0)
    v = preset("normalized", cell)
    runs = [simulate(cell, v, steps=10, networks=10, seed=seed) for seed in range(8)]
    predicted = [propagate(cell, v, steps=10, finite=True, samples=10_000, seed=seed) for seed in range(8)]
    for quantity, gate in itertools.product(("gate_mean", "gate_var"), "fioc"):
        measured, expected = (np.stack([getattr(f, quantity)[gate] for f in flows]) for flows in (runs, predicted))
        error = np.sqrt((measured.var(0, ddof=1) + expected.var(0, ddof=1)) / 8)
        assert np.all(np.abs(measured.mean(0) - expected.mean(0)) < 5 * error)


def test_the_same_check_fails_for_other_variances() -> None:
    """Control: predictions for Table 1 held against networks drawn from `normalized` are far off."""
    cell = Cell(64, 64, peepholes=False, output="tanh")
    predicted = propagate(cell, preset("proposed-1", cell), steps=STEPS, finite=True)
    assert distance(predicted, simulate(cell, preset("normalized", cell), steps=STEPS)) > 20


def test_the_limit_is_that_of_wide_networks() -> None:
    """The limit of many units: networks of 512 units lie within 5 standard errors, networks of 2 units do not."""
    cell = Cell(512, 512, peepholes=False)
    limit = propagate(cell, preset("normalized", cell), steps=10, samples=40_000)
    assert distance(limit, simulate(cell, preset("normalized", cell), steps=10, sequences=5)) < 5
    narrow = Cell(2, 2, peepholes=False)
    assert distance(limit, simulate(narrow, preset("normalized", narrow), steps=10, networks=4000)) > 10


def test_the_first_step_is_a_gaussian_moment() -> None:
    """At step 1 the limit is known exactly: Var(h) = E[o^2] E[i^2] E[z^2], by quadrature."""
    cell = Cell(100, 50, peepholes=False)
    v = preset("normalized", cell)
    a = [preactivation_variance(cell, v, gate, hidden=0.0) for gate in "ioc"]
    exact = moments("sigmoid", 0, a[0]).square * moments("sigmoid", 0, a[1]).square * moments("tanh", 0, a[2]).square
    flow = propagate(cell, v, steps=1, samples=200_000)
    assert abs(flow.var_h[0] - exact) < 4 * flow.se_var_h[0]
    assert abs(flow.var_h[0] - 1.1 * exact) > 4 * flow.se_var_h[0]


def test_a_constant_input() -> None:
    """An autocorrelation of 1 leaves nothing new after step 1; the factor drops those pivots and stays finite."""
    cell = Cell(64, 64, peepholes=False)
    v = preset("normalized", cell)
    constant = replace(v, u_f=0, u_i=0, u_o=0, u_c=0)
    predicted = propagate(cell, constant, steps=STEPS, finite=True, samples=40_000, input_autocorrelation=1.0)
    measured = simulate(cell, constant, steps=STEPS, networks=60, input_autocorrelation=1.0)
    assert distance(predicted, measured) < 4.5


def test_one_s_own_batch() -> None:
    """The autocorrelation measured on a batch predicts networks that run on that very batch."""
    rng = np.random.default_rng(5)
    walk = np.cumsum(rng.standard_normal((400, STEPS, 32)), axis=1)
    x = (walk - walk.mean()) / walk.std()
    measured_correlation = autocorrelation(x)
    cell = Cell(32, 64, peepholes=False, output="tanh")
    v = preset("normalized", cell)
    measured = simulate(cell, v, x=x, networks=30)
    matched = propagate(cell, v, steps=STEPS, finite=True, samples=40_000, input_autocorrelation=measured_correlation)
    white = propagate(cell, v, steps=STEPS, finite=True, samples=40_000)
    assert distance(matched, measured) < 5
    assert distance(white, measured) > 20


def test_strong_recurrence_grows_without_end() -> None:
    """N w = 1, M u = 100: the gates freeze and Var(h) passes 1/2, so there is no stationary answer."""
    cell = Cell(128, 128, peepholes=False)
    v = preset("normalized", cell)
    frozen = replace(v, **{f"u_{k}": 100 / 128 for k in "fioc"})
    assert propagate(cell, frozen, steps=60).var_h[-1] > 1
    predicted = propagate(cell, frozen, steps=100, finite=True)
    assert distance(predicted, simulate(cell, frozen, steps=100)) < 4.5
    assert predicted.var_h[99] > 1.5 * predicted.var_h[50] > 3 * predicted.var_h[20] > 3


def test_medians_see_what_the_mean_hides() -> None:
    """In a narrow peephole cell a few units explode: the mean leaves the median by a factor of 100."""
    cell = Cell(1, 1)
    flow = simulate(cell, preset("proposed-1", cell), steps=100, networks=2000)
    assert flow.var_h[-1] > 100 * flow.median_h[-1]
    plain = Cell(1, 1, peepholes=False)
    assert simulate(plain, preset("normalized", plain), steps=100, networks=2000).var_h[-1] < 100


def test_same_seed_same_bits_for_any_number_of_threads() -> None:
    """Both Monte Carlo levels give the same bits with one BLAS thread and with two; another seed does not."""
    code = (
        "from peephole.theory import *; import hashlib; c = Cell(96, 160); v = preset('proposed-4', c);"
        "h = hashlib.sha256();"
        "flows = [propagate(c, v, steps=8, samples=4000), propagate(c, v, steps=8, samples=4000, finite=True),"
        "simulate(c, v, steps=8, networks=3)];"
        "[h.update(f.var_h.tobytes() + f.quantiles_c.tobytes()) for f in flows]; print(h.hexdigest())"
    )
    found = set()
    for threads in ("1", "2"):
        environment = os.environ | {f"{name}_NUM_THREADS": threads for name in ("OPENBLAS", "OMP", "MKL")}
        found.add(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
    assert len(found) == 1
    cell = Cell(4, 4)
    one, other = (simulate(cell, preset("normalized", cell), steps=2, seed=seed) for seed in (0, 1))
    assert not np.array_equal(one.var_h, other.var_h)


def test_speed() -> None:
    """100 steps at level `wide` take under 5 s."""
    cell = Cell(256, 256)
    started = time.perf_counter()
    propagate(cell, preset("proposed-1", cell), steps=100)
    assert time.perf_counter() - started < 5


def test_bad_questions() -> None:
    """What cannot be propagated or simulated is refused in one line."""
    cell = Cell(4, 4, peepholes=False)
    v = preset("normalized", cell)
    for question, message in (
        (lambda: propagate(cell, v, steps=0), "steps = 0"),
        (lambda: propagate(cell, v, level="vide"), "did you mean 'wide'"),  # type: ignore[arg-type]
        (lambda: propagate(cell, v, input_autocorrelation=1.5), "lies in"),
        (lambda: propagate(cell, v, input_autocorrelation=np.eye(3)), "does not cover 60 steps"),
        (lambda: simulate(cell, v, networks=1), "networks = 1: a whole number of at least 2"),
        (lambda: simulate(cell, v, x=np.zeros((2, 3, 5))), r"\(2, 3, 5\)"),
        (lambda: propagate(cell, preset("normalized", Cell(4, 4))), "no peepholes"),
        (lambda: propagate(cell, v, input_autocorrelation=[0.5]), "begins with 1"),
        (lambda: simulate(cell, v, input_autocorrelation=[1.0, 5.0]), "lies in"),
        (lambda: simulate(cell, v, steps=5, input_autocorrelation=np.eye(2)), "does not cover 5 steps"),
        (lambda: propagate(cell, v, steps=2, input_autocorrelation=[[1, 2], [0, 1]]), "covariances"),
        (lambda: propagate(cell, v, input_autocorrelation=np.nan), "finite numbers"),
        (lambda: propagate(cell, v, samples=0), "samples = 0"),
        (lambda: propagate(cell, v, held=-1.0), "target = -1.0"),
        (lambda: propagate(cell, v, feedback=True), "level 'linear' alone"),
        (lambda: autocorrelation(np.zeros((3, 4))), "sequences, steps, inputs"),
        (lambda: autocorrelation(np.full((3, 4, 2), np.nan)), "without any observed signal"),
    ):
        with pytest.raises(TheoryError, match=message):
            question()
    explosive = replace(v, w_f=0, u_f=0)
    doubling = Cell(4, 4, peepholes=False, gate=lambda a: 0 * a + 1e30, output="identity")
    with pytest.raises(TheoryError, match="overflows at step"):
        propagate(doubling, explosive, samples=100)
    assert not np.isfinite(simulate(doubling, explosive, steps=20).var_h[-1])
