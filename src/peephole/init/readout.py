"""A start from one's own data: the linear layer behind an LSTM at its ridge solution, from one pass over the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from peephole.init.layers import refuse_not_finite
from peephole.init.ridge import Accumulator, Spectrum, best_penalty, score
from peephole.init.samples import NotFiniteError, rows
from peephole.init.torch import HasStackedCells
from peephole.theory import TheoryError
from peephole.theory.errors import check_count

Batches = Iterable[Any]


@dataclass(frozen=True)
class Readout:
    """What `fit_readout_` did: the penalty on the squared weights, and its score by generalised cross-validation.

    `gcv`, and `before` and `after`, which are the training errors of the head as it came and as it is, are mean
    squared errors over the observed targets, a column's the same weight (`gcv`) or a target's (the other two).
    `rows` counts the rows with at least one observed target.
    """

    penalty: float
    gcv: float
    before: float
    after: float
    rows: int

    def __str__(self) -> str:
        return (
            f"ridge from {self.rows} rows: mean squared error {self.before:.4g} -> {self.after:.4g}, penalty "
            f"{self.penalty:.4g} (GCV {self.gcv:.4g})"
        )


@torch.no_grad()
def fit_readout_(
    head: nn.Linear,
    features: Tensor | PackedSequence | Batches,
    targets: Any = None,
    *,
    penalty: float | None = None,
    least: float = 0.0,
    observed: Tensor | PackedSequence | None = None,
) -> Readout:
    """Set a linear head's weight and bias to the ridge solution: the least squared error plus penalty times |weight|².

    `features` (..., F) with `targets` (..., K), packed too; or batches of any number: an iterable, a generator say,
    of pairs (features, targets) or triples (features, targets, observed). They are passed over once and never kept:
    products are accumulated in float64. Targets of a whole-number type are classes (...), 0 to K - 1, and become
    one-hot. Features are taken as they are, neither centred nor scaled for the penalty; the bias is not penalised,
    and a head without one is fitted through the origin.

    Targets that are NaN, or where `observed` (shaped as the targets, or as the rows) is false, are left out, each
    column for itself. Columns observed in the same rows share their work; else each pattern has an F x F matrix.

    `penalty` is one number for all columns, by generalised cross-validation unless given; 0 is least squares, of
    least norm where that leaves a choice. Cross-validation considers no penalty below `least` times the rows: features
    of little variance can ask for weights so large that the first steps of training throw the start away, and 1e-4
    is a remedy.
    """
    if not isinstance(head, nn.Linear):
        raise TheoryError(f"head is a {type(head).__name__}: an nn.Linear is fitted")
    if penalty is not None and not 0 <= penalty < math.inf:
        raise TheoryError(f"penalty = {penalty!r}: finite and at least 0, or None for cross-validation")
    if not 0 <= least < math.inf:
        raise TheoryError(f"least = {least!r}: finite and at least 0")
    sums = Accumulator(head.out_features, head.bias is not None)
    for batch in _batches(features, targets, observed):
        sums.add(*rows(head.in_features, head.out_features, *batch))
    _check_observed(sums)
    spectra = [Spectrum(group, sums.intercept) for group in sums.groups]
    penalty = best_penalty(spectra, least * sums.rows) if penalty is None else float(penalty)
    before = _error(sums, head)
    for spectrum in spectra:
        weight, bias = (torch.from_numpy(part).to(head.weight) for part in spectrum.solution(penalty))
        head.weight[torch.from_numpy(spectrum.columns)] = weight
        if head.bias is not None:
            head.bias[torch.from_numpy(spectrum.columns)] = bias
    return Readout(penalty, score(spectra, penalty), before, _error(sums, head), sums.rows)


def fit_body_and_readout_(
    body: nn.Module,
    head: nn.Linear,
    x: Any,
    targets: Any = None,
    *,
    last: bool = False,
    batch_first: bool | None = None,
    batch_size: int = 256,
    penalty: float | None = None,
    least: float = 0.0,
    observed: Tensor | None = None,
) -> Readout:
    """Run `body` over `x` once, and set `head` to the ridge solution on what comes out; the body stays as it is.

    `body` is called as an `nn.LSTM` is: its output, or the first of several, holds the features, (T, B, F) or with
    `batch_first` (B, T, F), which is the body's own, or that of all LSTMs inside, unless given; `last` takes instead
    each sequence's last state h of the last layer, both directions side by side. `x` is a tensor, cut into batches of
    `batch_size` sequences, with `targets` (and `observed`) whose sequences stand in the same dimension, with `last` in
    the first; or a PackedSequence; or an iterable of batches (x, targets) or (x, targets, observed). Without dropout
    and gradients, whatever the body's mode. For the rest see `fit_readout_`.
    """
    check_count("batch_size", batch_size, 1)
    whole = isinstance(x, Tensor) and x.dim() > 2 and targets is not None
    first = _batch_first(body, batch_first, max(x.shape[:2]) > batch_size) if whole else None
    batches: Batches = _batches(x, targets, observed)
    if first is not None:
        batches = _cut(x, targets, observed, 0 if first else 1, last, batch_size)
    modes = [(module, module.training) for module in body.modules()]
    body.eval()
    entered: Any = None

    def found() -> Iterator[tuple[Any, ...]]:
        nonlocal entered
        for entered, *rest in batches:
            yield _features(body, entered, last), *rest

    try:
        return fit_readout_(head, found(), penalty=penalty, least=least)
    except NotFiniteError as error:
        for part in (x, entered):  # the whole first, whose indices the user knows
            if isinstance(part, (Tensor, PackedSequence)):
                refuse_not_finite(part)
        raise error
    finally:
        for module, mode in modes:
            module.training = mode


def _batch_first(body: nn.Module, given: bool | None, needed: bool) -> bool | None:
    """Whether sequences stand in the first dimension: as told, by the body itself, or by every LSTM inside."""
    own = getattr(body, "batch_first", None) if given is None else given
    inside = [part for part in body.modules() if isinstance(part, (nn.RNNBase, HasStackedCells))]
    found = {bool(getattr(part, "batch_first", False)) for part in inside} if own is None else {bool(own)}
    if len(found) == 1:
        return found.pop()
    if needed:
        what = "LSTMs with batch_first and without" if found else "no LSTM"
        raise TheoryError(
            f"{type(body).__name__} holds {what}: whether the sequences of x stand in its first dimension or its "
            "second cannot be told; say batch_first="
        )
    return None


def _batches(features: Any, targets: Any, observed: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Triples, whether one batch was given or many."""
    if isinstance(features, (Tensor, PackedSequence)):
        if targets is None:
            raise TheoryError("targets are missing: they come beside one batch of features, or in pairs with each")
        yield features, targets, observed
        return
    if targets is not None or observed is not None or not isinstance(features, Iterable):
        raise TheoryError(
            f"features are a {type(features).__name__}: a tensor, with targets, or batches that hold their own targets"
        )
    for number, batch in enumerate(features):
        if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
            raise TheoryError(f"batch {number} is a {type(batch).__name__}: (features, targets[, observed]) is needed")
        yield batch[0], batch[1], batch[2] if len(batch) == 3 else None


def _cut(x: Tensor, targets: Any, observed: Any, across: int, last: bool, size: int) -> Batches:
    """Batches of sequences of x with what belongs to them."""
    along = 0 if last else across
    count = x.shape[across]
    for name, part in (("targets", targets), ("observed", observed)):
        if part is not None and (not isinstance(part, Tensor) or part.dim() <= along or part.shape[along] != count):
            shape = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
            raise TheoryError(f"{name}: {shape}, x has shape {tuple(x.shape)}: {count} in dimension {along} are needed")
    whole = ((x, across), (targets, along), (observed, along))
    for start in range(0, count, size):
        width = min(size, count - start)
        yield tuple(None if part is None else part.narrow(d, start, width) for part, d in whole)


def _features(body: nn.Module, x: Any, last: bool) -> Any:
    out = body(x)
    if not last:
        return out[0] if isinstance(out, tuple) and not isinstance(out, PackedSequence) else out
    if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], tuple) and isinstance(out[1][0], Tensor)):
        raise TheoryError(f"last: {type(body).__name__} does not return (output, (h, c)) as nn.LSTM does")
    # h is (layers directions, B, H): of the last layer, both directions
    return torch.cat(out[1][0].unbind()[-(2 if getattr(body, "bidirectional", False) else 1) :], -1)


def _check_observed(sums: Accumulator) -> None:
    empty = sorted(int(column) for group in sums.groups if not group.rows for column in group.columns)
    if empty or not sums.groups:
        raise TheoryError(f"no observed target in {f'column {empty[0]}' if empty and sums.rows else 'any row'}")


def _error(sums: Accumulator, head: nn.Linear) -> float:
    """The mean squared error over the observed targets, from the products."""
    count = sum(group.rows * len(group.columns) for group in sums.groups)
    return sum(group.squared_error(head.weight, head.bias) for group in sums.groups) / count
