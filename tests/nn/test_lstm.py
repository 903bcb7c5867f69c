"""The layer: torch's LSTM at zero peepholes, itself in parts, and what a module must be able to do."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from peephole import PeepholeLSTM
from tests.nn.cases import distance

T, B, I, H = 7, 4, 5, 3
LENGTHS = torch.tensor([2, 7, 1, 5])
BACKENDS = ("fused", "reference")
FORMS = ("time first", "batch first", "unbatched", "packed", "packed from batch first")
compiled_warns = pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")


def drawn(**options: Any) -> PeepholeLSTM:
    """A layer in float64 whose every parameter is drawn, peepholes and bias too."""
    torch.manual_seed(0)
    lstm = PeepholeLSTM(I, H, dtype=torch.float64, **options)
    for parameter in lstm.parameters():
        nn.init.normal_(parameter, std=0.6)
    return lstm


def leaves(form: str, layers: int, both: bool) -> dict[str, Tensor]:
    """Input and initial state of that form."""
    generator = torch.Generator().manual_seed(1)
    batch = () if form == "unbatched" else (B,)
    shape = (B, T, I) if "batch first" in form else (T, *batch, I)
    state = (layers * (1 + both), *batch, H)
    shapes = {"x": shape, "h0": state, "c0": state}
    return {name: torch.randn(s, generator=generator, dtype=torch.float64) for name, s in shapes.items()}


def answer(lstm: nn.Module, form: str, given: dict[str, Tensor], state: bool) -> dict[str, Tensor]:
    """Outputs, states and the gradients of everything under fixed upstream gradients."""
    taken = {name: leaf.clone().requires_grad_() for name, leaf in given.items()}
    x: Any = taken["x"]
    if "packed" in form:
        x = pack_padded_sequence(x, LENGTHS, batch_first="batch first" in form, enforce_sorted=False)
    y, (h, c) = lstm(x, (taken["h0"], taken["c0"])) if state else lstm(x)
    out = {"y": y.data if isinstance(y, PackedSequence) else y, "h": h, "c": c}
    if isinstance(y, PackedSequence):
        out["padded"], _ = pad_packed_sequence(y)
    generator = torch.Generator().manual_seed(2)
    upstream = [torch.randn(o.shape, generator=generator, dtype=o.dtype) for o in out.values()]
    torch.autograd.backward(list(out.values()), upstream)
    found = {name: o.detach() for name, o in out.items()}
    sources = [*taken.items(), *lstm.named_parameters()]
    return found | {f"grad {name}": leaf.grad for name, leaf in sources if leaf.grad is not None}


def farthest(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """The greatest relative distance, name by name; torch's first bias stands for our only one."""
    renamed = {name.replace("bias_ih", "bias"): value for name, value in wanted.items() if "bias_hh" not in name}
    peepholes = {name for name in got if "weight_ph" in name}
    assert got.keys() - peepholes == renamed.keys() - peepholes
    return max(distance(got[name], value) for name, value in renamed.items())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("layers", "both"), list(itertools.product((1, 2, 3), (False, True))))
def test_equals_torch_at_zero_peepholes(layers: int, both: bool, form: str, backend: str) -> None:
    """Outputs, states and every gradient are nn.LSTM's, with and without a state, bias and (zero) peepholes."""
    given = leaves(form, layers, both)
    for state, bias, peepholes in ((False, True, True), (True, True, False), (True, False, True)):
        torch.manual_seed(0)
        own = nn.LSTM(I, H, layers, bias, "batch first" in form, bidirectional=both, dtype=torch.float64)
        lstm = PeepholeLSTM.from_torch(own, peepholes=peepholes)
        lstm.backend = backend
        assert farthest(answer(lstm, form, given, state), answer(own, form, given, state)) < 1e-12


def test_peepholes_make_the_difference() -> None:
    """Control: with one peephole of 0.1 the outputs are no longer nn.LSTM's."""
    own = nn.LSTM(I, H, dtype=torch.float64)
    lstm = PeepholeLSTM.from_torch(own)
    nn.init.constant_(lstm.get_parameter("weight_ph_l0")[:1], 0.1)
    given = leaves("time first", 1, False)
    assert farthest(answer(lstm, "time first", given, True), answer(own, "time first", given, True)) > 1e-4


@pytest.mark.parametrize("form", FORMS)
def test_backends_agree(form: str) -> None:
    """With peepholes, two layers and both directions the kernels and the loop give the same outputs and gradients."""
    fused, loop = (
        drawn(num_layers=2, bidirectional=True, batch_first="batch first" in form, backend=b) for b in BACKENDS
    )
    given = leaves(form, 2, True)
    assert farthest(answer(fused, form, given, True), answer(loop, form, given, True)) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_packed_sequences_equal_each_alone(backend: str) -> None:
    """Each sequence of a packed batch runs within its own length, the reverse direction too, in the given order."""
    lstm = drawn(num_layers=2, bidirectional=True, backend=backend)
    x, h0, c0 = leaves("time first", 2, True).values()
    y, (h, c) = lstm(pack_padded_sequence(x, LENGTHS, enforce_sorted=False), (h0, c0))
    padded, lengths = pad_packed_sequence(y)
    assert torch.equal(lengths, LENGTHS)
    for k, steps in enumerate(LENGTHS.tolist()):
        alone, (h_alone, c_alone) = lstm(x[:steps, k], (h0[:, k], c0[:, k]))
        for got, wanted in ((padded[:steps, k], alone), (h[:, k], h_alone), (c[:, k], c_alone)):
            assert distance(got, wanted) < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sequence_in_two_parts(backend: str) -> None:
    """A sequence split in two with the state carried gives what the whole gives."""
    lstm = drawn(num_layers=2, backend=backend)
    x, h0, c0 = leaves("time first", 2, False).values()
    whole, last = lstm(x, (h0, c0))
    first, carried = lstm(x[:3], (h0, c0))
    second, last_of_parts = lstm(x[3:], carried)
    assert distance(torch.cat([first, second]), whole) < 1e-12
    assert distance(torch.cat(last_of_parts), torch.cat(last)) < 1e-12
    assert distance(lstm(x[3:])[0], second) > 1e-3  # control: the state forgotten


def test_copies_are_the_same_to_the_bit() -> None:
    """deepcopy, pickle, torch.save and state_dict each give a layer with the same options, parameters and outputs."""
    lstm = drawn(num_layers=2, bidirectional=True, output_activation="identity", batch_first=True)
    loaded = PeepholeLSTM(I, H, 2, bidirectional=True, output_activation="identity", batch_first=True).double()
    loaded.load_state_dict(lstm.state_dict())
    file = io.BytesIO()
    torch.save(lstm, file)
    file.seek(0)
    copies = [copy.deepcopy(lstm), pickle.loads(pickle.dumps(lstm)), torch.load(file, weights_only=False), loaded]
    x = leaves("batch first", 2, True)["x"]
    for other in copies:
        assert repr(other) == repr(lstm)
        assert all(torch.equal(a, b) for a, b in zip(lstm.parameters(), other.parameters(), strict=True))
        assert torch.equal(other(x)[0], lstm(x)[0])
    with torch.no_grad():
        lstm.get_parameter("weight_ph_l0").add_(1)
    assert not any(torch.equal(other(x)[0], lstm(x)[0]) for other in copies)


def test_parameters_are_named_as_torch_names_them() -> None:
    """Names and shapes are nn.LSTM's, with one bias and the peepholes; parts left out are not there."""
    shapes = {name: tuple(p.shape) for name, p in PeepholeLSTM(I, H, 2, bidirectional=True).named_parameters()}
    for suffix, inputs in (("l0", I), ("l0_reverse", I), ("l1", 2 * H), ("l1_reverse", 2 * H)):
        assert shapes.pop(f"weight_ih_{suffix}") == (4 * H, inputs)
        assert shapes.pop(f"weight_hh_{suffix}") == (4 * H, H)
        assert shapes.pop(f"weight_ph_{suffix}") == (3 * H,)
        assert shapes.pop(f"bias_{suffix}") == (4 * H,)
    assert not shapes
    assert set(PeepholeLSTM(I, H, bias=False, peepholes=False).state_dict()) == {"weight_ih_l0", "weight_hh_l0"}


def test_dropout_between_layers_in_training() -> None:
    """In training, dropout is nn.LSTM's under the same seed; it spares the last layer, and evaluation altogether."""
    own = nn.LSTM(I, H, 3, dropout=0.5, bidirectional=True, dtype=torch.float64)
    lstm = PeepholeLSTM.from_torch(own)
    x = leaves("time first", 3, True)["x"]
    outputs = {}
    for module in (own, lstm):
        torch.manual_seed(3)
        outputs[module] = module(x)[0]
    assert distance(outputs[lstm], outputs[own]) < 1e-12
    assert (outputs[lstm] != 0).all()
    assert not torch.equal(lstm(x)[0], lstm(x)[0])
    assert distance(lstm.eval()(x)[0], own.eval()(x)[0]) < 1e-12
    assert torch.equal(lstm(x)[0], lstm(x)[0])


def test_repr_says_what_is_not_usual() -> None:
    """The printed layer shows its sizes and each option that is not the default."""
    assert repr(PeepholeLSTM(3, 4)) == "PeepholeLSTM(3, 4)"
    lstm = PeepholeLSTM(3, 4, 2, bias=False, dropout=0.5, peepholes=False, output_activation="relu", init="orthogonal")
    assert repr(lstm) == (
        "PeepholeLSTM(3, 4, num_layers=2, bias=False, dropout=0.5, peepholes=False, "
        "output_activation='relu', init='orthogonal')"
    )


@compiled_warns
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("form", "compiler"), [("time first", "inductor"), *((f, "aot_eager") for f in FORMS[:3])])
def test_compiles_as_one_graph(form: str, compiler: str, backend: str) -> None:
    """`torch.compile(fullgraph=True)` gives the same outputs and gradients, in training and without gradients."""
    torch.compiler.reset()  # what other tests compiled counts against dynamo's limit
    both = compiler != "inductor"
    options: dict[str, Any] = {"bidirectional": both, "num_layers": 1 + both, "batch_first": form == "batch first"}
    lstm = drawn(backend=backend, **options)
    given = leaves(form, 1 + both, both)
    wanted = answer(lstm, form, given, True)
    lstm.zero_grad()
    compiled = torch.compile(lstm, fullgraph=True, backend=compiler)
    got = {name.replace("_orig_mod.", ""): value for name, value in answer(compiled, form, given, True).items()}  # type: ignore[arg-type]
    assert farthest(got, wanted) < 1e-12
    with torch.no_grad():
        assert distance(compiled(given["x"])[0], lstm(given["x"])[0]) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_types(dtype: torch.dtype) -> None:
    """Half precisions take the loop, float32 the kernels: outputs are float64's within its rounding."""
    lstm = drawn(num_layers=2)
    x = leaves("time first", 2, False)["x"]
    wanted = lstm(x)[0]
    moved = copy.deepcopy(lstm).to(dtype)
    y, (h, _) = moved(x.to(dtype))
    assert {y.dtype, h.dtype} == {dtype}
    assert distance(y, wanted) < 10 * torch.finfo(dtype).eps
    y.sum().backward()
    assert moved.get_parameter("weight_ph_l0").grad is not None


def test_moves_and_autocast() -> None:
    """A layer moves to the meta device and runs there; under autocast it answers halves in its own type."""
    y, (h, c) = PeepholeLSTM(I, H, 2).to("meta")(torch.empty(T, B, I, device="meta"))
    assert (y.shape, h.shape, c.shape) == ((T, B, H), (2, B, H), (2, B, H))
    lstm = PeepholeLSTM(I, H)
    x = torch.randn(T, B, I).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(lstm(x)[0], lstm(x.float())[0])
    with torch.device("meta"):
        assert PeepholeLSTM(I, H).get_parameter("bias_l0").device.type == "meta"
