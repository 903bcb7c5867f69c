"""The report as a page, as Markdown and as files: findings in, text out. What it says is decided elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from peephole.report.html import MISSING, environment, inline, publish, stylesheet, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = {"losses": "losses.svg", "scores": "scores.svg", "runs": "runs.svg"}


class Results(Protocol):
    """What the page needs of findings; what the templates read of a data set stands in them."""

    @property
    def datasets(self) -> Sequence[Any]:
        """One a data set, with name, rows, peers, comparisons, claims, sentence, notes."""

    @property
    def summary(self) -> Sequence[str]:
        """The outcome in plain words."""

    @property
    def family(self) -> int:
        """How many comparisons were corrected together."""

    @property
    def made(self) -> Mapping[str, Sequence[str]]:
        """Versions, kernels, machines and dates of the records, each with the number of runs."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Command, versions, data hashes, date."""

    @property
    def losses(self) -> Mapping[str, Mapping[str, NDArray[np.float64]]]:
        """Training loss (seeds, epochs + 1) by data set and method."""

    @property
    def scores(self) -> Mapping[str, Mapping[str, NDArray[np.float64]]]:
        """Final test error (seeds) by data set and method."""

    @property
    def columns(self) -> Mapping[str, list[Any]]:
        """The records, column by column."""


def write(results: Results, out: Path) -> Path:
    """Write `report.html`, `table.md`, `records.parquet` and the figures to the folder; returns the page's path.

    All of them appear, each whole, or none; the same results give the same bytes.
    """
    svgs = {name: svg(figure) for name, figure in draw(results).items()}
    page = out / "report.html"
    texts = {FIGURES[name]: text for name, text in svgs.items()}
    texts |= {"table.md": _render("table.md.j2", results), page.name: html(results, svgs)}
    files = {out / name: text.encode() for name, text in texts.items()}
    publish(files | {out / "records.parquet": parquet(results.columns)})
    return page


def write_markdown(results: Results, page: Path) -> None:
    """Write what reproduces and what does not as a page of documentation, its figures in `figures/` beside it."""
    names = {name: f"{page.stem}-{file}" for name, file in FIGURES.items()}
    files = {page.parent / "figures" / names[name]: svg(figure) for name, figure in draw(results).items()}
    publish({path: text.encode() for path, text in {**files, page: markdown(results, names)}.items()})


def markdown(results: Results, figures: Mapping[str, str]) -> str:
    """What reproduces and what does not, as a page; `figures` names the files in `figures/` beside it."""
    return _render("reproduction.md.j2", results, figures=figures)


def html(results: Results, svgs: Mapping[str, str]) -> str:
    """The page: one file that needs nothing from outside."""
    inlined = {name: inline(text, name) for name, text in svgs.items()}
    return _render("report.html.j2", results, svgs=inlined, files=FIGURES, style=stylesheet())


def draw(results: Results) -> dict[str, Figure]:
    """The figures of the report by name."""
    from peephole.report import curves

    paper = {d.name: {row.method: row.paper for row in d.rows if row.paper is not None} for d in results.datasets}
    peers = {d.name: d.peers for d in results.datasets}
    return {
        "losses": curves.draw_losses(results.losses),
        "scores": curves.draw_scores(results.scores, paper, peers),
        "runs": curves.draw_runs(results.losses, {d.name: d.stuck_above for d in results.datasets}),
    }


def parquet(columns: Mapping[str, list[Any]]) -> bytes:
    """The records as Parquet, a row a record, curves as lists."""
    try:
        import pyarrow
        from pyarrow.parquet import write_table
    except ImportError as error:
        raise ImportError("records.parquet needs pyarrow: pip install 'peephole[report]'") from error
    sink = BytesIO()
    write_table(pyarrow.table(dict(columns)), sink)
    return sink.getvalue()


def _render(template: str, results: Results, **more: Any) -> str:
    made = environment()
    made.filters.update({f.__name__: f for f in (mse, epoch, printed, change, factor, signed, chance, count)})
    made.filters.update(method=title, colour=colour)
    methods = list(dict.fromkeys(row.method for d in results.datasets for row in d.rows))
    peers = list(dict.fromkeys(peer for d in results.datasets for peer in d.peers))
    each = sorted({row.seeds for d in results.datasets for row in d.rows})
    seeds = (
        f"{each[0]} seed{'s' * (each[0] != 1)}"
        if len(each) == 1
        else f"{each[0]} to {each[-1]} seeds"
        if each
        else "no seeds"
    )
    text = made.get_template(template).render(r=results, methods=methods, peers=peers, seeds=seeds, **more)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def title(method: str) -> str:
    """A method's name as the paper prints it."""
    return method.replace("-", " ").capitalize()


def colour(method: str, methods: Sequence[str]) -> str:
    """The method's colour in the figures."""
    from peephole.report.curves import look

    return look(method, methods)[0]


def mse(value: float | None) -> str:
    """An error with three significant digits."""
    if value is None:
        return MISSING
    if not np.isfinite(value):
        return "∞"
    return f"{value:#.3g}".rstrip(".") if abs(value) < 999.5 else f"{value:.0f}"


def epoch(value: float) -> str:
    """An epoch, if there was one."""
    return f"{value:.0f}" if np.isfinite(value) else "never"


def printed(value: float | None) -> str:
    """A number of the paper's, with its three decimals."""
    return MISSING if value is None else f"{value:.3f}"


def factor(distance: float) -> str:
    """A mean absolute log ratio as a factor."""
    return f"{np.exp(distance):.2f}" if np.isfinite(distance) else "∞"


def signed(value: float) -> str:
    """Two decimals with a sign."""
    return f"{value:+.2f}".replace("-", "−") if round(value, 2) else "0.00"


def change(log_ratio: float) -> str:
    """A log ratio as per cent of change, as a factor where it is large."""
    if np.isnan(log_ratio):
        return MISSING
    if np.isinf(log_ratio):
        return "∞" if log_ratio > 0 else "−100%"
    ratio = float(np.exp(log_ratio))
    if ratio >= 3:
        return f"×{ratio:.3g}"
    per_cent = f"{100 * (ratio - 1):+.1f}%"
    return "0.0%" if per_cent in ("+0.0%", "-0.0%") else per_cent.replace("-", "−")


def chance(p: float) -> str:
    """A p with what digits matter."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def count(some: int, total: int) -> str:
    """So many of all, and nothing said where there are none."""
    return f"{some} of {total}" if some else "0"
