"""What holds for a whole process: its threads, its instruction set, and whether there are kernels at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from peephole.nn import kernel
from tests.nn.cases import ISAS, Case, draw, run

THREADS = """
import ctypes, os, threading, torch
from peephole.nn import functional, kernel
torch.set_num_threads(2)
x, w, u = torch.randn(200, 512, 16), torch.randn(128, 16), torch.randn(128, 32)
torch.randn(1 << 22).exp_()  # torch's pool is there from here on

def most_threads():
    running, seen = True, []
    def watch():
        while running:
            seen.append(len(os.listdir("/proc/self/task")))
    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(5):
        functional.peephole_lstm(x, w, u)
    running = False
    watcher.join()
    return max(seen)

idle = len(os.listdir("/proc/self/task"))
print(kernel.shares_threads(), most_threads() - idle, end=" ")
kernel._library().peephole_use_openmp(None)
print(most_threads() - idle)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted as Linux lists them")
def test_no_second_pool() -> None:
    """The kernels run on the threads that torch already has; without its OpenMP others come."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    shares, more, more_without = done.stdout.split()
    assert shares == "True"
    assert int(more) == 1  # the one that watches
    assert int(more_without) > 1


def test_the_instruction_set_is_read_once() -> None:
    """PEEPHOLE_ISA counts as it was when the process started: a tape is read as it was written."""
    program = """
import os, torch
from peephole.nn import functional, kernel
x, w, u = torch.randn(9, 1, 8), torch.randn(128, 8, requires_grad=True), torch.randn(128, 32)
y, _ = functional.peephole_lstm(x, w, u)
os.environ["PEEPHOLE_ISA"] = kernel.instruction_set()[0] + "?"
y.sum().backward()
print(kernel.instruction_set()[0])
"""
    for isa in ISAS:
        environment = os.environ | {"PEEPHOLE_ISA": isa}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        )
        assert done.stdout.strip() == isa


def test_an_unknown_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """PEEPHOLE_ISA with another name is refused with the names that this machine has, each of which serves."""
    monkeypatch.setattr(kernel, "_wish", "nonsense")
    with pytest.raises(kernel.KernelError, match=r"PEEPHOLE_ISA=nonsense.*baseline"):
        run(Case(2, 2, 2, 2), draw(Case(2, 2, 2, 2)))
    for name in kernel.instruction_sets():
        monkeypatch.setattr(kernel, "_wish", name)
        assert kernel.instruction_set()[0] == name


def test_a_missing_library() -> None:
    """Where the kernels are missing "auto" takes the loop, and "fused" says why it cannot."""
    program = """
import torch
from peephole.nn import functional, kernel, loss, operators
kernel._library = lambda: None
x, w, u = torch.randn(3, 2, 1), torch.randn(8, 1), torch.randn(8, 2)
assert not kernel.available() and not kernel.instruction_sets()
functional.peephole_lstm(x, w, u)
try:
    functional.peephole_lstm(x, w, u, backend="fused")
except kernel.KernelError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert "not built" in done.stdout
