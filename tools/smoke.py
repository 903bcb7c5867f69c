"""What must hold of an installed wheel; run by tools/smoke.sh from outside the repository.

`python smoke.py loops` is for a wheel that was built without a compiler.
"""

import sys
from importlib.metadata import version
from pathlib import Path

import peephole

home = Path(peephole.__file__).parent
assert "site-packages" in home.parts, home
assert (home / "py.typed").is_file(), "the wheel has lost py.typed"
assert peephole.__version__ == version("peephole")
assert not {"torch", "matplotlib", "typer", "jax", "keras", "onnx"} & sys.modules.keys()

import peephole.theory  # noqa: E402  what peephole itself loads was to be seen first

assert peephole.theory.__all__
assert "torch" not in sys.modules, "the theory has loaded torch"

import torch  # noqa: E402

from peephole.nn import functional, kernel  # noqa: E402

assert not list(home.rglob("csrc")), "the wheel holds the kernels' source"
if sys.argv[1:] == ["loops"]:
    assert not kernel.available()
    assert not list(home.rglob("_kernels*"))
else:
    assert kernel.available(), "the wheel has lost the kernels"
    assert (home / "nn" / "_kernels.so").is_file()
x, weight_ih, weight_hh = torch.randn(5, 3, 2), torch.randn(16, 2), torch.randn(16, 4)
y, _ = functional.peephole_lstm(x, weight_ih, weight_hh)
loop, _ = functional.peephole_lstm(x, weight_ih, weight_hh, backend="reference")
assert torch.allclose(y, loop, atol=1e-5)
