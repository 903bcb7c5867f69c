"""The command line: `peephole solve`, `peephole check`."""

from peephole.cli.app import app, main

__all__ = ["app", "main"]
