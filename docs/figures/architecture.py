"""Reads the rooms from the table in docs/architecture.md, draws them and prints the contracts that follow."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "architecture.md"
FIGURE = HERE / "architecture.svg"

# Where each room stands in the picture: column by column, further right what imports more.
PLACES = {
    "report": (1, 4),
    "cli": (2, 4),
    "theory": (0, 3),
    "init": (1, 3),
    "nn": (2, 2),
    "train": (3, 2),
    "progression": (4, 2),
    "experiments": (5, 2),
    "data": (4, 1),
    "bench": (3, 1),
    "inspect": (3, 0),
    "interop": (4, 0),
}
LANES = {"all": (4, 4), "solve": (3, 3), "train": (1, 2), "inspect": (0, 0)}  # lowest and highest row
DASHED = (0, (4, 2.5))
COLOURS = {"all": "#7a7a7a", "solve": "#1b6ca8", "train": "#2e8b57", "inspect": "#b5651d"}


@dataclass(frozen=True)
class Room:
    """One row of the table."""

    name: str
    flow: str
    imports: tuple[str, ...]
    outside: tuple[str, ...]
    stands: bool


def rooms(page: Path = PAGE) -> list[Room]:
    """All rows of the table, in its order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    header, _, *rows = cells
    if header != ["room", "flow", "does", "may import", "from outside", "stands"]:
        raise ValueError(f"{page} has another table: {header}")

    def names(cell: str) -> tuple[str, ...]:
        return tuple(name.strip().strip("`") for name in cell.split(",") if name.strip())

    return [
        Room(room.strip("`"), flow, names(imports), names(outside), {"yes": True, "to come": False}[stands])
        for room, flow, _, imports, outside, stands in rows
    ]


def contracts(page: Path = PAGE) -> list[dict[str, Any]]:
    """Import-linter's contracts that say what the table says, one for each room that stands."""
    standing = [room for room in rooms(page) if room.stands]
    kept = sorted({package for room in standing for package in room.outside})
    return [
        {
            "name": f"{room.name} imports only what the table in docs/architecture.md allows",
            "type": "forbidden",
            "source_modules": [f"peephole.{room.name}"],
            "forbidden_modules": [
                f"peephole.{other.name}"
                for other in standing
                if other.name != room.name and other.name not in room.imports
            ]
            + [package for package in kept if package not in room.outside],
            "allow_indirect_imports": True,
        }
        for room in standing
    ]


def arrows(table: list[Room]) -> list[tuple[Room, Room]]:
    """Who may import whom, without what follows from the other arrows: the picture stays readable."""
    by_name = {room.name: room for room in table}

    def reached(room: Room) -> set[str]:
        return {name for near in room.imports for name in {near} | reached(by_name[near])}

    return [
        (room, by_name[name])
        for room in table
        for name in room.imports
        if not any(name in reached(by_name[other]) for other in room.imports)
    ]


def draw_lanes(axes: Axes) -> None:
    """A band for each flow, named at its left."""
    for flow, (low, high) in LANES.items():
        corner, height = (-1.08, low - 0.44), high - low + 0.88
        lane = FancyBboxPatch(corner, 6.61, height, boxstyle="round,pad=0,rounding_size=0.08")
        lane.set(facecolor=COLOURS[flow], alpha=0.09, linewidth=0)
        axes.add_patch(lane)
        label = "every flow" if flow == "all" else flow
        axes.text(-0.98, (low + high) / 2, label, color=COLOURS[flow], va="center", fontsize=12)


def draw_room(axes: Axes, room: Room) -> FancyBboxPatch:
    """A box with the room's name, and below it the outside packages that it may import."""
    x, y = PLACES[room.name]
    box = FancyBboxPatch((x - 0.38, y - 0.27), 0.76, 0.54, boxstyle="round,pad=0,rounding_size=0.06")
    box.set(edgecolor=COLOURS[room.flow], facecolor="white", linewidth=1.8 if room.stands else 1.2)
    box.set_linestyle("-" if room.stands else DASHED)
    axes.add_patch(box)
    middle: dict[str, Any] = {"ha": "center", "va": "center"}
    ink = "#1a1a1a" if room.stands else "#5c5c5c"
    axes.text(x, y + (0.07 if room.outside else 0), room.name, color=ink, fontsize=11, **middle)
    if room.outside:
        axes.text(x, y - 0.13, ", ".join(room.outside), color="#7a7a7a", fontsize=8, **middle)
    return box


def draw(to: Path = FIGURE) -> None:
    """Draw the table: a lane for each flow, a box for each room, dashed where it is to come."""
    table = rooms()
    # Text stays text, to be searched; without a date and with a fixed salt, a redrawing changes no byte.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "peephole", "font.family": "sans-serif"}):
        figure = Figure(figsize=(10.6, 5.4))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set(xlim=(-1.15, 5.6), ylim=(-0.6, 4.6))
        axes.axis("off")
        draw_lanes(axes)
        boxes = {room.name: draw_room(axes, room) for room in table}
        for start, end in arrows(table):
            arrow = FancyArrowPatch(PLACES[start.name], PLACES[end.name], arrowstyle="-|>", mutation_scale=11)
            arrow.set_patchA(boxes[start.name])
            arrow.set_patchB(boxes[end.name])
            arrow.set(color="#444444", linewidth=1.1, linestyle="-" if start.stands else DASHED)
            axes.add_patch(arrow)
        for line, text in enumerate(("solid: stands", "dashed: to come", "arrow: may import")):
            axes.text(5.42, 4.2 - 0.2 * line, text, ha="right", va="center", color="#5c5c5c", fontsize=9)
        figure.savefig(to, facecolor="white", metadata={"Date": None} if to.suffix == ".svg" else None)


def main() -> None:
    """Redraw the picture and print the contracts for pyproject.toml."""
    draw()
    for contract in contracts():
        print("\n[[tool.importlinter.contracts]]")
        for key, value in contract.items():
            print(f"{key} = {json.dumps(value)}")


if __name__ == "__main__":
    main()
