"""The sizes that are timed, what is asked of each, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Size:
    """Steps, batch, inputs, units, and the ratios that are the floor: against nn.LSTM, and against the loop."""

    steps: int
    batch: int
    inputs: int
    units: int
    least: float
    least_loop: float
    least_loss: float | None = None
    least_loss_loop: float | None = None

    def __str__(self) -> str:
        return f"{self.steps}, {self.batch}, {self.inputs}, {self.units}"

    @property
    def least_forward(self) -> float:
        """Of forward alone against nn.LSTM."""
        return 0.9 if self.units >= 256 else 1.0

    @property
    def floating_point_operations(self) -> int:
        """Of the matrix products of one step forward and back, without the gradient of the input."""
        rows, width = 4 * self.units, self.inputs + self.units
        return 2 * self.steps * self.batch * rows * (width + self.units + width)


SIZES = (
    Size(95, 7587, 1, 1, 10, 5, 50, 20),
    Size(499, 3060, 1, 1, 10, 5, 50, 20),
    Size(9, 282, 6, 6, 2.5, 8),
    Size(96, 64, 16, 32, 2.5, 10),
    Size(100, 64, 64, 64, 1.5, 5),
    Size(100, 64, 128, 128, 1.3, 3.5),
    Size(100, 64, 256, 256, 1.1, 2.5),
    Size(100, 32, 512, 512, 1.0, 2.5),
)
LEAST_TORCHRECURRENT = 10.0


@dataclass(frozen=True)
class Ratio:
    """How many times longer a peer takes, beside the least that is asked; None where nothing is."""

    ratio: float
    least: float | None = None
    met: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "met", self.least is None or self.ratio >= self.least)


@dataclass
class Row:
    """What was measured at one size: best seconds by name, and the ratios that follow."""

    size: Size
    seconds: dict[str, float]
    ratios: dict[str, Ratio] = field(init=False)

    def __post_init__(self) -> None:
        s = self.size
        asked: dict[str, tuple[str, str, float | None]] = {
            "nn.LSTM": ("nn.LSTM", "ours", s.least),
            "loop": ("loop", "ours", s.least_loop),
            "loss: nn.LSTM": ("nn.LSTM", "ours, loss", s.least_loss),
            "loss: loop": ("loop, loss", "ours, loss", s.least_loss_loop),
            "forward: nn.LSTM": ("nn.LSTM, forward", "ours, forward", s.least_forward),
            "torchrecurrent": ("torchrecurrent", "ours", LEAST_TORCHRECURRENT),
        }
        self.ratios = {
            name: Ratio(self.seconds[peer] / self.seconds[ours], least)
            for name, (peer, ours, least) in asked.items()
            if peer in self.seconds and ours in self.seconds
        }


def missed(rows: list[Row], replicas: Ratio) -> list[str]:
    """What falls short, each with its size, its ratio and the least that is asked."""
    found = [(f"{row.size}: {name}", ratio) for row in rows for name, ratio in row.ratios.items()]
    found.append(("replicas", replicas))
    return [f"{name} {ratio.ratio:.3g}, not {ratio.least:g}" for name, ratio in found if not ratio.met]
