"""What is measured: beside the model's own outputs, a cell stepped by hand, and autograd."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence
from torch.utils.checkpoint import checkpoint

from peephole import PeepholeLSTM, inspect
from peephole.inspect.errors import InspectError
from peephole.inspect.measured import Measured
from peephole.theory import TheoryError

T, B, I, H = 7, 5, 3, 4


def noise(*shape: int, seed: int = 0) -> Tensor:
    """White noise in double."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stepped(lstm: nn.LSTM, x: Tensor, h0: Tensor, c0: Tensor) -> tuple[list[list[Tensor]], dict[str, list[Tensor]]]:
    """A unidirectional nn.LSTM without dropout, stepped by torch's own cell: h by layer and step, gates of the last."""
    cells = []
    for layer in range(lstm.num_layers):
        cell = nn.LSTMCell(lstm.input_size if layer == 0 else H, H, dtype=torch.float64)
        cell.load_state_dict(
            {n: lstm.get_parameter(f"{n}_l{layer}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        )
        cells.append(cell)
    h, c = list(h0), list(c0)
    outputs: list[list[Tensor]] = [[] for _ in cells]
    gates: dict[str, list[Tensor]] = {name: [] for name in "ifoc"}
    for entering in x:
        for layer, cell in enumerate(cells):
            before = h[layer]
            a = entering @ cell.weight_ih.T + before @ cell.weight_hh.T + cell.bias_ih + cell.bias_hh
            h[layer], c[layer] = cell(entering, (before, c[layer]))
            h[layer].retain_grad()
            outputs[layer].append(h[layer])
            entering = h[layer]
        a_i, a_f, _, a_o = a.chunk(4, -1)
        for name, value in (("i", a_i), ("f", a_f), ("o", a_o)):
            gates[name].append(torch.sigmoid(value))
        gates["c"].append(c[-1])
    return outputs, gates


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_beside_torch_s_cell(layers: int) -> None:
    """Variances, gates and the gradient of each layer are those of nn.LSTMCell stepped by hand and of autograd."""
    torch.manual_seed(0)
    lstm, x = nn.LSTM(I, H, layers, dtype=torch.float64), noise(T, B, I)
    h0, c0, target = noise(layers, B, H, seed=1), noise(layers, B, H, seed=2), noise(T, B, H, seed=3)

    def loss(output: Any) -> Tensor:
        y, (h, c) = output
        value: Tensor = ((y - target) ** 2)[:3].mean() + (h * c).sum()
        return value

    measured = inspect.measure(lstm, (x, (h0, c0)), loss)
    outputs, gates = stepped(lstm, x, h0, c0)
    y = torch.stack(outputs[-1])
    last_c = gates["c"][-1]
    partial = ((y - target) ** 2)[:3].mean() + (outputs[-1][-1] * last_c).sum()
    if layers == 1:  # states of lower layers enter the loss too
        partial.backward()  # type: ignore[no-untyped-call]
        gradients = [torch.stack([h.grad for h in row if h.grad is not None]) for row in outputs]
        np.testing.assert_allclose(
            measured.traces[0].steps["gradient"], gradients[0].flatten(1).norm(dim=1), rtol=1e-10
        )
    for layer, trace in enumerate(measured.traces):
        h = torch.stack(outputs[layer]).detach()
        np.testing.assert_allclose(trace.steps["var_h"], h.var((1, 2), correction=0), rtol=1e-12)
        np.testing.assert_allclose(trace.steps["between_h"], h.var(1, correction=0).mean(1), rtol=1e-12)
    top = measured.traces[-1]
    for name, values in gates.items():
        stacked = torch.stack(values).detach()
        key = "c" if name == "c" else name
        np.testing.assert_allclose(top.steps[f"mean_{key}"], stacked.mean((1, 2)), rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(top.steps[f"var_{key}"], stacked.var((1, 2), correction=0), rtol=1e-10)
        if name != "c":
            shut, full = (stacked < 0.05).double().mean((1, 2)), (stacked > 0.95).double().mean((1, 2))
            np.testing.assert_allclose(top.steps[f"saturated_{name}"], shut + full, rtol=1e-6)


@pytest.mark.parametrize("layers", [2, 3])
def test_gradients_of_lower_layers(layers: int) -> None:
    """The whole gradient with respect to h(t) of each layer is that of autograd on the unrolled loop."""
    torch.manual_seed(0)
    lstm, x = nn.LSTM(I, H, layers, dtype=torch.float64), noise(T, B, I)
    zero = torch.zeros(layers, B, H, dtype=torch.float64)
    weight = noise(T, B, H, seed=3)
    measured = inspect.measure(lstm, x, lambda output: (output[0] * weight).sum())
    outputs, _ = stepped(lstm, x, zero, zero)
    (torch.stack(outputs[-1]) * weight).sum().backward()  # type: ignore[no-untyped-call]
    for row, trace in zip(outputs, measured.traces, strict=True):
        expected = torch.stack([h.grad for h in row if h.grad is not None]).flatten(1).norm(dim=1)
        np.testing.assert_allclose(trace.steps["gradient"], expected, rtol=1e-10)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "nn.LSTM": lambda: nn.LSTM(I, H, 2, dtype=torch.float64),
    "both directions": lambda: nn.LSTM(I, H, 2, bidirectional=True, dtype=torch.float64),
    "projected": lambda: nn.LSTM(I, H, 2, proj_size=2, bidirectional=True, dtype=torch.float64),
    "batch first, no bias": lambda: nn.LSTM(I, H, 2, batch_first=True, bias=False, dtype=torch.float64),
    "peepholes": lambda: PeepholeLSTM(I, H, 2, bidirectional=True, dtype=torch.float64),
    "peepholes, identity": lambda: PeepholeLSTM(I, H, 2, output_activation="identity", dtype=torch.float64),
    "peepholes, kinks": lambda: PeepholeLSTM(
        I, H, 2, gate_activation="hard_sigmoid", cell_activation="relu", dtype=torch.float64
    ),
    "no peepholes": lambda: PeepholeLSTM(I, H, peepholes=False, batch_first=True, dtype=torch.float64),
}


@pytest.mark.parametrize("name", MODULES)
def test_gradients_beside_autograd(name: str) -> None:
    """Back through time by hand is autograd: what reaches the inputs is the same, in every kind of LSTM."""
    from peephole.init.torch import stacked_cells
    from peephole.inspect.pieces import _gradients, _plain, _sequences, backwards
    from peephole.inspect.unroll import back, unroll
    from peephole.inspect.watch import watch

    torch.manual_seed(1)
    module = MODULES[name]()
    first = getattr(module, "batch_first", False)
    x = noise(B, T, I) if first else noise(T, B, I)
    width = module(x)[0].shape[-1]
    weight = noise(*x.shape[:2], width, seed=4)
    leaf = x.clone().requires_grad_()
    (module(leaf)[0] * weight).sum().backward()
    (call,) = watch(module, x, lambda output: (output[0] * weight).sum())
    with torch.no_grad():
        cells = list(stacked_cells(module))
        plain = _plain(call, cells[0].weight_ih, None)
        seen = list(_sequences(call, cells, plain))
        signals = [unroll(part, "") for part in seen]
        found = _gradients(cells, seen, signals, plain)
        total = torch.zeros_like(seen[0].x)
        for k, cell in enumerate(cells):
            if cell.layer == 0:
                direct = found[k][1]
                assert direct is not None
                units = cell.weight_hh.shape[0] // 4
                at_x = back(seen[k], signals[k], direct, torch.zeros(B, units, dtype=torch.float64))[1]
                total += backwards(at_x, None) if k else at_x
    assert leaf.grad is not None
    torch.testing.assert_close(total.transpose(0, 1) if first else total, leaf.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("packed", [False, True], ids=["whole", "packed"])
def test_var_h_is_that_of_the_outputs(name: str, packed: bool) -> None:
    """Var(h) of the last layer is that of what the module puts out, each direction in its own time, packed too."""
    torch.manual_seed(1)
    module = MODULES[name]()
    lengths = [4, 7, 7, 2, 5] if packed else [T] * B
    parts = [noise(length, I, seed=k) for k, length in enumerate(lengths)]
    first = getattr(module, "batch_first", False)
    batch: Any = pack_sequence(parts, enforce_sorted=False) if packed else torch.stack(parts, 0 if first else 1)
    measured = inspect.measure(module, batch, inspect.probe)
    singly = [module(part.unsqueeze(0 if first else 1))[0].squeeze(0 if first else 1) for part in parts]
    directions = 2 if getattr(module, "bidirectional", False) else 1
    for k, trace in enumerate(measured.traces[-directions:]):
        own = [y.chunk(directions, -1)[k].detach() for y in singly]
        own = [y.flip(0) if k else y for y in own]
        for t in range(T):
            running = torch.stack([y[t] for y in own if len(y) > t])
            assert trace.steps["var_h"][t] == pytest.approx(float(running.var(correction=0)), rel=1e-10)
            assert trace.steps["between_h"][t] == pytest.approx(float(running.var(0, correction=0).mean()), rel=1e-9)


def test_packed_gradients() -> None:
    """In a packed batch the gradient at each step is that of its sequences run one by one."""
    torch.manual_seed(1)
    lstm = nn.LSTM(I, H, 2, bidirectional=True, dtype=torch.float64)
    parts = [noise(length, I, seed=k) for k, length in enumerate([4, 7, 2])]
    packed = inspect.measure(lstm, pack_sequence(parts, enforce_sorted=False), lambda o: o[1][0].sum() + o[1][1].sum())
    squares = np.zeros((4, T))
    for part in parts:
        single = inspect.measure(lstm, part.unsqueeze(1), lambda o: o[1][0].sum() + o[1][1].sum())
        for k, trace in enumerate(single.traces):
            squares[k, : len(part)] += trace.steps["gradient"] ** 2
    for k, trace in enumerate(packed.traces):
        np.testing.assert_allclose(trace.steps["gradient"], np.sqrt(squares[k]), rtol=1e-10)


class Loop(nn.Module):
    """A model that steps a cell itself, as decoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(I, H, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs by step."""
        h = c = x.new_zeros(x.shape[1], H)
        outputs = []
        for step in x:
            h, c = self.cell(step, (h, c))
            outputs.append(h)
        return torch.stack(outputs)


def test_a_cell_in_a_loop() -> None:
    """nn.LSTMCell stepped by a model is one run, with the figures of the nn.LSTM of the same weights."""
    torch.manual_seed(0)
    loop, lstm = Loop(), nn.LSTM(I, H, dtype=torch.float64)
    lstm.load_state_dict({f"{name}_l0": value for name, value in loop.cell.state_dict().items()})
    x, weight = noise(T, B, I), noise(T, B, H, seed=1)
    (by_cell,) = inspect.measure(loop, x, lambda y: (y * weight).sum()).traces
    (whole,) = inspect.measure(lstm, x, lambda output: (output[0] * weight).sum()).traces
    assert (by_cell.module, by_cell.run, by_cell.length) == ("cell", 0, T)
    for name, values in by_cell.steps.items():
        np.testing.assert_allclose(values, whole.steps[name], rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_sequence_in_two_calls() -> None:
    """A call that is handed the state of the one before goes on with its run; one without state begins another."""
    torch.manual_seed(0)

    class Halves(nn.Module):
        def __init__(self, hand_on: bool) -> None:
            super().__init__()
            self.lstm, self.hand_on = nn.LSTM(I, H, 2, dtype=torch.float64), hand_on

        def forward(self, x: Tensor) -> Tensor:
            y, state = self.lstm(x[:3])
            z, _ = self.lstm(x[3:], state if self.hand_on else None)
            return torch.cat([y, z])

    x, weight = noise(T, B, I), noise(T, B, H, seed=1)
    model = Halves(True)
    halves = inspect.measure(model, x, lambda y: (y * weight).sum())
    whole = inspect.measure(model.lstm, x, lambda output: (output[0] * weight).sum())
    for one, other in zip(halves.traces, whole.traces, strict=True):
        for name in one.steps.keys() - {"direct"}:
            np.testing.assert_allclose(one.steps[name], other.steps[name], rtol=1e-9, atol=1e-12)
    model.hand_on = False
    assert [trace.run for trace in inspect.measure(model, x).traces] == [0, 0, 1, 1]


class Learned(nn.Module):
    """Codes two sequences, each from the same learned state, by a cell or by a stacked LSTM."""

    def __init__(self, cell: bool) -> None:
        super().__init__()
        self.cell = cell
        self.lstm: nn.Module = nn.LSTMCell(I, H) if cell else nn.LSTM(I, H, 2)
        self.h, self.c = (nn.Parameter(noise(2, 1, H, seed=k).float()) for k in (1, 2))

    def code(self, x: Tensor) -> Any:
        """The last h."""
        state = self.h.expand(-1, x.shape[1], -1), self.c.expand(-1, x.shape[1], -1)
        if not self.cell:
            return self.lstm(x, state)[1][0]
        h, c = state[0][0], state[1][0]
        for step in x:
            h, c = self.lstm(step, (nn.functional.layer_norm(h, (H,)), c))
        return h

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """How the codes differ."""
        difference: Tensor = self.code(one) - self.code(other)
        return difference


@pytest.mark.parametrize("cell", [True, False])
def test_two_sequences_from_a_learned_state(cell: bool) -> None:
    """Unrelated sequences are two runs though both start from a state, of two layers and two steps too."""
    x, lengths = noise(T, B, I).float(), (3, 4) if cell else (2, 2)
    batch = x[: lengths[0]], x[-lengths[1] :]
    found = inspect.measure(Learned(cell), batch, lambda y: y.square().mean()).traces
    layers = 1 if cell else 2
    assert [trace.run for trace in found] == [0] * layers + [1] * layers
    assert [trace.length for trace in found] == [lengths[0]] * layers + [lengths[1]] * layers


class Model(nn.Module):
    """Dropout, batch norm, two LSTMs, one of them without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(I), nn.Dropout(0.5)
        self.encoder = nn.LSTM(I, H, 2, dropout=0.5)
        self.decoder = PeepholeLSTM(H, H, bidirectional=True)
        self.head = nn.Linear(2 * H, 1)
        for parameter in self.encoder.parameters():
            parameter.requires_grad_(False)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """One number a step; adds in place to what its LSTM put out."""
        x = self.drop(self.norm(x.flatten(0, 1)).view_as(x))
        y, _ = self.encoder(x)
        y *= scale
        out: Tensor = self.head(self.decoder(y)[0])
        return out


def test_what_a_model_writes_into() -> None:
    """Outputs that the model changes in place are measured as they came out, with a loss or without."""
    torch.manual_seed(0)
    model, x = Model().eval(), noise(T, B, I).float()
    with_loss = inspect.measure(model, {"x": x, "scale": 2.0}, lambda y: y.square().mean())
    without = inspect.measure(model, {"x": x, "scale": 2.0})
    for one, other in zip(with_loss.traces, without.traces, strict=True):
        np.testing.assert_allclose(one.steps["var_h"], other.steps["var_h"], rtol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_changes(training: bool) -> None:
    """Weights, gradients, buffers, modes, dropout, hooks and the random state are as before."""
    torch.manual_seed(0)
    model = Model().train(training)
    model.decoder.eval()
    for parameter in model.head.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = copy.deepcopy(model.state_dict())
    modes, random = [part.training for part in model.modules()], torch.get_rng_state()
    measured = inspect.measure(model, {"x": noise(T, B, I).float(), "scale": 2.0}, lambda y: y.square().mean())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [part.training for part in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert model.encoder.dropout == 0.5
    assert all(not part._forward_hooks for part in model.modules())
    grads = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert grads == {"head.weight", "head.bias"}
    assert [(trace.module, trace.layer, trace.direction) for trace in measured.traces] == [
        ("encoder", 0, "forward"), ("encoder", 1, "forward"), ("decoder", 0, "forward"), ("decoder", 0, "reverse"),
    ]  # fmt: skip
    assert all(trace.steps["gradient"].all() for trace in measured.traces)


class Checkpointed(nn.Module):
    """Its LSTM runs once more on the way back."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.lstm, self.head, self.how = nn.LSTM(I, H, 2), nn.Linear(H, 1), how

    def whole(self, x: Tensor) -> Tensor:
        """The model without checkpoints."""
        y: Tensor = self.head(torch.tanh(self.lstm(x)[0])).square()
        return y

    def forward(self, x: Tensor) -> Tensor:
        """One number a step."""
        if self.how == "plain":
            return self.whole(x)
        y: Tensor = checkpoint(self.whole, x, use_reentrant=self.how == "reentrant")
        return y


def test_checkpointed_activations() -> None:
    """Calls that checkpointing repeats count once, with the gradients of the plain model; the old kind is refused."""
    torch.manual_seed(0)
    model, x = Checkpointed("checkpointed"), noise(T, B, I).float().requires_grad_()
    found = inspect.measure(model, x, lambda y: y.square().mean())
    model.how = "plain"
    for one, other in zip(found.traces, inspect.measure(model, x, lambda y: y.square().mean()).traces, strict=True):
        assert one.name == other.name
        for name in one.steps:
            np.testing.assert_allclose(one.steps[name], other.steps[name], rtol=1e-5, atol=1e-9)
    model.how = "reentrant"
    with pytest.raises(InspectError, match="or checkpointed without use_reentrant=False"):
        inspect.measure(model, x, lambda y: y.square().mean())


class Stateful(nn.Module):
    """An LSTM that goes on where its last call ended, and keeps what it saw."""

    h: Tensor
    c: Tensor

    def __init__(self, where: str) -> None:
        super().__init__()
        self.lstm, self.where, self.seen = nn.LSTM(I, H), where, [torch.zeros(())]
        self.calls: dict[str, Tensor] = {}
        state = torch.zeros(1, B, H), torch.zeros(1, B, H)
        if where == "buffer":
            self.register_buffer("h", state[0])
            self.register_buffer("c", state[1])
        self.state: tuple[Tensor, Tensor] | None = None if where == "late" else state

    def forward(self, x: Tensor) -> Tensor:
        """Outputs from the state that is kept."""
        state = (self.h, self.c) if self.where == "buffer" else self.state
        y, (h, c) = self.lstm(x, state)
        self.seen.append(h.detach())
        self.seen[0] += 1
        self.calls[f"call {len(self.calls)}"] = h.detach()
        self.cache = c
        if self.where == "buffer":
            self.h, self.c = h.detach(), c.detach()
        elif self.where == "in place" and self.state is not None:
            for kept, new in zip(self.state, (h, c), strict=True):
                kept.copy_(new.detach())
        else:
            self.state = h.detach(), c.detach()
        out: Tensor = y
        return out


@pytest.mark.parametrize("where", ["attribute", "buffer", "in place", "late"])
@pytest.mark.parametrize("loss", [None, lambda y: y.square().mean()])
def test_a_model_that_keeps_its_state(where: str, loss: Any) -> None:
    """State in an attribute or a buffer, put in anew or written in place, is as if nothing had been measured."""
    model, x = Stateful(where), noise(T, B, I).float()

    def state() -> list[Tensor]:
        kept = *model.buffers(), *(model.state or ()), *model.seen, *model.calls.values()
        return [tensor.clone() for tensor in kept]

    for called in (False, True):
        before = state()
        inspect.measure(model, x, loss)
        assert len(state()) == len(before)
        assert all(map(torch.equal, state(), before))
        assert hasattr(model, "cache") == called
        model(x)
        assert not all(map(torch.equal, state(), before))


def test_a_training_with_state_is_not_disturbed(tmp_path: Path) -> None:
    """Losses with a recorder are bit for bit those without, though the model carries its state from call to call."""

    def losses(recorded: bool) -> list[float]:
        torch.manual_seed(0)
        model = Stateful("attribute")
        recorder = inspect.Recorder(model, every=1, to=tmp_path) if recorded else None
        optimiser, found = torch.optim.SGD(model.parameters(), 0.1), []
        for step in range(3):
            x = noise(T, B, I, seed=step).float()
            optimiser.zero_grad()
            value = model(x).square().mean()
            value.backward()
            optimiser.step()
            found.append(value.item())
            if recorder is not None:
                recorder.step(x, lambda y: y.square().mean())
        return found

    assert losses(True) == losses(False)


def test_nothing_changes_when_the_loss_fails() -> None:
    """An error in the loss leaves no hook behind and the mode as it was."""
    model = Model()

    def fails(output: Any) -> Tensor:
        raise RuntimeError("no target")

    with pytest.raises(RuntimeError, match="no target"):
        inspect.measure(model, noise(T, B, I).float(), fails)
    assert model.training
    assert model.encoder.training
    assert all(not part._forward_hooks for part in model.modules())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loss", [None, inspect.probe])
def test_chaos_is_no_disagreement(dtype: torch.dtype, loss: Any) -> None:
    """Weights thirty times too large amplify every rounding error, and are measured all the same."""
    torch.manual_seed(0)
    for module in (nn.LSTM(8, 32, 2, dtype=dtype), PeepholeLSTM(8, 32, 2, dtype=dtype)):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(30)
        with torch.set_grad_enabled(loss is not None):  # torch's kernels for the two round differently
            y, _ = module(noise(100, 4, 8).to(dtype))
        trace = inspect.measure(module, noise(100, 4, 8).to(dtype), loss).traces[-1]
        expected = y.detach().double().var((1, 2), correction=0)
        np.testing.assert_allclose(trace.steps["var_h"], expected, rtol=1e-5)


def test_another_forward_is_noticed() -> None:
    """A module that is an nn.LSTM by name but not by what it does is an error, with the distance."""

    class Louder(nn.LSTM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            y, state = super().forward(*args, **kwargs)
            return 1.001 * y, state

    with pytest.raises(InspectError, match=r"the LSTM, layer 0: what its weights make differs from its outputs by"):
        inspect.measure(Louder(I, H), noise(T, B, I).float())


def test_another_cell_state_is_noticed() -> None:
    """So is one whose last cell state is not that of its weights, in a lower layer too."""

    class Shifted(nn.LSTM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            y, (h, c) = super().forward(*args, **kwargs)
            return y, (h, c + torch.tensor([1e-3, 0.0])[:, None, None])

    with pytest.raises(InspectError, match=r"the LSTM, layer 0: what its weights make differs .* by 0\.001"):
        inspect.measure(Shifted(I, H, 2), noise(T, B, I).float())


def test_some_sequences() -> None:
    """`sequences` gives the figures of the first so many, under the loss of all."""
    lstm, x = nn.LSTM(I, H, 2, dtype=torch.float64), noise(T, B, I)
    few = inspect.measure(lstm, x, lambda output: output[0].sum(), sequences=2)
    same = inspect.measure(lstm, x[:, :2], lambda output: output[0].sum())
    for one, other in zip(few.traces, same.traces, strict=True):
        assert one.sequences == 2
        for name in one.steps:
            np.testing.assert_allclose(one.steps[name], other.steps[name], rtol=1e-10, atol=1e-13)


def test_unbatched_and_single() -> None:
    """One sequence without a batch axis, and an nn.LSTMCell called once, are measured."""
    assert inspect.measure(nn.LSTM(I, H), noise(T, I).float()).traces[0].sequences == 1
    assert inspect.measure(nn.LSTMCell(I, H), noise(B, I).float(), inspect.probe).traces[0].length == 1
    assert inspect.measure(nn.LSTMCell(I, H), noise(I).float()).traces[0].sequences == 1


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: inspect.measure(nn.GRU(I, H), noise(T, B, I).float()), TheoryError, "no LSTM in GRU"),
    (lambda: inspect.measure(nn.LSTM(I, H), noise(T, B, I).float() / 0), InspectError, "infinity|NaN in the batch"),
    (
        lambda: inspect.measure(nn.LSTM(I, H), noise(T, B, I).float(), lambda o: o[0]),
        InspectError,
        "must be one number",
    ),
    (lambda: inspect.measure(nn.LSTM(I, H), noise(T, B, I).float(), lambda o: o), InspectError, "it is a tuple"),
    (
        lambda: inspect.measure(nn.LSTM(I, H), noise(T, B, I).float(), lambda o: torch.ones(())),
        InspectError,
        "detached",
    ),
    (lambda: inspect.measure(nn.LSTM(I, H), noise(T, B, I).float(), sequences=0), TheoryError, "sequences = 0"),
    (lambda: inspect.probe("x"), InspectError, "give a loss"),
    (
        lambda: inspect.measure(nn.LSTM(I, H), (noise(T, B, I).float(), (torch.zeros(1, B, H) / 0,) * 2)),
        InspectError,
        r"NaN in the batch, first at \[0, 0, 0\] of shape \(1, 5, 4\)",
    ),
    (
        lambda: inspect.measure(nn.LSTM(I, H), noise(T, B, I + 1).float()),
        InspectError,
        r"the LSTM is given 4 features \(shape \(7, 5, 4\)\); it takes 3",
    ),
    (lambda: inspect.measure(nn.LSTMCell(I, H), noise(B, I + 1).float()), InspectError, "it takes 3"),
    (lambda: inspect.measure(nn.LSTM(I, H), noise(0, B, I).float()), InspectError, r"empty batch, of shape \(0, 5, 3"),
    (lambda: inspect.measure(nn.LSTM(I, H), noise(T, 0, I).float()), InspectError, r"empty batch, of shape \(7, 0, 3"),
    (lambda: inspect.measure(nn.LSTM(I, H), np.zeros((T, B, I))), InspectError, "the LSTM is given a ndarray"),
]


@pytest.mark.parametrize(("ask", "kind", "said"), REFUSED)
def test_refusals(ask: Callable[[], Any], kind: type[Exception], said: str) -> None:
    """What cannot be measured is refused with the reason."""
    with pytest.raises(kind, match=said):
        ask()


def test_a_lost_model_is_told() -> None:
    """NaN among the weights is an error that names the parameter and counts."""
    lstm = nn.LSTM(I, H)
    with torch.no_grad():
        lstm.get_parameter("weight_hh_l0")[0, :2] = torch.nan
    with pytest.raises(InspectError, match="weight_hh_l0 holds 2 of 64 values that are NaN"):
        inspect.measure(lstm, noise(T, B, I).float())


def test_an_lstm_that_is_not_called() -> None:
    """A model that has an LSTM and does not use it is an error."""

    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(I, H)

        def forward(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(InspectError, match="without calling its LSTM lstm"):
        inspect.measure(Idle(), noise(T, B, I).float())
    with pytest.raises(InspectError, match="without calling its LSTM lstm"):
        inspect.measure(Idle(), noise(T, B, I).float().requires_grad_(), lambda y: y.sum())


def test_frames() -> None:
    """The frame has a row for each layer, direction and step, the summary one for each, the histograms shares of 1."""
    measured = inspect.measure(nn.LSTM(I, H, 2, bidirectional=True), noise(T, B, I).float(), inspect.probe)
    assert isinstance(measured, Measured)
    frame, summary, histograms = measured.frame, measured.summary, measured.histograms
    assert len(frame) == 4 * T
    assert list(frame["back"][:T]) == list(range(T - 1, -1, -1))
    assert len(summary) == 4
    assert summary["var_h"].tolist() == frame["var_h"][T - 1 :: T].tolist()
    shares = histograms.groupby(["layer", "direction", "gate"])["share"].sum()
    np.testing.assert_allclose(shares, 1.0)
    assert "back" not in inspect.measure(nn.LSTM(I, H), noise(T, B, I).float()).frame
    assert str(measured).count("\n") == 3


def test_text_without_holes() -> None:
    """What cannot be told, of a single step, of a loss that ends early or of an overflow, is left out of the text."""
    lstm, x = nn.LSTM(I, H), noise(T, B, I).float()
    wild = PeepholeLSTM(I, H, output_activation="identity", cell_activation="identity")
    with torch.no_grad():
        for parameter in wild.parameters():
            parameter.mul_(100)
    for measured in (
        inspect.measure(lstm, x[:1], inspect.probe),
        inspect.measure(lstm, x, lambda output: output[0][2].sum()),
        inspect.measure(lstm, x, lambda output: output[0][0].sum()),
        inspect.measure(wild, noise(300, B, I).float(), inspect.probe),
    ):
        assert not re.search(r"\b(nan|inf)\b", str(measured)), str(measured)
    assert "; gradient at step 1 is " in str(inspect.measure(lstm, x, inspect.probe))


def test_a_notebook_shows_it() -> None:
    """`_repr_html_` is a fragment with the sentences, the table and the pictures."""
    shown = inspect.measure(nn.LSTM(I, H, 2), torch.zeros(T, B, I), inspect.probe)._repr_html_()
    assert shown.count("<svg") == 3
    assert "inputs never vary" in shown
    assert "layer 1" in shown


def test_decay_is_the_factor() -> None:
    """A gradient that halves with each step back has the decay 1/2, steps without any left aside."""
    (trace,) = inspect.measure(nn.LSTM(I, H), noise(T, B, I).float(), inspect.probe).traces
    halving = np.power(0.5, np.arange(T)[::-1])
    halves = replace(trace, steps=trace.steps | {"gradient": halving})
    assert halves.decay == pytest.approx(0.5)
    some = replace(trace, steps=trace.steps | {"gradient": np.concatenate([np.zeros(2), halving[2:]])})
    assert some.decay == pytest.approx(0.5)
    none = replace(trace, steps=trace.steps | {"gradient": np.zeros(T)})
    assert np.isnan(none.decay)


def test_pack_padded_order() -> None:
    """A packed batch in sorted order and one that is not give the same figures."""
    lstm, x = nn.LSTM(I, H, 2, dtype=torch.float64), noise(T, B, I)
    lengths = torch.tensor([7, 5, 4, 4, 2])
    order = torch.tensor([3, 0, 4, 1, 2])
    state = noise(2, B, H, seed=1), noise(2, B, H, seed=2)
    one = inspect.measure(lstm, (pack_padded_sequence(x, lengths), state), inspect.probe)
    shuffled = pack_padded_sequence(x[:, order], lengths[order], enforce_sorted=False)
    other = inspect.measure(lstm, (shuffled, tuple(part[:, order] for part in state)), inspect.probe)
    for first, second in zip(one.traces, other.traces, strict=True):
        for name in first.steps:
            np.testing.assert_allclose(first.steps[name], second.steps[name], rtol=1e-9, atol=1e-12)
