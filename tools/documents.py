"""Executes the code blocks of the Markdown pages; what a block may hold is told in CONTRIBUTING.md."""

import contextlib
import doctest
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sybil import Document, Example, Region, Sybil
from sybil.evaluators.doctest import NUMBER, DocTestEvaluator, OutputChecker
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.abstract.doctest import DocTestStringParser
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

INERT = {"text", "bibtex", "toml", "json", "yaml"}  # languages that nothing here could execute
SHELL = ("make ", "pip install ", "git ")  # .ci/run itself does these; a test must not do them again
COMPARISON = doctest.ELLIPSIS | NUMBER  # NUMBER: as many digits as the page shows
MINUTES = 5

_lexer = RawFencedCodeBlockLexer(re.compile(r"[ \t]*(?P<language>[^\s{]*)(?P<more>[^\n]*)$\n", re.MULTILINE))
_doctests = DocTestStringParser(DocTestEvaluator(COMPARISON))
_checker = OutputChecker()


def _check_shell(example: Example) -> None:
    for line in str(example.parsed).splitlines():
        assert not line.strip() or line.startswith(SHELL), f"a sh block may hold {SHELL} only, not {line!r}"


def _refuse(example: Example) -> None:
    language = example.region.lexemes["language"]
    raise AssertionError(f"a block in {language!r}: nothing executes it, and it is none of {sorted(INERT)}")


def commands(source: str) -> Iterable[tuple[str, int, str]]:
    """Each command of a console block, with the exit status and the output that are expected of it."""
    if not source.startswith("$ "):
        raise ValueError("a console block begins with '$ '")
    for part in re.split(r"^\$ ", source.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        status = re.match(r"# exit status (\d+)\n?", output)
        yield command, int(status[1]) if status else 0, output[status.end() :] if status else output


def _run_console(example: Example) -> None:
    # The commands of the environment under test come first; plain text, at one width on every machine.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    plain = {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    for command, status, output in commands(str(example.parsed)):
        said, stages = "", [shlex.split(stage) for stage in command.split(" | ")]
        for stage in stages:
            assert stage[0] == "peephole", f"a console block runs peephole, not {stage[0]!r}"
            done = subprocess.run(
                stage,
                env=os.environ | plain,
                input=said,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if stage is stages[-1] else None,
                text=True,
                timeout=60 * MINUTES,
            )
            said = done.stdout
        assert done.returncode == status, f"exit status {done.returncode}, not {status}:\n$ {command}\n{said}"
        if output.strip():
            # Tables are padded with blanks that a page need not hold.
            got = "\n".join(line.rstrip() for line in said.rstrip().splitlines()) + "\n"
            expected = doctest.Example(command, output.rstrip() + "\n")
            if not _checker.check_output(expected.want, got, COMPARISON):
                raise AssertionError(_checker.output_difference(expected, got, COMPARISON))


EVALUATORS: dict[str, Callable[[Example], None]] = {
    "python": PythonEvaluator(),
    "console": _run_console,
    "sh": _check_shell,
}


def parse(document: Document) -> Iterable[Region]:
    """Every fenced block of a page that is to be executed, and every one that should not be there."""
    for region in _lexer(document):
        language, source = region.lexemes["language"], region.lexemes["source"]
        if language == "pycon":
            for statement in _doctests(source, document.path):
                statement.adjust(region, source)
                yield statement
        elif language not in INERT:
            region.parsed, region.evaluator = source, EVALUATORS.get(language, _refuse)
            yield region


def _enter(namespace: dict[str, Any]) -> None:
    """Each page has a folder of its own, so that the files it writes do not litter the repository."""
    stack = namespace["_stack"] = contextlib.ExitStack()
    stack.enter_context(contextlib.chdir(stack.enter_context(tempfile.TemporaryDirectory())))


def _leave(namespace: dict[str, Any]) -> None:
    namespace["_stack"].close()


ROOT = str(Path(__file__).resolve().parents[1])
pages = Sybil(parsers=[parse], patterns=["*.md"], path=ROOT, setup=_enter, teardown=_leave)
