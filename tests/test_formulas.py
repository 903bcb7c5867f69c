"""The hook that turns the pages' formulas into MathML."""

import re
from xml.etree import ElementTree

import pytest
from mkdocs.exceptions import PluginError

from docs.hooks import to_mathml

FORMULAS = [
    r"\operatorname{Var}(h_t) \le 1",
    r"\sigma_c^2 = \frac{2}{\Delta_2} \left( \sqrt{1 + \bar{\kappa}} - 1 \right)",
    r"\begin{aligned} a &= b \\ c &< d \end{aligned}",
    r"\mathbb{E}\left[ o^2 \right] = \sum_{n=1}^{N} \int_{-\infty}^{\infty} f(z)\,\mathrm{d}z",
    r"f(x) = \begin{cases} 1 & x > 0 \\ 0 & \text{else} \end{cases}",
]


@pytest.mark.parametrize("latex", FORMULAS)
@pytest.mark.parametrize("marked", [r'<span class="arithmatex">\({}\)</span>', r'<div class="arithmatex">\[{}\]</div>'])
def test_a_formula_becomes_mathml(latex: str, marked: str) -> None:
    """A marked formula becomes one well-formed math element, and what stands around it stays."""
    escaped = latex.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    page = to_mathml("<p>before " + marked.replace("{}", escaped) + " after</p>")
    found = re.fullmatch(r"<p>before (<math.*</math>) after</p>", page)
    assert found
    ElementTree.fromstring(found[1])


def test_a_formula_that_is_not_understood_stops_the_build() -> None:
    """An unknown command is an error, not a symbol in the page."""
    with pytest.raises(PluginError, match="nonsense"):
        to_mathml(r'<span class="arithmatex">\(\nonsense{x}\)</span>')


def test_code_is_left_alone() -> None:
    """What arithmatex has not marked is no formula."""
    assert to_mathml(r"<code>\(x\)</code>") == r"<code>\(x\)</code>"
