"""Ridge regression from products alone: sums over any number of batches, and generalised cross-validation of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

Array = NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)
_AT_ONCE = 2**18  # elements of the features that become float64 at a time: what the cache holds


@dataclass(frozen=True)
class Products:
    """Some target columns' sums over the rows in which all of these are observed, about the means (0: no intercept)."""

    columns: NDArray[np.intp]
    rows: int
    mean_x: Tensor
    mean_y: Tensor
    xx: Tensor
    xy: Tensor
    yy: Tensor

    @classmethod
    def of(cls, columns: NDArray[np.intp], x: Tensor, y: Tensor, intercept: bool) -> Products:
        """Those of one batch, x (rows, F) and y (rows, K) in float64."""
        mean_x = x.mean(0) if intercept and len(x) else x.new_zeros(x.shape[1])
        mean_y = y.mean(0) if intercept and len(y) else y.new_zeros(y.shape[1])
        if intercept:
            x, y = x - mean_x, y - mean_y
        return cls(columns, len(x), mean_x, mean_y, x.T @ x, x.T @ y, y.square().sum(0))

    def of_columns(self, columns: NDArray[np.intp]) -> Products:
        """The same for some of the columns."""
        if len(columns) == len(self.columns):
            return self
        picked = torch.from_numpy(np.searchsorted(self.columns, columns)).to(self.yy.device)
        mean_y, yy = self.mean_y[picked], self.yy[picked]
        return Products(columns, self.rows, self.mean_x, mean_y, self.xx, self.xy[:, picked], yy)

    def plus(self, other: Products) -> Products:
        """Both together. The means are merged as by Chan et al. 1983, so that large ones cost no digits."""
        if not self.rows or not other.rows:
            return self if self.rows else other
        rows = self.rows + other.rows
        dx, dy = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        weight, share = self.rows * other.rows / rows, other.rows / rows
        xx = torch.addr(self.xx + other.xx, dx, dx, alpha=weight)
        xy = torch.addr(self.xy + other.xy, dx, dy, alpha=weight)
        yy = self.yy + other.yy + weight * dy.square()
        return Products(self.columns, rows, self.mean_x + share * dx, self.mean_y + share * dy, xx, xy, yy)

    def squared_error(self, weight: Tensor, bias: Tensor | None) -> float:
        """The sum of squared errors of x weight.T + bias, over these columns."""
        w = weight[torch.from_numpy(self.columns)].detach().to(self.yy).T
        centred = self.yy - 2 * (w * self.xy).sum(0) + (w * (self.xx @ w)).sum(0)
        if bias is not None:
            b = bias[torch.from_numpy(self.columns)].detach().to(self.yy)
            centred = centred + self.rows * (self.mean_y - self.mean_x @ w - b).square()
        return float(centred.clamp(min=0).sum())


class Accumulator:
    """Adds batches up. Columns observed in the same rows so far share one group, so that their Gram matrix is one."""

    def __init__(self, columns: int, intercept: bool) -> None:
        self.intercept, self.rows = intercept, 0
        self.groups: list[Products] = []
        self._group_of = np.zeros(columns, dtype=np.intp)

    def add(self, x: Tensor, y: Tensor, observed: Tensor) -> None:
        """One batch: x (rows, F), y (rows, K), and which of y is observed; what is not may be anything."""
        # Enough rows too that their products cost more than adding these up.
        step = max(_AT_ONCE // max(x.shape[1], 1), 4 * x.shape[1], 1)
        for start in range(0, len(x), step):
            part = slice(start, start + step)
            self._add(x[part].to(torch.float64), y[part].to(torch.float64), observed[part])

    def _add(self, x: Tensor, y: Tensor, observed: Tensor) -> None:
        self.rows += int(observed.any(1).sum())
        if bool(observed.all()):
            pattern_of = np.zeros(len(self._group_of), dtype=np.intp)
            blocks = [Products.of(np.arange(len(pattern_of)), x, y, self.intercept)]
        else:
            patterns, inverse = torch.unique(observed, dim=1, return_inverse=True)
            pattern_of, blocks = inverse.cpu().numpy(), []
            for number in range(patterns.shape[1]):
                columns, rows = np.flatnonzero(pattern_of == number), patterns[:, number]
                mine = torch.from_numpy(columns).to(y.device)
                blocks.append(Products.of(columns, x[rows], y[rows][:, mine], self.intercept))
        if not self.groups:
            self.groups, self._group_of = blocks, pattern_of
            return
        # A group goes on as long as its columns do; columns that part company take its sums along.
        pairs, group_of = np.unique(np.stack([self._group_of, pattern_of]), axis=1, return_inverse=True)
        merged = []
        for number, (group, pattern) in enumerate(pairs.T):
            columns = np.flatnonzero(group_of == number)
            merged.append(self.groups[group].of_columns(columns).plus(blocks[pattern].of_columns(columns)))
        self.groups, self._group_of = merged, group_of


class Spectrum:
    """The eigenvalues d of a group's Gram matrix, and r = V'X'y: all that ridge and its cross-validation need.

    With s = n - intercept - rank, the residual sum of squares and the degrees of freedom left at a penalty λ are

        RSS(λ) = RSS(0) + Σ_j r_j² λ² / (d_j (d_j + λ)²)      n - edf(λ) = s + Σ_j λ / (d_j + λ)

    with RSS(0) = Σ y² - Σ_j r_j²/d_j, and GCV(λ) = n RSS / (n - edf)² (Golub, Heath & Wahba 1979), the intercept
    being one degree of freedom. Both are sums of positive terms, so a small penalty costs no digits. Where s = 0
    RSS(0) is 0 too and λ² is cancelled, so that λ = 0, the interpolation of least norm, has its limit.
    """

    def __init__(self, products: Products, intercept: bool) -> None:
        numbers: dict[str, Any] = {
            name: getattr(products, name).cpu().numpy() for name in ("xy", "yy", "mean_x", "mean_y")
        }
        self.rows, self.columns = products.rows, products.columns
        self.mean_x, self.mean_y = numbers["mean_x"], numbers["mean_y"]
        d, v = (part.numpy() for part in torch.linalg.eigh(products.xx.cpu()))  # by torch's threads, as all the rest
        # What rounding leaves of duplicates is far below the largest eigenvalue; of constants, far below their squares.
        constants = self.rows * float(np.sum(self.mean_x**2)) * (16 * _EPS) ** 2
        kept = d > max(4 * len(d) * _EPS * float(d[-1]), constants, 0.0)
        free = self.rows - intercept
        kept[: max(len(d) - free, 0)] = False  # eigenvalues come in ascending order
        self.d, self.v = d[kept], v[:, kept]
        self.r = self.v.T @ numbers["xy"]
        self.spare = free - len(self.d)
        self.squares = np.square(self.r).sum(1)  # over columns, which share the penalty
        unexplained = numbers["yy"] - (self.r**2 / self.d[:, None]).sum(0)
        self.least = float(np.maximum(unexplained, 0).sum()) if self.spare else 0.0

    def gcv(self, penalty: float) -> float:
        """GCV, summed over the group's columns; infinite where nothing is left to judge by."""
        shrunk = self.d + penalty
        if self.spare == 0:
            left = float(np.sum(1 / shrunk))
            return self.rows * float(np.sum(self.squares / (self.d * shrunk**2))) / left**2 if left else math.inf
        error = self.least + float(np.sum(self.squares * penalty**2 / (self.d * shrunk**2)))
        return self.rows * error / (self.spare + float(np.sum(penalty / shrunk))) ** 2

    def solution(self, penalty: float) -> tuple[Array, Array]:
        """Weights (K, F) and intercepts (K)."""
        weight = (self.v @ (self.r / (self.d + penalty)[:, None])).T
        return weight, self.mean_y - weight @ self.mean_x


def score(spectra: Sequence[Spectrum], penalty: float) -> float:
    """GCV, the mean over all columns: an estimate of the mean squared error on rows not seen."""
    return sum(s.gcv(penalty) for s in spectra) / sum(len(s.columns) for s in spectra)


def best_penalty(spectra: Sequence[Spectrum], least: float = 0.0) -> float:
    """The one penalty for all columns with the least GCV, from 1e-12 to 1e4 times the largest eigenvalue.

    None below `least` is considered.
    """
    largest = max((float(s.d[-1]) for s in spectra if len(s.d)), default=0.0)
    if largest == 0:  # constant features: nothing to shrink
        return least
    grid = np.linspace(math.log(max(largest * 1e-12, least)), math.log(max(largest * 1e4, least)), 161)
    scores = [score(spectra, math.exp(at)) for at in grid]
    best = int(np.argmin(scores))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    finer = minimize_scalar(
        lambda at: score(spectra, math.exp(at)), bounds=around, method="bounded", options={"xatol": 1e-6}
    )
    return math.exp(float(finer.x) if finer.fun < scores[best] else float(grid[best]))
