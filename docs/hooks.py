"""Turns formulas into MathML while the pages are built, so that no script has to do it in the browser."""

import html
import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', flags=re.DOTALL)


def formula(match: re.Match[str]) -> str:
    """The MathML of one marked formula; one that is not understood stops the build."""
    latex = html.unescape(match["latex"]).strip()
    # The converter knows this environment by its other name only.
    mathml: str = convert(
        latex.replace("{aligned}", "{align*}"), display="block" if match["tag"] == "div" else "inline"
    )
    # What the converter does not know it passes through, as if it were a symbol.
    if "\\" in mathml or "<mi>&</mi>" in mathml:
        raise PluginError(f"formula not understood: {latex}")
    return mathml


def to_mathml(page: str) -> str:
    """Replace each formula that arithmatex has marked."""
    return FORMULA.sub(formula, page)


def on_page_content(html: str, **_: object) -> str:
    """Called by mkdocs for each page once its Markdown has become HTML."""
    return to_mathml(html)
