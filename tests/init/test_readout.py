"""`fit_readout_` against scikit-learn's ridge, and its penalty against generalised cross-validation by definition."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from peephole import init
from peephole.theory import TheoryError

ROWS, F, K = 200, 12, 3


def data(rows: int = ROWS, seed: int = 0, features: int = F, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    """Correlated features and targets that depend on them, in float64."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, features)) @ rng.standard_normal((features, features)) + rng.standard_normal(
        features
    )
    y = x @ rng.standard_normal((features, K)) / features + noise * rng.standard_normal((rows, K)) + 3
    return torch.from_numpy(x), torch.from_numpy(y)


def head(features: int = F, columns: int = K, bias: bool = True) -> nn.Linear:
    """A linear layer in float64 at random, the same each time."""
    torch.manual_seed(0)
    return nn.Linear(features, columns, bias=bias, dtype=torch.float64)


def gcv(x: Tensor, y: Tensor, penalty: float, bias: bool = True) -> float:
    """GCV = n RSS / (n - edf)^2 from the hat matrix itself, the mean over columns."""
    n = len(x)
    ones = np.full((n, n), 1 / n) if bias else np.zeros((n, n))
    centred = x.numpy() - ones @ x.numpy()
    gram = centred.T @ centred + penalty * np.eye(x.shape[1])
    hat = ones + centred @ np.linalg.solve(gram, centred.T)
    rss = np.square(y.numpy() - hat @ y.numpy()).sum(0)
    return float(np.mean(n * rss / (n - np.trace(hat)) ** 2))


def same_as_sklearn(linear: nn.Linear, x: Any, y: Any, penalty: float, tolerance: float = 1e-9) -> None:
    """The head is what Ridge finds."""
    oracle = Ridge(alpha=penalty, fit_intercept=linear.bias is not None, solver="svd").fit(x, y)
    np.testing.assert_allclose(linear.weight.detach().numpy(), oracle.coef_, rtol=tolerance, atol=tolerance)
    if linear.bias is not None:
        np.testing.assert_allclose(linear.bias.detach().numpy(), oracle.intercept_, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("penalty", [0.0, 1e-3, 7.0, 1e5, None])
def test_the_ridge_solution(penalty: float | None, bias: bool) -> None:
    """Weight and bias are scikit-learn's, for a given penalty and for the one chosen; the errors are the head's own."""
    x, y = data()
    linear = head(bias=bias)
    before = nn.functional.mse_loss(linear(x), y).item()
    done = init.fit_readout_(linear, x, y, penalty=penalty)
    same_as_sklearn(linear, x, y, done.penalty)
    assert done.rows == ROWS
    assert done.before == pytest.approx(before)
    assert done.after == pytest.approx(nn.functional.mse_loss(linear(x), y).item())
    assert done.after < 0.9 * done.before  # a head at random is worse
    assert done.gcv == pytest.approx(gcv(x, y, done.penalty, bias))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "noise"), [(200, 1.0), (30, 3.0), (14, 1.0), (9, 1.0), (400, 0.01)])
def test_the_penalty_is_that_of_gcv(rows: int, noise: float, bias: bool) -> None:
    """No penalty on a fine grid has a lower GCV, computed from the hat matrix; those well off have a higher one."""
    x, y = data(rows, noise=noise)
    done = init.fit_readout_(head(bias=bias), x, y)
    largest = float(torch.linalg.svdvals(x - x.mean(0) * bias)[0] ** 2)
    grid = [gcv(x, y, largest * 10**at, bias) for at in np.linspace(-8, 4, 100)]
    assert done.gcv <= min(grid) * (1 + 1e-9)
    assert gcv(x, y, done.penalty, bias) == pytest.approx(done.gcv, rel=1e-5)
    for wrong in (done.penalty * 100, largest * 1e3):
        given = init.fit_readout_(head(bias=bias), x, y, penalty=wrong)
        assert given.gcv > done.gcv
        assert given.gcv == pytest.approx(gcv(x, y, wrong, bias))


def test_gcv_knows_rows_not_seen() -> None:
    """On fresh rows the chosen penalty does better than none and than one far too large: what it is chosen for."""
    errors = dict.fromkeys(("chosen", "none", "large"), 0.0)
    for seed in range(5):
        x, y = data(1030, seed, noise=3.0)
        for name, penalty in (("chosen", None), ("none", 0.0), ("large", 1e7)):
            linear = head()
            init.fit_readout_(linear, x[:30], y[:30], penalty=penalty)
            errors[name] += nn.functional.mse_loss(linear(x[30:]), y[30:]).item()
    assert errors["chosen"] < min(errors["none"], errors["large"])


def test_the_least_penalty() -> None:
    """Features of little variance get large weights; `least` a row bounds them, and does nothing below the choice."""
    x, y = data(noise=0.01)
    small = 1e-3 * x
    free, bound, given = head(), head(), head()
    chosen = init.fit_readout_(free, small, y)
    found = init.fit_readout_(bound, small, y, least=1e-4)
    assert found.penalty >= 1e-4 * ROWS > chosen.penalty
    assert bound.weight.norm() < 0.5 * free.weight.norm()
    again = init.fit_readout_(given, small, y, least=0.5 * chosen.penalty / ROWS)
    assert again.penalty == pytest.approx(chosen.penalty, rel=1e-3)
    constant = init.fit_readout_(head(), torch.ones_like(x), y, least=1e-4)
    assert constant.penalty == pytest.approx(1e-4 * ROWS)
    with pytest.raises(TheoryError, match="least = -1"):
        init.fit_readout_(head(), x, y, least=-1)


@pytest.mark.parametrize("size", [1, 7, 64, 200])
def test_any_number_of_batches(size: int) -> None:
    """A generator of batches, empty ones too, gives the same head as all rows at once."""
    x, y = data()
    y[torch.rand(y.shape, generator=torch.Generator().manual_seed(1)) < 0.3] = math.nan
    whole, parts = head(), head()
    parts.load_state_dict(whole.state_dict())

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        yield x[:0], y[:0]
        for start in range(0, ROWS, size):
            yield x[start : start + size], y[start : start + size]

    one, many = init.fit_readout_(whole, x, y), init.fit_readout_(parts, batches())
    assert many.rows == one.rows
    assert many.penalty == pytest.approx(one.penalty, rel=1e-5)
    fixed = [init.fit_readout_(h, f, t, penalty=1.0) for h, f, t in ((whole, x, y), (parts, batches(), None))]
    torch.testing.assert_close(parts.weight, whole.weight, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(parts.bias, whole.bias, rtol=1e-10, atol=1e-10)
    assert fixed[0].gcv == pytest.approx(fixed[1].gcv, rel=1e-10)


def test_large_means_in_float32() -> None:
    """Features of mean 1e4 in float32 cost no digits: the solution is that on standardised ones in float64."""
    x, y = data()
    x = (x + 1e4).float()
    linear = nn.Linear(F, K).double()
    init.fit_readout_(linear, [(x[:50], y[:50].float()), (x[50:], y[50:].float())], penalty=1e-6)
    scaler = StandardScaler(with_std=False).fit(x.double())
    oracle = Ridge(alpha=1e-6, solver="svd").fit(scaler.transform(x.double()), y.float().double())
    np.testing.assert_allclose(linear.weight.detach().numpy(), oracle.coef_, rtol=1e-8, atol=1e-9)
    naive = torch.linalg.solve(x.T @ x, x.T @ y.float())  # control: float32 products about zero
    assert not np.allclose(naive.T.numpy(), oracle.coef_, rtol=0.1, atol=0.1)
    single = nn.Linear(F, K)
    init.fit_readout_(single, x, y.float(), penalty=1e-6)
    assert single.weight.dtype == torch.float32
    np.testing.assert_allclose(single.weight.detach().numpy(), oracle.coef_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch", [13, ROWS])
@pytest.mark.parametrize("marked", [True, False])
def test_missing_targets(marked: bool, batch: int) -> None:
    """Each column is fitted to its own rows, whatever lies under the mask; zero in place of them is something else."""
    x, y = data()
    seen = torch.rand(y.shape, generator=torch.Generator().manual_seed(2)) < torch.tensor([0.9, 0.5, 0.5])
    seen[:, 2] = seen[:, 1]  # these two share their work
    hidden = y.masked_fill(~seen, 1e30 if marked else math.nan)
    linear = head()
    batches = [
        (x[at : at + batch], hidden[at : at + batch], *([seen[at : at + batch]] if marked else []))
        for at in range(0, ROWS, batch)
    ]
    done = init.fit_readout_(linear, batches)
    assert done.rows == int(seen.any(1).sum()) < ROWS
    scores = []
    for column in range(K):
        rows = seen[:, column]
        oracle = Ridge(alpha=done.penalty, solver="svd").fit(x[rows], y[rows, column])
        np.testing.assert_allclose(linear.weight[column].detach().numpy(), oracle.coef_, rtol=1e-9, atol=1e-10)
        scores.append(gcv(x[rows], y[rows][:, [column]], done.penalty))
    assert done.gcv == pytest.approx(np.mean(scores))
    assert done.after == pytest.approx((linear(x) - y)[seen].square().mean().item())
    zero = head()
    init.fit_readout_(zero, x, y.masked_fill(~seen, 0), penalty=done.penalty)
    assert not torch.allclose(zero.weight, linear.weight, rtol=0.1)


def test_rows_without_a_target_may_hold_anything() -> None:
    """A mask of rows leaves them out, their features too; where a target is seen, NaN in the features is refused."""
    x, y = data()
    rows = torch.arange(ROWS) % 3 > 0
    linear, other = head(), head()
    other.load_state_dict(linear.state_dict())
    bad = x.masked_fill(~rows[:, None], math.nan)
    assert init.fit_readout_(linear, bad, y, observed=rows) == init.fit_readout_(other, x[rows], y[rows])
    assert torch.equal(linear.weight, other.weight)
    with pytest.raises(TheoryError, match="features hold nan, first in row 0, column 0"):
        init.fit_readout_(linear, bad, y)
    y[4, 1] = math.inf
    with pytest.raises(TheoryError, match="targets hold inf, first in row 4, column 1"):
        init.fit_readout_(linear, x, y, observed=rows)


def test_classes() -> None:
    """Whole numbers are classes: ridge on the one-hot, better than at random; labels outside are refused."""
    x, y = data(noise=0.3)
    labels = y.argmax(1)
    linear = head()
    before = float((linear(x).argmax(1) == labels).double().mean())
    done = init.fit_readout_(linear, x, labels)
    same_as_sklearn(linear, x, np.eye(K)[labels], done.penalty)
    assert float((linear(x).argmax(1) == labels).double().mean()) > max(before, 0.7)
    labels[5] = K
    with pytest.raises(TheoryError, match="class 3 in row 5: a head of 3 outputs has 0 to 2"):
        init.fit_readout_(linear, x, labels)
    labels[5] = -100
    with pytest.raises(TheoryError, match=r"class -100 in row 5.*no label, say so by observed="):
        init.fit_readout_(linear, x, labels)
    for shape in ((ROWS,), (ROWS, 1)):
        with pytest.raises(
            TheoryError, match=r"classes, and a head of 1 output .*make the targets float, or the head of 2"
        ):
            init.fit_readout_(head(columns=1), x, (labels > 0).long().reshape(shape))
    labels[5] = K
    marks = labels < K
    other = head()
    assert init.fit_readout_(other, x, labels, observed=marks).rows == ROWS - 1
    same_as_sklearn(
        other, x[marks], np.eye(K)[labels[marks]], init.fit_readout_(other, x[marks], labels[marks]).penalty
    )


@pytest.mark.parametrize("penalty", [None, 0.0, 1.0])
@pytest.mark.parametrize("rows", [8, 100])
def test_useless_features(rows: int, penalty: float | None) -> None:
    """Constant and duplicate features, or fewer rows than features, give the ridge solution and no large numbers."""
    x, y = data(rows)
    x[:, 1] = 1e4
    x[:, 2] = x[:, 3]
    x[:, 4] = 0
    linear = head()
    done = init.fit_readout_(linear, x, y, penalty=penalty)
    assert math.isfinite(done.gcv)
    assert linear.weight.abs().max().item() < 100
    assert not linear.weight[:, [1, 4]].abs().gt(1e-9).any()
    torch.testing.assert_close(linear.weight[:, 2], linear.weight[:, 3], rtol=1e-6, atol=1e-8)
    if done.penalty:
        same_as_sklearn(linear, x, y, done.penalty, 1e-6)
    else:
        least = np.linalg.lstsq(x - x.mean(0), y - y.mean(0), rcond=1e-10)[0]
        np.testing.assert_allclose(linear.weight.detach().numpy(), least.T, atol=1e-7)


def test_nothing_but_constants() -> None:
    """Without any feature that varies the weights are zero and the bias is the mean; one row is its own mean."""
    y = data()[1]
    for rows in (ROWS, 1):
        linear = head()
        init.fit_readout_(linear, torch.full((rows, F), 0.1, dtype=torch.float64), y[:rows])
        assert not linear.weight.any()
        torch.testing.assert_close(linear.bias, y[:rows].mean(0))


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_body_and_head(batch_first: bool, last: bool) -> None:
    """In one call, from a tensor cut up or from batches: ridge on the body's own outputs without dropout."""
    body = nn.LSTM(4, 6, 2, bidirectional=True, batch_first=batch_first, dropout=0.5, dtype=torch.float64)
    x = torch.randn(9, 20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    along = 0 if last or batch_first else 1
    x = x.transpose(0, 1) if batch_first else x
    with torch.no_grad():
        y, (h, _) = copy.deepcopy(body).eval()(x)
    features = torch.cat([h[-2], h[-1]], -1) if last else y
    targets = torch.randn(*features.shape[:-1], K, dtype=torch.float64)
    heads = [head() for _ in range(3)]
    state = torch.get_rng_state()
    init.fit_body_and_readout_(body, heads[0], x, targets, last=last, batch_size=7, penalty=0.1)
    assert torch.equal(torch.get_rng_state(), state)
    assert body.training
    across = 0 if batch_first else 1
    pairs = zip(x.chunk(2, across), targets.chunk(2, along), strict=True)
    init.fit_body_and_readout_(body, heads[1], pairs, last=last, penalty=0.1)
    init.fit_readout_(heads[2], features, targets, penalty=0.1)
    for other in heads[:2]:
        torch.testing.assert_close(other.weight, heads[2].weight, rtol=1e-9, atol=1e-9)
    same_as_sklearn(heads[2], features.reshape(-1, F), targets.reshape(-1, K), 0.1)


class Wrapped(nn.Module):
    """A batch-first LSTM in a module that does not say so; or none at all."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Any:
        """What comes out of the module inside."""
        return self.inside(x)


def test_a_body_around_the_lstm() -> None:
    """Sequences are cut as the LSTM inside has them, never time; where that cannot be told and matters, it is asked."""
    body = nn.LSTM(4, F, batch_first=True, dtype=torch.float64)
    x, y = torch.randn(6, 40, 4, dtype=torch.float64), torch.randn(6, 40, K, dtype=torch.float64)
    heads = [head() for _ in range(4)]
    init.fit_body_and_readout_(body, heads[0], x, y, penalty=0.1)
    init.fit_body_and_readout_(Wrapped(body), heads[1], x, y, batch_size=8, penalty=0.1)
    pair = nn.ModuleDict({"a": body, "b": nn.LSTM(4, F)})
    for inside, holds in ((nn.Linear(4, F, dtype=torch.float64), "no LSTM"), (pair, "LSTMs with batch_first and")):
        with pytest.raises(TheoryError, match=f"Wrapped holds {holds}.*say batch_first="):
            init.fit_body_and_readout_(Wrapped(inside), head(), x, y, batch_size=8)
    two = Wrapped(body)
    two.other = nn.LSTM(4, F)
    init.fit_body_and_readout_(two, heads[2], x, y, batch_size=8, batch_first=True, penalty=0.1)
    for other in heads[1:3]:
        torch.testing.assert_close(other.weight, heads[0].weight, rtol=1e-9, atol=1e-9)
    init.fit_body_and_readout_(
        body, heads[3], x, y, batch_size=8, batch_first=False, penalty=0.1
    )  # control: time is cut
    assert not torch.allclose(heads[3].weight, heads[0].weight, rtol=1e-3)
    init.fit_body_and_readout_(Wrapped(nn.Linear(4, F, dtype=torch.float64)), head(), x, y)  # one batch holds all


def test_what_is_wrong_with_x_is_said_of_x() -> None:
    """NaN and infinity that go into the body are named where they stand in x, whatever the features then hold."""
    body, linear = nn.LSTM(4, F, dtype=torch.float64), head()
    x, y = torch.randn(5, 9, 4, dtype=torch.float64), torch.randn(5, 9, K, dtype=torch.float64)
    x[3, 7, 2] = math.nan
    message = r"NaN in the batch without missing-value support: x is nan first at \[3, 7, 2\]"
    with pytest.raises(TheoryError, match=message):
        init.fit_body_and_readout_(body, linear, x, y, batch_size=4)
    with pytest.raises(TheoryError, match=message):
        init.fit_body_and_readout_(body, linear, [(x, y)])
    packed = [pack_sequence(list(part.unbind(1))) for part in (x, y)]
    with pytest.raises(TheoryError, match="x is nan first at step 3, sequence 7, input 2"):
        init.fit_body_and_readout_(body, linear, *packed)
    y[3:, 7] = math.nan  # where no target is, it does not matter
    assert math.isfinite(init.fit_body_and_readout_(body, linear, x, y).after)
    with torch.no_grad():
        next(body.parameters()).fill_(math.nan)  # control: not x's fault
    with pytest.raises(TheoryError, match="features hold nan"):
        init.fit_body_and_readout_(body, linear, torch.nan_to_num(x), y)


def test_packed_body() -> None:
    """Packed sequences with packed targets, or one label each: as their unpadded steps, and their last states."""
    body = nn.LSTM(4, F, dtype=torch.float64)
    sequences = [torch.randn(n, 4, dtype=torch.float64) for n in (3, 9, 5)]
    targets = [torch.randn(n, K, dtype=torch.float64) for n in (3, 9, 5)]
    x, y = (pack_sequence(part, enforce_sorted=False) for part in (sequences, targets))
    linear, plain = head(), head()
    done = init.fit_body_and_readout_(body, linear, x, y, penalty=0.1)
    with torch.no_grad():
        steps = [body(s)[0] for s in sequences]
    init.fit_readout_(plain, zip(steps, targets, strict=True), penalty=0.1)
    assert done.rows == 17
    torch.testing.assert_close(linear.weight, plain.weight, rtol=1e-9, atol=1e-9)
    labels = torch.tensor([2, 0, 1])
    init.fit_body_and_readout_(body, linear, x, labels, last=True, penalty=0.1)
    init.fit_readout_(plain, torch.stack([s[-1] for s in steps]), labels, penalty=0.1)
    torch.testing.assert_close(linear.weight, plain.weight, rtol=1e-9, atol=1e-9)
    assert pad_packed_sequence(y)[0].shape == (9, 3, K)
    with pytest.raises(TheoryError, match="packed in different orders"):
        init.fit_body_and_readout_(body, linear, x, pack_sequence(targets[::-1], enforce_sorted=False))


def test_it_says_what_it_did() -> None:
    """The answer prints in one line; parameters stay the same objects with their own type and no gradient."""
    linear = nn.Linear(F, K)
    weight = linear.weight
    text = str(init.fit_readout_(linear, data()[0].float(), data()[1].float()))
    assert text.startswith("ridge from 200 rows: mean squared error")
    assert "\n" not in text
    assert linear.weight is weight
    assert weight.requires_grad
    assert weight.grad_fn is None
    assert weight.dtype == torch.float32


def test_what_cannot_be_meant() -> None:
    """Shapes, labels and batches that do not fit are refused in one line with what was met."""
    (x, y), linear = data(), head()
    wrong: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        (r"features have shape \(200, 11\), targets \(200, 3\)", (x[:, 1:], y), {}),
        (r"targets \(200, 2\) of torch.float64", (x, y[:, 1:]), {}),
        (r"targets \(200, 3\) of torch.int64", (x, y.long()), {}),
        (r"targets \(199, 3\)", (x, y[1:]), {}),
        (r"observed is \(2,\)", (x, y), {"observed": torch.ones(2)}),
        ("targets are missing", (x,), {}),
        ("batches that hold their own targets", ([(x, y)], y), {}),
        ("batch 0 is a Tensor", ([x],), {}),
        ("penalty = -1", (x, y), {"penalty": -1}),
        ("penalty = nan", (x, y), {"penalty": math.nan}),
        ("no observed target in any row", ([],), {}),
        ("no observed target in any row", (x, y * math.nan), {}),
        ("no observed target in column 1", (x, y * torch.tensor([1, math.nan, 1])), {}),
    ]
    old = linear.weight.detach().clone()
    for message, arguments, kwargs in wrong:
        with pytest.raises(TheoryError, match=message) as error:
            init.fit_readout_(linear, *arguments, **kwargs)
        assert "\n" not in str(error.value)
    not_linear: Any = nn.Identity()
    with pytest.raises(TheoryError, match="head is a Identity"):
        init.fit_readout_(not_linear, x, y)
    body = nn.LSTM(4, F, dtype=torch.float64)
    with pytest.raises(TheoryError, match=r"targets: \(5, 3\), x has shape \(2, 7, 4\): 7 in dimension 0"):
        init.fit_body_and_readout_(body, linear, torch.zeros(2, 7, 4, dtype=torch.float64), y[:5], last=True)
    with pytest.raises(TheoryError, match="Linear does not return"):
        init.fit_body_and_readout_(nn.Linear(4, F), linear, torch.zeros(2, 7, 4), y[:7], last=True)
    assert torch.equal(linear.weight, old)
