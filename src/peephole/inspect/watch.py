"""One run of a model, watched: what went into each of its LSTMs, what came out, and the loss's gradient there."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from peephole.init.torch import lstms, stacked_cells
from peephole.inspect.errors import InspectError

Loss = Callable[[Any], Tensor]


@dataclass
class Call:
    """One call of one LSTM: its arguments as given, and y, h, c as they came out (a cell has no y).

    `grads` are the gradients with respect to y, h and c by what the model does with them afterwards.
    """

    name: str
    module: nn.Module
    x: Any
    state: Any
    outputs: list[Tensor]
    leaves: list[Tensor] = field(default_factory=list)
    grads: list[Tensor | None] = field(default_factory=list)


def watch(model: nn.Module, batch: Any, loss: Loss | None) -> list[Call]:
    """Run the model once on the batch and return the calls of its LSTMs in their order.

    The model runs in evaluation mode (no dropout), but for layers that keep running statistics: fresh ones would not
    normalise, so they stay in the mode they are in. It is left as it was.
    """
    model = getattr(model, "_orig_mod", model)  # hooks inside a compiled graph would not be called
    found = lstms(model)
    _refuse_numbers(model, batch)
    calls: list[Call] = []
    handles = [
        handle
        for name, part in found.items()
        for handle in (
            part.register_forward_pre_hook(partial(_refuse_shape, name), with_kwargs=True),
            part.register_forward_hook(_note(name, calls, loss is not None), with_kwargs=True),
        )
    ]
    try:
        with _as_it_was(model, found), torch.set_grad_enabled(loss is not None):
            output = _run(model, batch)
            if loss is not None and calls:
                _differentiate(loss(output), calls)
    finally:
        for handle in handles:
            handle.remove()
    if not calls:
        raise InspectError(f"the model ran without calling its LSTM{'s' if len(found) > 1 else ''} {', '.join(found)}")
    return calls


def _run(model: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, tuple | list) and not isinstance(batch, PackedSequence):
        return model(*batch)
    return model(batch)


def _refuse_shape(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise at what no LSTM takes, in place of what torch would say deeper down."""
    x = kwargs.get("input", args[0] if args else None)
    data, width = x.data if isinstance(x, PackedSequence) else x, next(stacked_cells(module)).weight_ih.shape[1]
    where = name or "the LSTM"
    if not isinstance(data, Tensor):
        raise InspectError(f"{where} is given a {type(data).__name__}: a tensor is wanted, as of torch.as_tensor")
    if data.dim() and data.shape[-1] != width:
        raise InspectError(f"{where} is given {data.shape[-1]} features (shape {tuple(data.shape)}); it takes {width}")
    if not data.numel():
        raise InspectError(f"{where} is given an empty batch, of shape {tuple(data.shape)}")


def _note(name: str, calls: list[Call], differentiate: bool) -> Callable[..., Any]:
    """A hook that keeps what it sees; with a loss, the model goes on with copies whose gradient can be asked for."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        given = [*args, *kwargs.values()]
        x, state = kwargs.get("input", given[0]), kwargs.get("hx", given[1] if len(given) > 1 else None)
        y, (h, c) = (None, out) if isinstance(module, nn.LSTMCell) else out
        data = y.data if isinstance(y, PackedSequence) else y
        tensors = [tensor for tensor in (data, h, c) if tensor is not None]
        call = Call(name, module, _copied(x), _copied(state), _copied(tensors))
        calls.append(call)
        if not differentiate:
            return None
        call.leaves = [_probe(tensor) for tensor in tensors]
        # Cloned once more: what the model does in place to what it gets must not reach the tensor asked about.
        h, c = (tensor.clone() for tensor in call.leaves[-2:])
        if y is None:
            return h, c
        data = call.leaves[0].clone()
        if isinstance(y, PackedSequence):
            data = PackedSequence(data, y.batch_sizes, y.sorted_indices, y.unsorted_indices)
        return data, (h, c)

    return hook


def _copied(value: Any) -> Any:
    """What a model may write into afterwards, as it is now."""
    if isinstance(value, PackedSequence):
        return PackedSequence(_copied(value.data), value.batch_sizes, value.sorted_indices, value.unsorted_indices)
    if isinstance(value, tuple | list):
        return [_copied(part) for part in value]
    return value if value is None else value.detach().clone()


def _probe(tensor: Tensor) -> Tensor:
    copy = tensor.clone()
    return copy if copy.requires_grad else copy.requires_grad_()  # a frozen LSTM has gradients of its signal too


def _differentiate(value: Any, calls: list[Call]) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1:
        what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InspectError(f"loss(output) must be one number in a tensor, it is {what}")
    own = list(calls)  # activation checkpointing calls the LSTMs again on the way back
    leaves = [leaf for call in own for leaf in call.leaves]
    found: tuple[Tensor | None, ...] = ()
    if value.requires_grad:
        try:
            found = torch.autograd.grad(value.reshape(()), leaves, allow_unused=True)
        except RuntimeError as error:
            if "use_reentrant" not in str(error):  # that way of checkpointing knows no gradients of what is inside
                raise
    if all(part is None for part in found):
        raise InspectError(
            "the loss does not depend on any LSTM's output: is something detached on the way, or checkpointed without "
            "use_reentrant=False?"
        )
    grads = iter(found)
    for call in own:
        call.grads = [next(grads) for _ in call.leaves]
        call.leaves = []
    calls[:] = own


@contextmanager
def _as_it_was(model: nn.Module, found: dict[str, nn.Module]) -> Iterator[None]:
    """Evaluation mode inside; modes, dropout, state and the random state are afterwards what they were."""
    modes = [(part, part.training) for part in model.modules()]
    rates = [(part, part.dropout) for part in found.values() if isinstance(getattr(part, "dropout", None), float | int)]
    restores = [restore for part in model.modules() for restore in _kept(part)]
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.is_cuda})
    try:
        with torch.random.fork_rng(devices=devices):
            model.eval()
            for part, mode in modes:
                if getattr(part, "running_mean", None) is not None:
                    part.training = mode
            for part, _ in rates:  # cuDNN differentiates an LSTM in training mode only
                part.dropout, part.training = 0.0, True  # type: ignore[assignment]
            yield
    finally:
        for part, mode in modes:
            part.training = mode
        for part, rate in rates:
            part.dropout = rate
        with torch.no_grad():
            for restore in restores:
                restore()


def _kept(part: nn.Module) -> Iterator[Callable[[], None]]:
    """What puts a module's state back: its buffers, and whatever tensors it keeps as attributes, in lists and the like.

    Parameters and hooks are not among it: no forward changes them.
    """
    torch_s_own = vars(nn.Module()).keys()
    own = {name: value for name, value in vars(part).items() if name not in torch_s_own}

    def attributes() -> None:
        for name in vars(part).keys() - torch_s_own - own.keys():
            del vars(part)[name]
        vars(part).update(own)

    yield attributes
    seen: set[int] = set()
    for value in (vars(part).get("_buffers"), *part.buffers(recurse=False), *own.values()):
        yield from _contents(value, seen)


def _contents(value: Any, seen: set[int]) -> Iterator[Callable[[], None]]:
    """What puts back the numbers of tensors and the members of containers, each once."""
    if id(value) in seen or isinstance(value, nn.Parameter):
        return
    seen.add(id(value))
    members: list[Any] = []
    if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_meta:
        yield partial(_write, value, value.detach().clone())
    elif type(value) in (dict, OrderedDict, defaultdict):
        yield partial(_refill, value, value.update, dict(value))
        members = list(value.values())
    elif type(value) in (list, deque):
        yield partial(_refill, value, value.extend, list(value))
        members = list(value)
    elif isinstance(value, tuple):
        members = list(value)
    for member in members:
        yield from _contents(member, seen)


def _write(tensor: Tensor, before: Tensor) -> None:
    if not torch.equal(tensor, before):
        tensor.copy_(before)


def _refill(container: Any, fill: Callable[[Any], None], before: Any) -> None:
    container.clear()
    fill(before)


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of a batch, however deep they lie."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, PackedSequence):
        yield value.data
    elif isinstance(value, Mapping | tuple | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)


def _refuse_numbers(model: nn.Module, batch: Any) -> None:
    """Raise at weights or inputs that are not finite: nothing that comes of them could be told from a finding."""
    for name, parameter in model.named_parameters():
        bad = int((~parameter.detach().isfinite()).sum())
        if bad:
            raise InspectError(
                f"{name} holds {bad} of {parameter.numel()} values that are NaN or infinite: the model is lost. "
                "Go back to an earlier checkpoint, with a smaller learning rate or clipped gradients"
            )
    for data in _tensors(batch):
        if data.is_floating_point() and not bool(data.isfinite().all()):
            at = (~data.isfinite()).nonzero()[0].tolist()
            raise InspectError(
                f"{'NaN' if bool(data.isnan().any()) else 'infinity'} in the batch, first at {at} of shape "
                f"{tuple(data.shape)}: fill what is missing before the model sees it"
            )
