"""The report as files: whole, self-contained, the same bytes."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from peephole.experiments import claims
from peephole.experiments.findings import Findings, gather
from peephole.experiments.jobs import Job
from peephole.report import html, page

METHODS = [*claims.PROPOSED, *claims.BASELINES]
FILES = {"report.html", "table.md", "records.parquet", "losses.svg", "runs.svg", "scores.svg"}


def results(*, evil: str = "", diverged: bool = True) -> Findings:
    """Two data sets, one of them made up, a diverged run, peers and provenance."""
    rng = np.random.default_rng(2)
    records = []
    for name in (f"FordA{evil}", "synthetic cohort"):
        for method in METHODS:
            for seed in range(5):
                curve: list[float | None] = list(np.exp(-np.arange(9) + rng.normal(0, 0.2)))
                lost = diverged and (method, seed) == ("normalized", 3)
                curve = [*curve[:4], *[None] * 5] if lost else curve
                job = {"dataset": name, "data": "ab", "method": method, "seed": seed, "epochs": 8}
                scores = [curve[k] for k in (0, 2, 8)]
                final = dict.fromkeys(("train", "validation", "test"), curve[-1])
                records.append(
                    {"job": job, "key": f"{name}{method}{seed}", "train": curve, "marks": [0, 2, 8], "test": scores}
                    | {"validation": scores, "final": final, "diverged": 4 if lost else -1}
                    | {"provenance": {"seconds": 1.5}}
                )
    return gather(
        records,
        paper_table={m: {f"FordA{evil}": 0.0375} for m in METHODS},
        peers={f"FordA{evil}": {"persistence": 0.0968, "AR(2)": 0.00671}},
        provenance={
            "command": f"peephole reproduce {evil}",
            "date": "2026-11-19",
            "versions": {"torch": "2.13.0"},
            "data": {"FordA": {"source": "a package", "sha256": "cf3d88aa"}},
        },
    )


class Outline(HTMLParser):
    """Tags that are open, every address and every id."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.targets: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note its addresses."""
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        found = [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "srcset")]
        self.targets |= {value[1:] for value in found if value.startswith("#")}
        self.targets |= {t for _, value in attrs for t in re.findall(r"url\(#([^)]*)\)", value or "")}
        self.addresses += [value for value in found if not value.startswith("#")]

    def handle_endtag(self, tag: str) -> None:
        """Close what was opened last."""
        assert self.open.pop() == tag


def outline(text: str) -> Outline:
    """What the page is made of; tags must nest."""
    parser = Outline()
    parser.feed(text)
    assert parser.open == []
    return parser


def test_files(tmp_path: Path) -> None:
    """All files are written, nothing else is left, the page's path comes back, and a second time replaces them."""
    out = tmp_path / "new" / "folder"
    assert page.write(results(), out) == out / "report.html"
    assert {path.name for path in out.iterdir()} == FILES
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    page.write(results(), out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    page.write(results(diverged=False), out)
    assert all(path.read_bytes() != before[path.name] for path in out.iterdir())


def test_self_contained(tmp_path: Path) -> None:
    """The page asks for nothing from outside, runs no script, and its links lead to the files beside it."""
    found = outline(page.write(results(), tmp_path).read_text(encoding="utf-8"))
    assert set(found.addresses) <= FILES
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    assert found.tags.count("svg") == 3
    assert "@import" not in html.stylesheet()


def test_ids_are_its_own(tmp_path: Path) -> None:
    """No id is there twice though three pictures share the page, and what refers to an id finds it."""
    found = outline(page.write(results(), tmp_path).read_text(encoding="utf-8"))
    assert len(found.ids) == len(set(found.ids))
    assert found.targets <= set(found.ids)
    assert found.targets


def test_protocol_is_what_is_done() -> None:
    """What the page says of the protocol are the defaults of a job, and of which runs its records are."""
    job = Job("Crop", "", "orthogonal", 0, 1)
    assert (job.rate, job.momentum, job.decay, job.share) == (0.1, 0.9, 1e-4, 0.85)
    assert (job.fill, job.loss_weight, job.patience) == ("zero", "visit", None)
    text = page.markdown(results(), page.FIGURES)
    assert "v = 0.9 v + g, then w = w − 0.1 v" in text
    assert "1e-4 w is added" in text
    assert "versions of the runs (how many): unknown (60)" in text


def test_one_method_and_data_set() -> None:
    """The page counts: one way to initialise, one seed."""
    r = results(diverged=False)
    one = gather(r.records[:1], paper_table={})
    text = page.html(one, dict.fromkeys(page.FIGURES, "<svg>"))
    assert "One way to initialise a peephole LSTM, each trained over 1 seed," in text


def test_ink_follows_the_page() -> None:
    """The inlined picture has neither white ground nor fixed ink; the file beside it keeps both."""
    text = html.svg(page.draw(results())["losses"])
    inlined = html.inline(text, "losses")
    assert "#ffffff" in text
    assert "#222222" in text
    assert "#ffffff" not in inlined
    assert "#222222" not in inlined
    assert "currentColor" in inlined
    assert re.match(r'<svg [^>]*style="--own: [0-9.]+pt" [^>]*viewBox="', inlined)
    assert not re.match(r"<svg [^>]* (width|height)=", inlined)


def test_names_are_escaped(tmp_path: Path) -> None:
    """A name or a command with markup in it is shown, not obeyed."""
    text = page.write(results(evil="<script>alert(1)</script>"), tmp_path).read_text(encoding="utf-8")
    assert "script" not in outline(text).tags
    assert "&lt;script&gt;" in text


def test_page_says_what_was_found(tmp_path: Path) -> None:
    """Summary, sentences, numbers, verdicts and provenance stand in the page; made-up data is called so."""
    r = results()
    text = page.write(r, tmp_path).read_text(encoding="utf-8")
    for line in (*r.summary, *(d.sentence for d in r.datasets), *(note for d in r.datasets for note in d.notes)):
        assert line.replace("'", "&#39;").replace(">", "&gt;") in text
    for word in (
        "peephole reproduce",
        "2026-11-19",
        "torch 2.13.0",
        "cf3d88aa",
        "0.00671",
        "without those that diverged",
    ):
        assert word in text
    assert "synthetic cohort (made up)" in text
    assert text.count('class="verdict') == sum(len(d.comparisons) for d in r.datasets) + 2


def cells(text: str) -> list[list[str]]:
    """The rows of all Markdown tables."""
    return [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]


def test_markdown(tmp_path: Path) -> None:
    """Both Markdown texts have tables of even rows, and the page for the documentation says the whole summary."""
    r = results()
    page.write(r, tmp_path)
    for text in (page.markdown(r, page.FIGURES), (tmp_path / "table.md").read_text(encoding="utf-8")):
        tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
        assert tables
        for table in tables:
            assert len({len(row) for row in cells(table)}) == 1, table
        assert "| Normalized | 0.037 |" in text or "| Normalized | 0.038 |" in text
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
    assert all(line in page.markdown(r, page.FIGURES) for line in r.summary)
    assert page.markdown(r, page.FIGURES) == page.markdown(results(), page.FIGURES)


def test_records(tmp_path: Path) -> None:
    """Each record is a row with its job, its final scores and its curves; a lost loss is infinite."""
    r = results()
    page.write(r, tmp_path)
    rows = pyarrow.parquet.read_table(tmp_path / "records.parquet").to_pylist()
    assert len(rows) == 2 * 6 * 5
    for row, record in zip(rows, r.records, strict=True):
        lost: dict[str, Any] = {"final_test": np.inf} if record["diverged"] >= 0 else {}
        expected = record["job"] | {"key": record["key"], "final_test": record["final"]["test"]} | lost
        assert {name: row[name] for name in expected} == expected
        assert row["train"] == [np.inf if value is None else value for value in record["train"]]
        assert row["marks"] == [0, 2, 8]
        assert json.loads(row["provenance"]) == {"seconds": 1.5}


def test_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up leaves the old page whole and no unfinished file."""
    path = page.write(results(), tmp_path)
    before = path.read_bytes()

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: .*\.svg"):
        page.write(results(diverged=False), tmp_path)
    assert path.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == FILES


@pytest.mark.parametrize("package", ["jinja2", "pyarrow", "pyarrow.parquet"])
def test_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Without Jinja2 or pyarrow the error names the extra to install."""
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ImportError, match=re.escape("peephole[report]")):
        page.write(results(), tmp_path)


@pytest.mark.parametrize(
    ("log_ratio", "text"),
    [(np.log(0.88), "−12.0%"), (0.0001, "0.0%"), (np.log(1.5), "+50.0%"), (np.log(16.7), "×16.7"), (-np.inf, "−100%"),
     (np.inf, "∞"), (np.nan, "–")],
)  # fmt: skip
def test_changes_are_legible(log_ratio: float, text: str) -> None:
    """A change is given in per cent, and as a factor where it is large."""
    assert page.change(log_ratio) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0375, "0.0375"), (0.2, "0.200"), (1.0, "1.00"), (281.4, "281"), (12345.6, "12346"), (np.inf, "∞")],
)
def test_errors_have_three_digits(value: float, text: str) -> None:
    """An error is shown with three significant digits, and none is shown as a dash."""
    assert page.mse(value) == text
    assert page.mse(None) == "–"
