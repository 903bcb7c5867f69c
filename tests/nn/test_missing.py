"""Gaps in sequences: the fills, the weights, and what must not change the loss, to the last digit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from peephole.nn import functional, kernel, missing, reference
from tests.nn.cases import Answer, Case, assert_close, assert_same, draw, gradients

T, B, N, R = 7, 5, 3, 2
CASE = Case(T, B, N, N, state=False)
NAMES = ("weight_ih", "weight_hh", "weight_ph", "bias")
BACKENDS = ("fused", "reference") if kernel.available() else ("reference",)
every_fill = pytest.mark.parametrize("fill", missing.FILLS)
every_weight = pytest.mark.parametrize("weight", missing.WEIGHTS)
either_backend = pytest.mark.parametrize("backend", BACKENDS)


def gappy(case: Case = CASE, share: float = 0.4, dtype: torch.dtype = torch.float64) -> tuple[dict[str, Any], Tensor]:
    """A call of the loss without gaps, and a mask with: a subject without anything, and an empty visit."""
    leaves = draw(case, dtype)
    mask = torch.rand(leaves["x"].shape, generator=torch.Generator().manual_seed(1)) >= share
    mask[..., 2, :] = False
    mask[..., 3, 1, :] = False
    return leaves, mask


def with_nan(x: Tensor, mask: Tensor, junk: float = torch.nan) -> Tensor:
    """The gaps as users have them."""
    return torch.where(mask, x, junk)


def answer(leaves: dict[str, Any], x: Tensor | None = None, **options: Any) -> Answer:
    """Loss and gradients of the weights, of x in the place of the leaves' own."""
    taken = {name: leaves[name].detach().requires_grad_() for name in NAMES if name in leaves}
    loss = functional.next_step_loss(leaves["x"] if x is None else x, **taken, **options)
    torch.autograd.backward(loss.sum())
    return {"loss": loss.detach()} | gradients(taken)


def options() -> Iterator[tuple[str, str, str]]:
    """Every fill and weight and backend."""
    for backend in BACKENDS:
        for fill in missing.FILLS:
            for weight in missing.WEIGHTS:
                yield backend, fill, weight


def each(question: Callable[..., tuple[Answer, Answer]]) -> None:
    """The two answers to a question are one, under every fill, weight and backend."""
    for backend, fill, weight in options():
        got, wanted = question(fill=fill, loss_weight=weight, backend=backend)
        assert_close(got, wanted, torch.float64, (backend, fill, weight))


# --- what the words mean, in plain NumPy -----------------------------------------------------------------------------


def filled_by_hand(x: np.ndarray, mask: np.ndarray, how: str) -> np.ndarray:
    """(T, B, N) entry by entry."""
    out = np.zeros_like(x)
    for t, b, n in np.ndindex(x.shape):
        r = mask[t, b].mean()
        if mask[t, b, n]:
            out[t, b, n] = x[t, b, n] * {"scaled": r, "unit-variance": (r or 1.0) ** -0.5}.get(how, 1.0)
        elif how == "forward" and mask[:t, b, n].any():
            out[t, b, n] = x[np.flatnonzero(mask[:t, b, n])[-1], b, n]
    return out


def weight_by_hand(mask: np.ndarray, how: str) -> np.ndarray:
    """(T, B, N) in whole fractions."""
    subjects = mask.any((0, 2)).sum()
    features = mask.any((0, 1)).sum()
    out = np.zeros(mask.shape)
    for t, b, n in np.argwhere(mask):
        count = {
            "visit": subjects * mask[:, b].any(-1).sum() * mask[t, b].sum(),
            "subject": subjects * mask[:, b].sum(),
            "feature": features * mask[:, :, n].sum(),
            "global": mask.sum(),
        }
        out[t, b, n] = Fraction(1, int(count[how]))
    return out


@pytest.mark.parametrize("how", [fill for fill in missing.FILLS if fill != "model"])
def test_fills(how: str) -> None:
    """Each fill is what its definition says, entry by entry, for one network and for many."""
    leaves, mask = gappy(Case(T, B, N, N, R, True))
    x = leaves["x"]
    got = missing.fill(with_nan(x, mask), mask, how)
    for k in range(R):
        wanted = filled_by_hand(x[k].numpy(), mask[k].numpy(), how)
        assert np.allclose(got[k], wanted, rtol=1e-14, atol=0)
        assert torch.equal(missing.fill(x[k], mask[k], how), got[k])


@every_weight
def test_weights(weight: str) -> None:
    """Each weight is its formula, in exact fractions; a network's sum to 1, and no network knows of another."""
    _, mask = gappy(Case(T, B, N, N, R, True))
    got = missing.loss_weights(mask, weight, dtype=torch.float64)
    for k in range(R):
        assert np.array_equal(got[k], weight_by_hand(mask[k].numpy(), weight))
        assert abs(float(got[k].sum()) - 1) < 1e-14
        assert torch.equal(missing.loss_weights(mask[k], weight, dtype=torch.float64), got[k])


@every_weight
@every_fill
@either_backend
def test_the_loss_by_hand(fill: str, weight: str, backend: str) -> None:
    """The loss is the weighted sum of the squared errors of a loop written out, gap by gap."""
    leaves, mask = gappy()
    seen, x = mask.numpy(), leaves["x"].numpy()
    w_ih, w_hh, w_ph, bias = (leaves[name].numpy() for name in NAMES)
    ready = filled_by_hand(x, seen, "zero" if fill == "model" else fill)
    weights, total = weight_by_hand(seen[1:], weight), 0.0
    h, c = np.zeros((B, N)), np.zeros((B, N))
    for t in range(T - 1):
        now = np.where(seen[t], ready[t], h) if fill == "model" else ready[t]
        i, f, z, o = np.split(now @ w_ih.T + h @ w_hh.T + bias, 4, axis=1)
        p_i, p_f, p_o = np.split(w_ph, 3)
        f, i = (1 / (1 + np.exp(-(gate + p * c))) for gate, p in ((f, p_f), (i, p_i)))
        c = f * c + i * np.tanh(z)
        h = c / (1 + np.exp(-(o + p_o * c)))
        total += float(np.sum(weights[t] * (h - x[t + 1]) ** 2))
    got = functional.next_step_loss(
        with_nan(leaves["x"], mask), *(leaves[name] for name in NAMES), fill=fill, loss_weight=weight, backend=backend
    )
    assert abs(float(got) - total) < 1e-12


# --- the eight invariants --------------------------------------------------------------------------------------------


def test_1_nan_is_a_mask_with_any_payload() -> None:
    """NaN in x gives the bits of an explicit mask, whatever lies under it: loss and gradients."""
    leaves, mask = gappy(Case(T, 35, N, N, R))
    for backend, fill, weight in options():
        how: dict[str, Any] = {"fill": fill, "loss_weight": weight, "backend": backend}
        wanted = answer(leaves, with_nan(leaves["x"], mask), **how)
        assert all(part.isfinite().all() and part.any() for part in wanted.values())
        for junk in (1e30, torch.inf, -torch.inf, torch.nan):
            assert_same(answer(leaves, with_nan(leaves["x"], mask, junk), observed=mask, **how), wanted)


def test_1_only_gaps_are_gaps() -> None:
    """The control: 1e30 or infinity that no mask covers does show; NaN that the mask calls observed is still a gap."""
    leaves, mask = gappy()
    wanted = answer(leaves, observed=mask)
    for junk in (1e30, torch.inf):
        assert not answer(leaves, with_nan(leaves["x"], mask, junk))["loss"] < 1e30
    assert_same(answer(leaves, with_nan(leaves["x"], mask), observed=torch.ones_like(mask)), wanted)


def test_1_a_gradient_for_x() -> None:
    """Where x itself wants a gradient it has none, exactly, in a gap, whatever lies there."""
    leaves, mask = gappy()
    found = []
    for junk in (0.0, torch.inf, torch.nan):
        x = with_nan(leaves["x"], mask, junk).requires_grad_()
        for fill in missing.FILLS:
            (gradient,) = torch.autograd.grad(
                functional.next_step_loss(x, *(leaves[name] for name in NAMES), observed=mask, fill=fill), x
            )
            assert not gradient[~mask].any()
            assert gradient[1:-1][mask[1:-1]].all()
            found.append(gradient)
    assert_same({"x": torch.stack(found[:5])}, {"x": torch.stack(found[5:10])})
    assert_same({"x": torch.stack(found[:5])}, {"x": torch.stack(found[10:])})


def test_2_subjects_without_anything() -> None:
    """One more subject that nothing was observed of changes neither loss nor gradients."""
    leaves, mask = gappy()
    x = with_nan(leaves["x"], mask)
    more = torch.cat((x, torch.full((T, 1, N), torch.nan, dtype=x.dtype)), 1)
    each(lambda **how: (answer(leaves, more, **how), answer(leaves, x, **how)))


def test_2_padding_on_the_right() -> None:
    """Nor do more visits without anything at the end."""
    leaves, mask = gappy()
    x = with_nan(leaves["x"], mask)
    longer = torch.cat((x, torch.full((3, B, N), torch.nan, dtype=x.dtype)))
    each(lambda **how: (answer(leaves, longer, **how), answer(leaves, x, **how)))


def test_2_padding_on_the_left() -> None:
    """Nor at the start, with zero biases: the state stays zero. The control: with biases it does not."""
    leaves, mask = gappy()
    mask[0, [0, 1, 3, 4]] = True  # else the first visit's targets would be new
    x = with_nan(leaves["x"], mask)
    x[0] = torch.nan
    later = torch.cat((torch.full((2, B, N), torch.nan, dtype=x.dtype), x))
    biased = [answer(leaves, one)["loss"] for one in (later, x)]
    assert abs(float(biased[0] - biased[1])) > 1e-3
    leaves["bias"] = torch.zeros_like(leaves["bias"])

    def question(**how: Any) -> tuple[Answer, Answer]:
        got, wanted = answer(leaves, later, **how), answer(leaves, x, **how)
        return {name: got[name] for name in got if name != "grad_bias"}, {
            name: wanted[name] for name in wanted if name != "grad_bias"
        }

    each(question)


def test_3_permuted_subjects() -> None:
    """Subjects in another order, or each of them twice, change nothing."""
    leaves, mask = gappy()
    x = with_nan(leaves["x"], mask)
    order = torch.tensor([3, 0, 4, 2, 1])
    for other in (x[:, order], torch.cat((x, x), 1)):
        each(lambda other=other, **how: (answer(leaves, other, **how), answer(leaves, x, **how)))


def test_3_permuted_features() -> None:
    """Features in another order, with their weights, give the same loss and the gradients in that order."""
    leaves, mask = gappy()
    x, order = with_nan(leaves["x"], mask), torch.tensor([2, 0, 1])

    def permuted(tensors: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
        def rows(name: str) -> Tensor:
            tensor = tensors[prefix + name]
            return tensor.view(-1, N, *tensor.shape[1:])[:, order].reshape(tensor.shape)

        return {prefix + name: rows(name)[:, order] if name in NAMES[:2] else rows(name) for name in NAMES}

    def question(**how: Any) -> tuple[Answer, Answer]:
        wanted = answer(leaves, x, **how)
        return answer(permuted(leaves), x[..., order], **how), wanted | permuted(wanted, "grad_")

    each(question)


def test_4_a_missing_target_contributes_nothing() -> None:
    """The loss moves with a target that is observed, and by no bit with one that is not."""
    leaves, mask = gappy()
    x, (t, b, n) = leaves["x"], (T - 1, 0, 0)  # at the last visit: a target, and no input
    mask[t, b, n] = False
    moved = x.clone()
    moved[t, b, n] += 100
    there = mask.clone()
    there[t, b, n] = True
    for backend, fill, weight in options():
        how: dict[str, Any] = {"fill": fill, "loss_weight": weight, "backend": backend}
        assert_same(answer(leaves, moved, observed=mask, **how), answer(leaves, x, observed=mask, **how))
        assert answer(leaves, moved, observed=there, **how)["loss"] > answer(leaves, x, observed=there, **how)["loss"]


def outputs(leaves: dict[str, Any], x: Tensor, mask: Tensor, fill: str) -> Tensor:
    """What the layer puts out under a fill."""
    (w_ih, w_hh, w_ph, bias), zeros = (leaves[name] for name in NAMES), torch.zeros(B, N, dtype=x.dtype)
    own = fill == "model"
    y, _, _ = reference.peephole_lstm(
        missing.fill(x, mask, "zero" if own else fill), w_ih, w_hh, w_ph, bias, zeros, zeros,
        gate="sigmoid", cell_input="tanh", output="identity", observed=mask if own else None,
    )  # fmt: skip
    return y


@every_fill
def test_4_outputs_do_not_know_what_comes(fill: str) -> None:
    """Outputs up to t keep their bits whatever is observed after t, and whatever its mask; those after do not."""
    leaves, mask = gappy()
    for t in range(T - 1):
        x, seen = leaves["x"].clone(), mask.clone()
        x[t + 1 :] += 1
        seen[t + 1 :] = ~seen[t + 1 :]
        got, wanted = outputs(leaves, x, seen, fill), outputs(leaves, leaves["x"], mask, fill)
        assert torch.equal(got[: t + 1], wanted[: t + 1])
        assert not torch.equal(got[t + 1], wanted[t + 1])


@every_weight
@either_backend
def test_5_a_feature_never_observed(weight: str, backend: str) -> None:
    """Under the zero fill its columns of W have a gradient of exactly zero; the others have not."""
    leaves, mask = gappy()
    mask[..., 1] = False
    for fill in ("zero", "scaled", "unit-variance", "forward"):
        gradient = answer(leaves, observed=mask, fill=fill, loss_weight=weight, backend=backend)["grad_weight_ih"]
        assert not gradient[:, 1].any()
        assert gradient[:, [0, 2]].all()
    taken = answer(leaves, observed=mask, fill="model", loss_weight=weight)["grad_weight_ih"]
    assert taken[:, 1].any()  # the control: there the network's own estimate comes in


def test_6_complete_data() -> None:
    """Without a gap all fills and weights are one, with a mask and without: the mean, in the kernels to the bit."""
    for case in (CASE, Case(9, 37, 6, 6, R, True)):
        leaves = draw(case)
        whole = torch.ones_like(leaves["x"], dtype=torch.bool)
        y, _ = functional.peephole_lstm(
            leaves["x"][..., :-1, :, :], *(leaves[name] for name in NAMES), output_activation="identity"
        )
        plain = (y - leaves["x"][..., 1:, :, :]).square().mean((-3, -2, -1))
        wanted = {backend: answer(leaves, backend=backend) for backend in BACKENDS}
        for backend, fill, weight in options():
            how: dict[str, Any] = {"fill": fill, "loss_weight": weight, "backend": backend}
            masked, bare = answer(leaves, observed=whole, **how), wanted[backend]
            assert_same(answer(leaves, **how), bare)
            assert_close({"loss": bare["loss"]}, {"loss": plain}, torch.float64)
            (assert_same if backend == "fused" else partial(assert_close, dtype=torch.float64))(masked, bare)


def test_6_incomplete_data() -> None:
    """The control: with gaps no two fills agree, and no two weights."""
    leaves, mask = gappy()
    by_fill = [float(answer(leaves, observed=mask, fill=fill)["loss"]) for fill in missing.FILLS]
    by_weight = [float(answer(leaves, observed=mask, loss_weight=weight)["loss"]) for weight in missing.WEIGHTS]
    assert len({round(loss, 6) for loss in by_fill}) == len(missing.FILLS)
    assert len({round(loss, 6) for loss in by_weight}) == len(missing.WEIGHTS)


@every_weight
@every_fill
@either_backend
def test_7_finite_differences(fill: str, weight: str, backend: str) -> None:
    """The gradients of all weights are those of finite differences, by x too where it is asked."""
    leaves, mask = gappy(Case(5, B, N, N, state=False))
    weights = tuple(leaves[name].requires_grad_() for name in NAMES)

    def loss(*parts: Tensor) -> Tensor:
        x, *rest = parts if len(parts) == 5 else (leaves["x"], *parts)
        return functional.next_step_loss(x, *rest, observed=mask, fill=fill, loss_weight=weight, backend=backend)

    assert torch.autograd.gradcheck(loss, weights)
    assert torch.autograd.gradcheck(loss, (leaves["x"].clone().requires_grad_(), *weights))


@either_backend
def test_7_a_detached_estimate(backend: str) -> None:
    """A detached model fill has the same loss and another gradient: that of a batch filled with these estimates."""
    leaves, mask = gappy()
    x = with_nan(leaves["x"], mask)
    follows, detached = (answer(leaves, x, fill="model", detach_fill=d, backend=backend) for d in (False, True))
    assert_close({"loss": detached["loss"]}, {"loss": follows["loss"]}, torch.float64)
    assert (detached["grad_weight_hh"] - follows["grad_weight_hh"]).norm() > 1e-3
    before = torch.cat((torch.zeros(1, B, N), outputs(leaves, x, mask, "model")[:-1]))
    filled = torch.where(mask, x, before)
    taken = {name: leaves[name].detach().requires_grad_() for name in NAMES}
    y, _ = functional.peephole_lstm(filled[:-1], **taken, output_activation="identity")
    weights = missing.loss_weights(mask[1:], "visit", dtype=x.dtype)
    loss = (weights * torch.where(mask[1:], y - x[1:], 0.0).square()).sum()
    torch.autograd.backward(loss)
    assert_close(detached, {"loss": loss.detach()} | gradients(taken), torch.float64)


@every_weight
@either_backend
def test_8_nothing_observed(weight: str, backend: str) -> None:
    """No target at all is an error that says so, of one network and of many; an input alone is no target."""
    leaves = draw(Case(T, B, N, N, R, True, state=False))
    x = leaves["x"].clone()
    x[1, 1:] = torch.nan
    for words, other in (("network 1", x), ("no target", torch.full_like(x[0], torch.nan))):
        call = leaves if other.dim() == 4 else {name: leaf[0] for name, leaf in leaves.items()}
        with pytest.raises(ValueError, match=words):
            functional.next_step_loss(**call | {"x": other}, loss_weight=weight, backend=backend)
    with pytest.raises(ValueError, match="no target is observed"):
        missing.loss_weights(torch.zeros(T, B, N, dtype=torch.bool), weight)


# --- the rest --------------------------------------------------------------------------------------------------------


def test_replicas_are_networks_of_their_own() -> None:
    """Many networks, on one batch or each on its own gaps, are the networks one by one, under every option."""
    for own in (False, True):
        leaves, mask = gappy(Case(T, 37, N, N, R, own))
        x = with_nan(leaves["x"], mask)
        for backend, fill, weight in options():
            how: dict[str, Any] = {"fill": fill, "loss_weight": weight, "backend": backend}
            together = answer(leaves, x, **how)
            for k in range(R):
                alone = answer({name: leaves[name][k] for name in NAMES}, x[k] if own else x, **how)
                assert_close({name: part[k] for name, part in together.items()}, alone, torch.float64)


def test_a_complete_network_among_others() -> None:
    """In the kernels a network on complete data keeps its bits beside one on data with gaps."""
    leaves, mask = gappy(Case(9, 37, N, N, R, True))
    mask[0] = True
    both = answer(leaves, with_nan(leaves["x"], mask))
    alone = answer({name: leaf[0] for name, leaf in leaves.items()})
    same = {name: part[0] for name, part in both.items()}
    assert_same(same, alone) if kernel.available() else assert_close(same, alone, torch.float64)


def test_in_a_graph() -> None:
    """NaN is a gap in a compiled loss too, under every fill, and under torch.func."""
    leaves, mask = gappy()
    x = with_nan(leaves["x"], mask)
    weights = [leaves[name] for name in NAMES]
    for fill in missing.FILLS:
        wanted = functional.next_step_loss(x, *weights, fill=fill)
        torch._dynamo.reset()
        compiled = torch.compile(functional.next_step_loss, fullgraph=True, backend="aot_eager")
        mapped = torch.func.vmap(lambda one, how=fill: functional.next_step_loss(one, *weights, fill=how))
        for got in (compiled(x, *weights, fill=fill), mapped(torch.stack((x, x)))[1]):
            assert_close({"loss": got}, {"loss": wanted}, torch.float64)


def test_gradients_of_gradients() -> None:
    """The second derivative under every fill is the loop's, by finite differences too where the network fills."""
    leaves, mask = gappy(Case(4, 3, 2, 2, state=False))
    taken = [leaves[name].requires_grad_() for name in NAMES]

    def twice(backend: str, fill: str, detach: bool) -> Tensor:
        loss = functional.next_step_loss(
            leaves["x"], *taken, observed=mask, fill=fill, detach_fill=detach, backend=backend
        )
        first = torch.autograd.grad(loss, taken, create_graph=True)
        second = torch.autograd.grad(torch.stack([part.square().sum() for part in first]).sum(), taken)
        return torch.cat([part.flatten() for part in second])

    for fill in missing.FILLS:
        for detach in (False, True):
            wanted = twice("reference", fill, detach)
            for backend in BACKENDS:
                assert_close({"": twice(backend, fill, detach)}, {"": wanted}, torch.float64)


def test_infinite_data_is_complete() -> None:
    """Infinities whose sum is NaN are no gaps: the loss is theirs, as without a mask."""
    leaves = draw(CASE)
    leaves["x"][0, 0, :2] = torch.tensor([torch.inf, -torch.inf])
    assert missing.gaps(leaves["x"], None) is None
    assert not functional.next_step_loss(**leaves).isfinite()


def test_half_precision() -> None:
    """Half precision takes the loop, with any fill."""
    leaves, mask = gappy()
    half = {name: leaf.half() for name, leaf in leaves.items()}
    for fill in missing.FILLS:
        got = functional.next_step_loss(**half, observed=mask, fill=fill)
        wanted = functional.next_step_loss(**leaves, observed=mask, fill=fill)
        assert got.dtype == torch.float16
        assert abs(float(got) - float(wanted)) < 0.01


def test_unknown_words() -> None:
    """A fill or a weight that does not exist is refused with those that do; a mask of another shape with both."""
    leaves, mask = gappy()
    with pytest.raises(ValueError, match=r"fill 'mean': zero, scaled, unit-variance, model, forward"):
        functional.next_step_loss(**leaves, fill="mean")
    with pytest.raises(ValueError, match=r"loss_weight 'row': visit, subject, feature, global"):
        functional.next_step_loss(**leaves, loss_weight="row")
    with pytest.raises(ValueError, match=r"next_step_loss\(..., fill='model'\)"):
        missing.fill(leaves["x"], mask, "model")
    with pytest.raises(ValueError, match=r"\(6, 5, 3\).*\(7, 5, 3\)"):
        missing.fill(leaves["x"], mask[1:], "zero")
