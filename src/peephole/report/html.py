"""What every page of ours is made of: pictures as SVG, templates, files that appear whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).with_name("templates")
MISSING = "–"


def stylesheet() -> str:
    """The one style of all pages."""
    return (TEMPLATES / "report.css").read_text(encoding="utf-8")


def svg(figure: Figure) -> str:
    """The picture as SVG; the same figure gives the same text."""
    from matplotlib import rc_context

    from peephole.report.plots import STYLE

    text = StringIO()
    with rc_context(STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None})
    # A hundredth of a point is enough, and of many curves it is half the file.
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text.getvalue())


def inline(text: str, name: str) -> str:
    """An SVG as part of a page: ids of its own, no size but its box and --own, ink in the page's colour."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="([^"]*)"', r'\1 style="--own: \2"', text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = text.replace("fill: #ffffff", "fill: none").replace("#222222", "currentColor")
    return re.sub(r"\s*\n\s*", "\n", text)


def publish(files: Mapping[Path, bytes]) -> None:
    """All whole, or none: written beside where they belong, then renamed."""
    parts = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in files}
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            parts[path].write_bytes(content)
        for path, part in parts.items():
            part.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(error.filename or path)) from error
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def environment() -> Environment:
    """The templates, ready for a page's own filters."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
    except ImportError as error:
        raise ImportError("the report needs Jinja2: pip install 'peephole[report]'") from error
    return Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=select_autoescape(enabled_extensions=("html.j2",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
