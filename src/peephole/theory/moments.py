"""Gaussian moments of an activation: E[phi(a)], E[phi(a)^2], E[phi'(a)^2] for a ~ N(mean, variance)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from peephole.theory.activations import NAMED, Activation, Array, Function, resolve
from peephole.theory.errors import TheoryError

# exp(-DIGITS) is the quadrature error aimed at, before the function's own size.
DIGITS = 33.0
MOST_HERMITE_NODES = 256
WIDEST = 1e8


class Moments(NamedTuple):
    """First and second moment of phi(a), and the second moment of its slope."""

    mean: float
    square: float
    slope_square: float

    @property
    def variance(self) -> float:
        """Var(phi(a))."""
        return self.square - self.mean**2


def moments(activation: str | Function, mean: float = 0.0, variance: float = 1.0) -> Moments:
    """E[phi(a)], E[phi(a)^2] and E[phi'(a)^2] for a ~ N(mean, variance).

    Closed forms for identity, ReLU, hard sigmoid and erf; quadrature for everything else.
    """
    if not (math.isfinite(mean) and math.isfinite(variance)) or variance < 0:
        raise TheoryError(f"moments need a finite mean and a variance of 0 or more, got {mean} and {variance}")
    act = resolve(activation)
    if variance == 0:
        return Moments(float(act(mean)), float(act(mean)) ** 2, float(act.derivative(mean)) ** 2)
    if variance > WIDEST:
        raise TheoryError(f"variance = {variance:g}: moments are computed to {WIDEST:g}")
    if act.name in _CLOSED:
        return _CLOSED[act.name](mean, variance)
    if act.name in NAMED and act.pole is not None:
        return _by_quadrature(act, mean, variance, act.pole)
    return _refined(act, mean, variance)


def _refined(act: Activation, mean: float, variance: float) -> Moments:
    """A user's own function: ever finer, until two rules agree."""
    coarse = _by_quadrature(act, mean, variance, math.pi / 2)
    for halvings in range(1, 9):
        fine = _by_quadrature(act, mean, variance, math.pi / 2 / 2**halvings)
        if np.allclose(fine, coarse, rtol=1e-9, atol=1e-15):
            return fine
        coarse = fine
    raise TheoryError(f"the moments of {act.name} do not settle at 1e-9: a kink or a jump needs a closed form")


def _by_quadrature(act: Activation, mean: float, variance: float, pole: float) -> Moments:
    sd = math.sqrt(variance)
    nodes, weights = quadrature(pole / sd)
    value, slope = act(mean + sd * nodes), act.derivative(mean + sd * nodes)
    return Moments(float(weights @ value), float(weights @ value**2), float(weights @ slope**2))


def quadrature(pole: float) -> tuple[Array, Array]:
    """Nodes and weights for E[g(e)], e ~ N(0, 1), g analytic within `pole` of the real axis.

    Gauss-Hermite errs by about exp(-2 pole sqrt(n)), so it needs (DIGITS / 2 pole)^2 nodes: 111 for a
    tanh of unit variance, 44 000 at a variance of 400, nearly all of them with weights that underflow.
    Beyond MOST_HERMITE_NODES the trapezoidal rule takes over: its error
    exp(-2 pi pole / step) falls as fast, and none of its nodes is wasted.
    """
    hermite = math.ceil((DIGITS / (2 * min(pole, 4.0))) ** 2) + 24
    # Nearby variances share a rule: round the pole down to a step of 2^(1/4).
    return _hermite(hermite) if hermite <= MOST_HERMITE_NODES else _trapezoid(math.floor(4 * math.log2(pole)))


@lru_cache(maxsize=64)
def _hermite(nodes: int) -> tuple[Array, Array]:
    x, w = special.roots_hermitenorm(nodes)
    return x, w / math.sqrt(2 * math.pi)


@lru_cache(maxsize=64)
def _trapezoid(quarter_octave: int) -> tuple[Array, Array]:
    step = 2 * math.pi * 2.0 ** (quarter_octave / 4) / DIGITS
    reach = math.ceil(10.0 / step)  # beyond 10 standard deviations the density is below 1e-22
    x = step * np.arange(-reach, reach + 1)
    return x, step * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


# --- closed forms -------------------------------------------------------------------------------------


def _identity(m: float, s: float) -> Moments:
    return Moments(m, m * m + s, 1.0)


def _rectified(m: float, s: float) -> tuple[float, float, float]:
    """P(a > 0), E[a; a > 0], E[a^2; a > 0], by Mills' ratio so that a far tail keeps its digits."""
    z = m / math.sqrt(s)
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    if z > 0:
        share = float(special.ndtr(z))
        return share, m * share + math.sqrt(s) * density, (m * m + s) * share + m * math.sqrt(s) * density
    mills = math.sqrt(math.pi / 2) * float(special.erfcx(-z / math.sqrt(2)))
    return density * mills, math.sqrt(s) * density * (1 + z * mills), s * density * ((1 + z * z) * mills + z)


def _relu(m: float, s: float) -> Moments:
    share, first, second = _rectified(m, s)
    return Moments(first, second, share)


def _hard_sigmoid(m: float, s: float) -> Moments:
    """By clip(u, 0, 6) = r(u) - r(u - 6) and clip(u, 0, 6)^2 = r(u)^2 - r(u - 6)^2 - 12 r(u - 6), u = a + 3."""
    _, first_low, second_low = _rectified(m + 3, s)
    _, first_high, second_high = _rectified(m - 3, s)
    # P(|a| < 3) is the same for -m; on that side of the tail the difference keeps its digits.
    inside = float(special.ndtr((3 - abs(m)) / math.sqrt(s)) - special.ndtr((-3 - abs(m)) / math.sqrt(s)))
    return Moments(
        (first_low - first_high) / 6,
        (second_low - second_high - 12 * first_high) / 36,
        inside / 36,
    )


def _erf(m: float, s: float) -> Moments:
    """With erf(a) = 2 P(sqrt(2) a) - 1, P the normal distribution function, and Owen's T for E[P^2]."""
    mean = math.erf(m / math.sqrt(1 + 2 * s))
    k, slant = m * math.sqrt(2 / (1 + 2 * s)), 1 / math.sqrt(1 + 4 * s)
    square = 1 - 8 * float(special.owens_t(k, slant))
    return Moments(mean, square, 4 / math.pi * math.exp(-2 * m * m / (1 + 4 * s)) / math.sqrt(1 + 4 * s))


_CLOSED = {"identity": _identity, "relu": _relu, "hard_sigmoid": _hard_sigmoid, "erf": _erf}
