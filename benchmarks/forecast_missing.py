"""How does the forecaster bear missing data? Error against the share missing, for each fill.

Made-up cohorts lose 0 to 80% of their values at random. The default architecture is trained with each of
`nn.missing.FILLS` on four fifths of the subjects, and forecasts the others' visits from what is left of them; what
came is taken from the complete cohort, so that every share is judged on the same values. Prints a Markdown table and
draws a picture:

    python benchmarks/forecast_missing.py --out docs/figures
"""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from peephole.data import Grid, folds, synthetic, to_grid
from peephole.nn.missing import FILLS
from peephole.progression import ProgressionModel
from peephole.progression.baselines import last_value
from peephole.progression.history import ahead, origins
from peephole.report.plots import INK, STYLE, save

Array = NDArray[np.float64]
SHARES, HORIZONS, CARRIED = (0.0, 0.2, 0.4, 0.6, 0.8), (1, 3), "last value"
COLOURS = {"zero": "#E69F00", "scaled": "#D55E00", "unit-variance": "#CC79A7", "model": "#009E73", "forward": "#0072B2"}
DASHES = {"zero": (0, (4, 1.5)), "scaled": (0, (1, 1)), "unit-variance": (0, (5, 1.5, 1, 1.5)), "forward": (0, (7, 2))}


def errors(holey: Grid, whole: Grid, seed: int, seeds: int) -> dict[str, Array]:
    """The mean absolute error (horizons,) of each fill, and of the last value, on the subjects not trained on."""
    train, test = next(folds(holey, 5, seed=seed))
    found = {}
    for fill in FILLS:
        model = ProgressionModel(fill=fill, seeds=seeds, seed=seed, horizons=max(HORIZONS)).fit(holey.take(train))
        X, sd = model.standardised(holey.take(test)), model.sd_
        truth = ahead((whole.take(test).X - model.mean_) / sd, max(HORIZONS))
        truth[~origins(X)] = np.nan
        for name, forecast in (
            (fill, model.networks_.forecasts(X, max(HORIZONS))),
            (CARRIED, last_value(X, max(HORIZONS))),
        ):
            by_feature = np.nanmean(np.abs(forecast - truth), axis=(0, 1))
            # In units of the complete cohort: a standard deviation that was itself estimated from gaps would differ.
            unit = sd / np.nanstd(whole.X, axis=(0, 1))
            found[name] = (by_feature * unit).mean(axis=1)[[k - 1 for k in HORIZONS]]
    return found


def measure(cohorts: int, subjects: int, seeds: int) -> dict[str, Array]:
    """Errors (cohorts, shares, horizons) by fill."""
    found = {name: np.empty((cohorts, len(SHARES), len(HORIZONS))) for name in (*FILLS, CARRIED)}
    for c in range(cohorts):
        # No jitter and no drop-out: the holey and the complete cohort then have the same cells.
        whole, *others = (
            to_grid(
                synthetic.cohort(subjects, missing=share, jitter=0.0, dropout=0.0, seed=c).table, least=0, visits=10
            )
            for share in (0.0, *SHARES)
        )
        for place, holey in enumerate(others):
            for name, row in errors(holey, whole, c, seeds).items():
                found[name][c, place] = row
            print(f"cohort {c + 1}, {SHARES[place]:.0%} missing done", file=sys.stderr)
    return found


def table(found: dict[str, Array], horizon: int) -> str:
    """A row for each fill: errors by share missing, and the last over the first."""
    lines = [
        "| fill | " + " | ".join(f"{share:.0%} missing" for share in SHARES) + " | grows by |",
        "|---|" + "---|" * (len(SHARES) + 1),
    ]
    for name, values in found.items():
        mean = values[:, :, horizon].mean(axis=0)
        usual = f"**`{name}`**, the default" if name == "model" else name if name == CARRIED else f"`{name}`"
        lines.append(f"| {usual} | " + " | ".join(f"{error:.4f}" for error in mean) + f" | {mean[-1] - mean[0]:.4f} |")
    return "\n".join(lines)


def draw(found: dict[str, Array]) -> Figure:
    """A panel for each horizon, a line for each fill."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 3.4), layout="constrained")
        for ax, horizon in zip(figure.subplots(1, len(HORIZONS), sharey=True), range(len(HORIZONS)), strict=True):
            for name, values in found.items():
                mean = values[:, :, horizon].mean(axis=0)
                usual = name == "model"
                ax.plot(
                    100 * np.array(SHARES),
                    mean,
                    color=COLOURS.get(name, INK),
                    linestyle=DASHES.get(name, "-" if usual else ":"),
                    linewidth=2.2 if usual else 1.3,
                    marker="o",
                    markersize=3,
                    label=f"{name}, the default" if usual else name,
                )
            ax.set_title("next visit" if HORIZONS[horizon] == 1 else f"{HORIZONS[horizon]} years")
            ax.set_xlabel("share missing, %")
        figure.axes[0].set_ylim(bottom=0)
        figure.axes[0].set_ylabel("mean absolute error, standard deviations")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def main() -> None:
    """Measure, print the tables and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture")
    parser.add_argument("--cohorts", type=int, default=2)
    parser.add_argument("--subjects", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5, help="networks in an ensemble")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    print(f"{given.cohorts} cohorts of {given.subjects} subjects, ensembles of {given.seeds}, {date.today()}")
    found = measure(given.cohorts, given.subjects, given.seeds)
    for place, horizon in enumerate(HORIZONS):
        print(f"\n**{'next visit' if horizon == 1 else f'{horizon} years'}**\n\n{table(found, place)}")
    save(draw(found), given.out / "forecast-missing.svg")


if __name__ == "__main__":
    main()
