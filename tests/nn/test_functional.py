"""What the functions refuse, what they take, and by which words: never by a crash."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from peephole.nn import functional, kernel
from tests.nn.cases import Answer, Case, assert_same, distance, draw, gradients

T, B, I, H, R = 3, 4, 2, 3, 2


def tensors(**changed: Any) -> dict[str, Any]:
    """A good call's tensors, some of them replaced."""
    leaves = draw(Case(T, B, I, H), torch.float32)
    leaves["state"] = (leaves.pop("h0"), leaves.pop("c0"))
    return leaves | changed


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Zeros of this shape."""
    return torch.zeros(shape, dtype=dtype)


def test_a_good_call() -> None:
    """What the others change in one place is taken as it is."""
    y, (h, c) = functional.peephole_lstm(**tensors())
    assert (y.shape, h.shape, c.shape) == ((T, B, H), (B, H), (B, H))


SHAPES = {
    "x": [(T, I), (T * I,), (1, T, B, I), (T, B, I + 1), (R, T, B, I)],
    "weight_ih": [(4 * H,), (4 * H, I + 1), (4 * H - 1, I), (R, 4 * H, I)],
    "weight_hh": [(4 * H * H,), (4 * H, H + 1), (4 * H - 1, H), (R, 4 * H, H), (1, 1, 4 * H, H)],
    "weight_ph": [(3, H), (4 * H,), (H,), (R, 3 * H), ()],
    "bias": [(8 * H,), (3 * H,), (4, H), (R, 4 * H), ()],
}


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shapes in SHAPES.items() for shape in shapes])
def test_wrong_shapes(name: str, shape: tuple[int, ...]) -> None:
    """A wrong rank or size of any tensor is refused with the shapes that were met."""
    for backend in functional.BACKENDS:
        with pytest.raises(ValueError, match=r"got|has shape") as refused:
            functional.peephole_lstm(**tensors(**{name: zeros(*shape)}), backend=backend)
        met = [str(tuple(tensors()[other].shape)) for other in ("x", "weight_ih", "weight_hh") if other != name]
        assert str(shape) in str(refused.value)
        assert any(other in str(refused.value) for other in met)


@pytest.mark.parametrize(
    "state",
    [
        (zeros(B, H), zeros(B, H + 1)),
        (zeros(B + 1, H), zeros(B, H)),
        (zeros(H), zeros(B, H)),
        (zeros(1, B, H), zeros(1, B, H)),
        (zeros(B, H),),
        (zeros(B, H), zeros(B, H), zeros(B, H)),
        (zeros(B, H, dtype=torch.float64), zeros(B, H)),
    ],
)
def test_wrong_states(state: Any) -> None:
    """So is a state that does not fit, or is not a pair."""
    with pytest.raises(ValueError, match=r"h0|c0|state|zip"):
        functional.peephole_lstm(**tensors(state=state))


def test_wrong_replicas() -> None:
    """Replicas are of one number everywhere."""
    leaves = draw(Case(T, B, I, H, R, True, state=False), torch.float32)
    functional.peephole_lstm(**leaves)
    for name, leaf in leaves.items():
        for other in (leaf[:1], torch.cat((leaf, leaf))):
            with pytest.raises(ValueError, match="has shape") as refused:
                functional.peephole_lstm(**leaves | {name: other})
            assert str(tuple(other.shape)) in str(refused.value)


@pytest.mark.parametrize("name", ["x", "weight_ih", "weight_hh", "weight_ph", "bias"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64])
def test_mixed_dtypes(name: str, dtype: torch.dtype) -> None:
    """One dtype for all, whatever the backend; the message holds both."""
    for backend in functional.BACKENDS:
        with pytest.raises(ValueError, match=str(dtype)) as refused:
            functional.peephole_lstm(**tensors(**{name: tensors()[name].to(dtype)}), backend=backend)
        assert "torch.float32" in str(refused.value)


def of_dtype(dtype: torch.dtype) -> dict[str, Any]:
    """A call with all tensors of a dtype."""
    leaves = draw(Case(T, B, I, H, state=False))
    return {name: leaf.to(dtype) for name, leaf in leaves.items()}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool, torch.complex64])
def test_not_numbers_of_a_network(dtype: torch.dtype) -> None:
    """Whole numbers, truth values and complex numbers are refused by name."""
    for backend in functional.BACKENDS:
        with pytest.raises(ValueError, match=str(dtype)):
            functional.peephole_lstm(**of_dtype(dtype), backend=backend)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    """Half precision takes the loop; "fused" says that it cannot."""
    y, _ = functional.peephole_lstm(**of_dtype(dtype))
    wanted, _ = functional.peephole_lstm(**of_dtype(torch.float64))
    assert y.dtype == dtype
    assert distance(y, wanted) < 0.05
    with pytest.raises(kernel.KernelError, match=f"fused.*{dtype}"):
        functional.peephole_lstm(**of_dtype(dtype), backend="fused")


def test_another_device() -> None:
    """Another device takes the loop if all is there, and is refused if not."""
    leaves = {name: leaf.to("meta") for name, leaf in of_dtype(torch.float32).items()}
    y, _ = functional.peephole_lstm(**leaves)
    assert (y.device.type, y.shape) == ("meta", (T, B, H))
    with pytest.raises(kernel.KernelError, match="meta"):
        functional.peephole_lstm(**leaves, backend="fused")
    with pytest.raises(ValueError, match=r"on meta.*on cpu"):
        functional.peephole_lstm(**tensors(bias=leaves["bias"]))


@pytest.mark.parametrize("empty", ["steps", "inputs", "units", "replicas"])
def test_empty(empty: str) -> None:
    """Nothing to compute, of whatever kind, is refused with the shapes."""
    sizes = {"steps": T, "batch": B, "inputs": I, "units": H, "replicas": R} | {empty: 0}
    t, b, i, h, r = sizes.values()
    for backend in functional.BACKENDS:
        with pytest.raises(ValueError, match=r"empty.*\b0\b"):
            functional.peephole_lstm(zeros(t, b, i), zeros(r, 4 * h, i), zeros(r, 4 * h, h), backend=backend)


def test_not_contiguous() -> None:
    """Tensors with any strides give the bits and gradients of their contiguous copies."""
    plain = draw(Case(T, B, I, H, R, True))

    def answer(leaves: dict[str, Any]) -> Answer:
        taken = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
        state = taken.pop("h0"), taken.pop("c0")
        y, (h, c) = functional.peephole_lstm(**taken, state=state)
        torch.autograd.backward(y[..., ::2, :].sum() + h.mT.square().sum() + c.sum())
        return {"y": y.detach(), "h": h.detach()} | gradients(taken)

    strided = {name: leaf.mT.contiguous().mT if leaf.dim() > 2 else leaf for name, leaf in plain.items()}
    spread = {name: torch.stack((leaf, leaf), -1).select(-1, 0) for name, leaf in plain.items()}
    for other in (strided, spread):
        assert not other["x"].is_contiguous()
        assert_same(answer(other), answer(plain))


def test_expanded() -> None:
    """A tensor that repeats one number in memory is as good as its copy."""
    x = zeros(1, 1, I).add(0.5).expand(T, B, I)
    got, _ = functional.peephole_lstm(**tensors(x=x))
    wanted, _ = functional.peephole_lstm(**tensors(x=x.clone()))
    assert torch.equal(got, wanted)


@pytest.mark.parametrize(
    "lengths",
    [
        torch.tensor([0, 1, 2, 3]),
        torch.tensor([1, 2, 3, 4]),
        torch.tensor([-1, 2, 3, 3]),
        torch.tensor([1, 2, 3]),
        torch.tensor([[1, 2, 3, 3]]),
        torch.tensor(3),
        torch.tensor([1.5, 2.0, 3.0, 3.0]),
        torch.tensor([torch.nan, 2.0, 3.0, 3.0]),
        torch.tensor([True, True, True, True]),
        [1, 2, 3, 3],
    ],
)
def test_wrong_lengths(lengths: Any) -> None:
    """A length is a whole number from 1 to all steps, one a sequence, as for torch's packed sequences."""
    for backend in functional.BACKENDS:
        with pytest.raises((ValueError, TypeError), match="lengths"):
            functional.peephole_lstm(**tensors(), lengths=lengths, backend=backend)
    y, _ = functional.peephole_lstm(**tensors(), lengths=torch.tensor([1, 2, 3, 3], dtype=torch.int32))
    assert y[0].all()
    assert not y[1:, 0].any()


@pytest.mark.parametrize("role", ["gate_activation", "cell_activation", "output_activation"])
def test_unknown_names(role: str) -> None:
    """An activation or a backend that does not exist is refused with those that do."""
    for function in (functional.peephole_lstm, functional.next_step_loss):
        call: dict[str, Any] = {name: tensor for name, tensor in tensors(x=zeros(T, B, H)).items() if name != "state"}
        call["weight_ih"] = zeros(4 * H, H)
        with pytest.raises(ValueError, match=r"softplus.*sigmoid.*hard_sigmoid"):
            function(**call | {role: "softplus"})
        with pytest.raises(ValueError, match=r"cuda.*auto.*fused.*reference"):
            function(**call, backend="cuda")


def square() -> dict[str, Any]:
    """A good call of the next-step loss."""
    return draw(Case(T, B, H, H, state=False), torch.float32)


@pytest.mark.parametrize("backend", functional.BACKENDS)
def test_wrong_losses(backend: str) -> None:
    """A next-step loss needs two steps, as many inputs as units, and a target of each network that is observed."""
    assert functional.next_step_loss(**square(), backend=backend).shape == ()
    good, x = square(), square()["x"]
    first = zeros(T, B, H)
    first[0] = 1
    for changed, words in [
        ({"x": x[:1]}, r"2 steps.*\(1, 4, 3\)"),
        ({"x": zeros(T, B, I), "weight_ih": zeros(4 * H, I)}, "3 and 2"),
        ({"x": zeros(T, 0, H)}, "empty"),
        ({"observed": zeros(T, B, 1)}, r"\(3, 4, 1\).*\(3, 4, 3\)"),
        ({"observed": zeros(T, B, H)}, "no target"),
        ({"observed": first}, "no target"),
        ({"x": x.double()}, "float64"),
    ]:
        with pytest.raises(ValueError, match=words):
            functional.next_step_loss(**good | changed, backend=backend)
    half = {name: leaf.half() for name, leaf in good.items()}
    with pytest.raises(kernel.KernelError, match="float16"):
        functional.next_step_loss(**half, backend="fused")


def test_the_loss_is_differentiable_by_its_input() -> None:
    """Where x wants a gradient the loss takes another way, to the same number."""
    leaves = square()
    plain = functional.next_step_loss(**leaves)
    x = leaves.pop("x").requires_grad_()
    loss = functional.next_step_loss(x, **leaves)
    torch.autograd.backward(loss)
    assert distance(loss.detach(), plain) < 1e-5
    assert x.grad is not None
    assert x.grad.any()
