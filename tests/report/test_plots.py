"""Pictures drawn from results."""

from __future__ import annotations

from pathlib import Path

import pytest

from peephole.report.plots import draw_signal, save
from peephole.theory import Cell, Flow, preset, propagate, simulate


@pytest.fixture(scope="module")
def flows() -> dict[str, Flow]:
    """A prediction at each level and a small simulation."""
    cell = Cell(4, 4)
    v = preset("proposed-1", cell)
    return {
        "linear": propagate(cell, v, steps=6, level="linear"),
        "wide": propagate(cell, v, steps=6, samples=500),
        "simulated": simulate(cell, v, steps=6, networks=3),
    }


@pytest.mark.parametrize(("panels", "shown"), [(1, 1), (3, 3), (5, 8)])
def test_a_panel_for_each(flows: dict[str, Flow], panels: int, shown: int) -> None:
    """Each set of variances gets a titled panel with the target, the band and both predictions."""
    figure = draw_signal({f"set {k}": flows for k in range(panels)}, target=0.5)
    assert len(figure.axes) == shown
    assert [ax.get_title(loc="left") for ax in figure.axes[:panels]] == [f"set {k}" for k in range(panels)]
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert any("target 0.5" in label for label in labels)
    assert any("wide" in label for label in labels)


def test_a_level_that_is_missing_is_left_out(flows: dict[str, Flow]) -> None:
    """A cell that cannot be linearised is drawn without that line."""
    figure = draw_signal({"one": {k: f for k, f in flows.items() if k != "linear"}})
    assert not any("linear" in label for label in figure.axes[0].get_legend_handles_labels()[1])


def test_the_same_bytes(flows: dict[str, Flow], tmp_path: Path) -> None:
    """The same flows give the same SVG, byte for byte."""
    for name in ("a.svg", "b.svg"):
        save(draw_signal({"one": flows}), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
