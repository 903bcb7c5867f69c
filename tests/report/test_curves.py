"""Pictures of training."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray

from peephole.report import curves

Array = NDArray[np.float64]
METHODS = [*curves.LOOKS, "chrono"]


def losses(names: list[str], *, seeds: int = 5, epochs: int = 30) -> dict[str, dict[str, Array]]:
    """Falling curves; the first seed of the first method diverges."""
    rng = np.random.default_rng(0)
    runs = {
        name: {m: np.exp(-0.1 * np.arange(epochs + 1) + rng.normal(0, 0.3, (seeds, 1))) for m in METHODS}
        for name in names
    }
    for panel in runs.values():
        panel[METHODS[0]][0, 4:] = np.inf
    return runs


def scores(names: list[str]) -> dict[str, dict[str, Array]]:
    """Final errors of the same."""
    return {name: {m: runs[:, -1] for m, runs in panel.items()} for name, panel in losses(names).items()}


def drawn(figure: Figure) -> None:
    """Lay it out and paint it; a warning would be an error."""
    figure.draw_without_rendering()


@pytest.mark.parametrize(("panels", "axes"), [(1, 1), (3, 3), (4, 4), (5, 6)])
def test_a_panel_for_each_data_set(panels: int, axes: int) -> None:
    """Losses and scores have a titled panel for each data set, with a line or a row for each method."""
    names = [f"set {k}" for k in range(panels)]
    for figure in (curves.draw_losses(losses(names)), curves.draw_scores(scores(names))):
        drawn(figure)
        assert len(figure.axes) == axes
        assert [ax.get_title(loc="left") for ax in figure.axes[:panels]] == names
    labels = curves.draw_losses(losses(names)).axes[0].get_legend_handles_labels()[1]
    assert labels == [curves.title(m) for m in METHODS]


def test_one_colour_everywhere() -> None:
    """A method has its own colour, the same in each picture, whatever other methods are there."""
    colours = {m: curves.look(m, METHODS)[0] for m in METHODS}
    assert len(set(colours.values())) == len(METHODS)
    assert all(curves.look(m, [m])[0] == colours[m] for m in METHODS)
    grid = curves.draw_runs(losses(["one"]), {"one": 0.1}).axes
    strip = curves.draw_scores(scores(["one"])).axes[0]
    for place, method in enumerate(METHODS):
        assert to_hex(grid[place].lines[-1].get_color()) == colours[method].lower()
    assert {to_hex(line.get_color()) for line in strip.lines} >= {c.lower() for c in colours.values()}


def test_the_median_is_drawn() -> None:
    """Figure 1's line is the median over seeds at the drawn epochs, also where a seed diverged."""
    runs = losses(["one"])
    line = curves.draw_losses(runs).axes[0].lines[0]
    at = curves.epochs(31)
    np.testing.assert_array_equal(np.asarray(line.get_xdata()), at)
    np.testing.assert_allclose(np.asarray(line.get_ydata()), np.median(runs["one"][METHODS[0]], axis=0)[at])


def test_every_run_is_drawn() -> None:
    """A column for each method and a row for each data set, a line for each seed, and those that left are counted."""
    figure = curves.draw_runs(losses(["one", "two"]), {"one": 0.1, "two": 0.2})
    drawn(figure)
    assert len(figure.axes) == 2 * len(METHODS)
    assert all(len(ax.lines) == 1 + 5 for ax in figure.axes)
    assert [text.get_text() for text in figure.axes[0].texts] == ["▲ 1"]
    assert not figure.axes[1].texts


def test_scores_show_all() -> None:
    """Each seed is a dot, a diverged one an arrow at the edge; paper and peers are in picture and legend if given."""
    panel = scores(["one"])
    bare = curves.draw_scores(panel)
    full = curves.draw_scores(panel, {"one": {METHODS[1]: 0.05}}, {"one": {"AR(1)": 0.07, "AR(2)": 0.06}})
    drawn(full)
    dots = [line for line in full.axes[0].lines if line.get_marker() == "o"]
    assert [len(np.asarray(line.get_xdata())) for line in dots] == [4, *[5] * (len(METHODS) - 1)]
    (arrow,) = (line for line in full.axes[0].lines if line.get_marker() == ">")
    assert np.asarray(arrow.get_xdata()).tolist() == [full.axes[0].get_xlim()[1]]
    assert len(full.axes[0].lines) == len(bare.axes[0].lines) + 3
    texts = [[text.get_text() for text in figure.legends[0].texts] for figure in (bare, full)]
    assert texts[0] == ["a seed", "median", "beyond, or diverged"]
    assert set(texts[1]) - set(texts[0]) == {"the paper's number", "AR(1)", "AR(2)"}


def test_everything_diverged() -> None:
    """A data set on which every run diverged is drawn too."""
    gone = {"one": {m: np.full((3, 11), np.inf) for m in METHODS}}
    for figure in (
        curves.draw_losses(gone),
        curves.draw_runs(gone, {"one": np.inf}),
        curves.draw_scores({"one": {m: np.full(3, np.inf) for m in METHODS}}),
    ):
        drawn(figure)


@pytest.mark.parametrize(("low", "high", "scale"), [(0.8, 1.3, "linear"), (0.08, 1.3, "log"), (0.08, 1e5, "log")])
def test_axes_fit(low: float, high: float, scale: str) -> None:
    """Within a factor of 3 the axis is linear, beyond it logarithmic; what is far off does not stretch it."""
    runs = {"one": {"proposed-1": np.linspace(low, high, 21) * np.ones((2, 1))}}
    runs["one"]["proposed-1"][:, :10] = np.linspace(low, min(high, 1.3), 10)
    ax = curves.draw_losses(runs).axes[0]
    assert ax.get_yscale() == scale
    assert ax.get_ylim()[1] < 3 * curves.CAP


def test_epochs_that_are_drawn() -> None:
    """The first and the last are, each once and in order, and few of many; all of few."""
    for count in (1, 2, 5, 1001):
        at = curves.epochs(count)
        assert at[0] == 0
        assert at[-1] == count - 1
        assert (np.diff(at) > 0).all()
    assert len(curves.epochs(100001)) <= curves.POINTS + 1
    assert curves.epochs(12).tolist() == list(range(12))
