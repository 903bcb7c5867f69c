"""What must hold of an installed wheel; run by tools/smoke.sh from outside the repository."""

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
