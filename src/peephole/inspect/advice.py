"""What is wrong with a start, in plain sentences, each with the figure behind it; none where nothing is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from peephole.inspect.measured import Measured
from peephole.inspect.statistics import Trace
from peephole.theory.errors import check_target

LONG = {"f": "forget", "i": "input", "o": "output"}
ROUNDING = 1e-9  # inputs that differ by less of their mean square are the same in every sequence


@dataclass(frozen=True)
class Thresholds:
    """Where a figure becomes a finding. docs/inspect.md tells the reason for each.

    Attributes:
        memory: sequences may be so many times longer than a unit remembers, the tenth that remembers longest.
        endless: a unit may remember so many times longer than the sequences are.
        share: of units that may be stuck (closed or open gates) before it counts.
        closed: a gate whose average over a unit's values is below this is closed.
        open: one above this is open; of the cell input, its absolute value.
        filling: a unit's input gate must be this much of what its forget gate lets go, or nothing gets in.
        saturated: share of a gate's values at either end of its activation, where it also switches.
        switching: standard deviation of a unit's gate from which it counts as switching, not as set.
        silent: Var(h) at the last step below this is silence.
        alike: of the mean square of h, the part that differs between sequences must be more than this.
        swollen: Var(c) at the last step above this saturates any output.
        vanishing: gradient at the first step over that at the last, below.
        exploding: the same, above.
        large: root mean square of an input feature, above.
        small: root mean square length of the input vectors, below.
        off_target: factor by which Var(h) may differ from the target.
    """

    memory: float = 50.0
    endless: float = 100.0
    share: float = 0.1
    closed: float = 0.02
    open: float = 0.98
    filling: float = 0.05
    saturated: float = 0.5
    switching: float = 0.25
    silent: float = 1e-5
    alike: float = 1e-6
    swollen: float = 100.0
    vanishing: float = 1e-6
    exploding: float = 1e3
    large: float = 10.0
    small: float = 0.01
    off_target: float = 30.0


THRESHOLDS = Thresholds()
"""The limits that `advise` goes by unless told."""


@dataclass(frozen=True)
class Advice:
    """One finding: the name of its rule, where, the figure that crossed its threshold, and the sentence."""

    rule: str
    where: str
    figure: float
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def advise(measured: Measured, *, target: float | None = None, thresholds: Thresholds = THRESHOLDS) -> list[Advice]:
    """Sentences on what is wrong, worst causes first; an empty list where nothing is.

    `target` is the variance of what the last LSTM's h is to estimate, where it does so without a layer after it.
    """
    if target is not None:
        check_target(target)
    found = []
    for number, trace in enumerate(measured.traces):
        last = number == len(measured.traces) - 1
        rules = [_inputs, _signal, _gates, _memory, _gradient]
        for rule in rules:
            found += list(rule(trace, thresholds))
        if last and target is not None:
            found += list(_target(trace, target, thresholds))
    return found


def _inputs(trace: Trace, limit: Thresholds) -> Iterator[Advice]:
    if trace.layer:
        return
    mean, sd = trace.inputs["mean"], trace.inputs["sd"]
    rms = np.hypot(mean, sd)
    worst = int(np.argmax(rms))
    if rms[worst] > limit.large:
        yield Advice(
            "large", trace.name, float(rms[worst]),
            f"inputs are not scaled: feature {worst} has mean {mean[worst]:.3g} and standard deviation "
            f"{sd[worst]:.3g}; bring every feature to mean 0 and standard deviation 1, by the training data",
        )  # fmt: skip
    size = math.sqrt(trace.sizes[0] * trace.power)
    if not sd.any():
        # One vector cannot vary, and a decoder that starts from an encoder's state need not.
        if trace.steps["running"].sum() > 1 and not trace.start:
            yield Advice(
                "constant", trace.name, 0.0,
                f"inputs never vary: each of the {len(sd)} features is the same at every step of every sequence",
            )  # fmt: skip
    elif size < limit.small:
        yield Advice(
            "small", trace.name, size,
            f"inputs are tiny: vectors of {len(sd)} features have a length of {size:.2g} in the root mean square; the "
            "gates hardly see them; scale every feature to standard deviation 1",
        )  # fmt: skip


def _signal(trace: Trace, limit: Thresholds) -> Iterator[Advice]:
    var_h, var_c, mean_h = (trace.steps[name] for name in ("var_h", "var_c", "mean_h"))
    lost = np.flatnonzero(~(np.isfinite(var_h) & np.isfinite(var_c)))
    if lost.size:
        yield Advice(
            "overflow", trace.name, math.inf,
            f"the signal overflows at step {lost[0] + 1}: the cell state grows without bound; smaller weights, or an "
            "output activation that bounds h",
        )  # fmt: skip
        return
    square = var_h + mean_h**2
    several = np.flatnonzero(trace.steps["running"] > 1)  # a sequence alone differs from none
    if square[-1] < limit.silent:
        empty = not any(trace.variances.values())
        yield Advice(
            "silent", trace.name, float(var_h[-1]),
            f"the output is silent: Var(h) = {var_h[-1]:.2g} at step {trace.length}, of inputs with mean square "
            f"{trace.power:.2g}; "
            + ("all weights are zero, and stay alike: draw them by `init.initialise_`" if empty else
               "larger input weights or open gates carry it on"),
        )  # fmt: skip
    elif trace.layer == 0 and several.size and trace.steps["between_x"].max() > ROUNDING * trace.power:
        at = several[-1]
        part = float(trace.steps["between_h"][at] / max(square[at], limit.silent))
        if part < limit.alike:
            yield Advice(
                "alike", trace.name, part,
                f"outputs do not depend on the sequence: {part:.1g} of the mean square of h differs between sequences "
                f"at step {at + 1}; the input weights are too small, or the gates shut the input out",
            )  # fmt: skip
    if var_c[-1] > limit.swollen:
        yield Advice(
            "swollen", trace.name, float(var_c[-1]),
            f"the cell state swells: Var(c) is {var_c[0]:.2g} at step 1 and {var_c[-1]:.3g} at step {trace.length}, "
            "where the output is saturated; a smaller forget bias or smaller weights of the cell input keep it",
        )  # fmt: skip


def _gates(trace: Trace, limit: Thresholds) -> Iterator[Advice]:
    """Gates that switch hard, and gates that stand still at an end."""
    gate_like = trace.activations[0] in ("sigmoid", "hard_sigmoid")
    switching = []
    for gate in "fio" if gate_like else "":
        share = float(trace.steps[f"saturated_{gate}"].mean())
        if share > limit.saturated and float(np.median(trace.units[f"sd_{gate}"])) > limit.switching:
            switching.append((gate, share))
    if switching:
        named = ", ".join(f"{LONG[gate]} {share:.0%}" for gate, share in switching)
        squares = max((_drive(trace, gate) for gate, _ in switching), key=lambda parts: sum(parts.values()))
        a, most = math.sqrt(sum(squares.values())), max(squares, key=lambda source: squares[source])
        yield Advice(
            "saturated", trace.name, max(share for _, share in switching),
            f"gates are saturated ({named} of their values are below 0.05 or above 0.95) and hardly learn: what "
            f"reaches them has a standard deviation of about {a:.3g}, most of it by the {most}; "
            + (f"{most}{' (or inputs)' * (most == 'input weights')} {a:.2g} times smaller bring it near 1" if a > 1 else
               "the biases add what is missing"),
        )  # fmt: skip
    if not gate_like:
        return
    f, i, o = (trace.units[f"mean_{gate}"] for gate in "fio")
    leaving = np.maximum(1 - f, 1e-12)
    yield from _stuck(trace, limit, "forget", "closed", f, f < limit.closed,
                      "what is in the cell is gone a step later; a forget bias of 1 or `chrono` keeps it")  # fmt: skip
    yield from _stuck(trace, limit, "input", "closed", i, (i < limit.closed) & (i / leaving < limit.filling),
                      "next to nothing gets into the cell; raise the input bias towards 0")  # fmt: skip
    yield from _stuck(trace, limit, "output", "closed", o, o < limit.closed,
                      "nothing gets out of the cell; raise the output bias towards 0")  # fmt: skip
    yield from _stuck(trace, limit, "input", "open", i, i > limit.open,
                      "it lets everything in and learns nothing; lower the input bias towards 0")  # fmt: skip
    yield from _stuck(trace, limit, "output", "open", o, o > limit.open,
                      "it lets everything out and learns nothing; lower the output bias towards 0")  # fmt: skip
    kept = f > 1 - 1 / (limit.endless * trace.length)
    yield from _stuck(trace, limit, "forget", "open", f, kept,
                      f"the cell forgets nothing of {trace.length} steps and the gate learns nothing; lower the forget "
                      "bias")  # fmt: skip


def _stuck(
    trace: Trace, limit: Thresholds, gate: str, end: str, values: np.ndarray, which: np.ndarray, remedy: str
) -> Iterator[Advice]:
    share = float(which.mean())
    if share > limit.share:
        yield Advice(
            f"{gate}-{end}", trace.name, share,
            f"the {gate} gate is stuck {end} in {share:.0%} of the units, where it averages "
            f"{values[which].mean():.4f}: {remedy}",
        )  # fmt: skip


def _drive(trace: Trace, gate: str) -> dict[str, float]:
    """The mean square of what reaches a gate by each of its weights, biases left aside."""
    v, sizes = trace.variances, trace.sizes
    h, c = (float(np.mean(trace.steps[f"var_{name}"] + trace.steps[f"mean_{name}"] ** 2)) for name in "hc")
    return {
        "input weights": sizes[0] * v[f"w_{gate}"] * trace.power,
        "recurrent weights": sizes[1] * v[f"u_{gate}"] * h,
        "peepholes": v.get(f"v_{gate}", 0.0) * c,
    }


def _memory(trace: Trace, limit: Thresholds) -> Iterator[Advice]:
    """Whether anything can stay in the cell for as long as the sequences are."""
    f = float(np.quantile(trace.units["mean_f"], 0.9))
    mean = float(trace.steps["mean_f"].mean())
    memory = 1 / max(1 - f, 1e-12)
    if trace.activations[0] not in ("sigmoid", "hard_sigmoid") or mean < limit.closed:
        return  # closed gates have their own sentence
    if trace.length > limit.memory * memory:
        lost = "half the memory is gone" if 0.45 < mean < 0.55 else f"{1 - mean:.0%} of the memory is gone"
        bias = math.log(max(trace.length / 10 - 1, 1.5))
        yield Advice(
            "memory", trace.name, trace.length / memory,
            f"forget gates average {mean:.2f}: {lost} each step, and even the units that keep most remember "
            f"{memory:.1f} steps; sequences have {trace.length} steps; `chrono` with steps={trace.length}, or a forget "
            f"bias of {bias:.1f}, which remembers a tenth of that",
        )  # fmt: skip


def _gradient(trace: Trace, limit: Thresholds) -> Iterator[Advice]:
    gradient = trace.steps.get("gradient")
    if gradient is None or trace.length < 2 or not any(trace.variances.values()):
        return
    if not np.isfinite(gradient).all():
        yield Advice("exploding", trace.name, math.inf, "the gradient overflows on its way back: smaller weights")
        return
    first, largest, rate = float(gradient[0]), float(gradient.max()), trace.decay
    by = f" (times {rate:.2g} with each step back)" if math.isfinite(rate) else ""
    # A loss that looks at early steps has its gradient there: what explodes is more than what any step was given.
    direct = trace.steps.get("direct", gradient[-1:])
    given = float(direct.max())
    alone = "" if "direct" not in trace.steps or direct[:-1].any() else ", from the last output alone"
    if not largest:
        yield Advice("detached", trace.name, 0.0, "no gradient reaches this layer: the loss does not depend on it")
    elif first / largest < limit.vanishing:
        said = f"{first / largest:.0e}".replace("e-0", "e-") if first else "less than 1e-38"
        yield Advice(
            "vanishing", trace.name, first / largest,
            f"gradient at step 1 is {said} of that at step {int(gradient.argmax()) + 1}{by}{alone}: what is to be "
            f"remembered over {trace.length} steps is hardly learned; if anything is, forget gates nearer to 1 carry "
            "it further",
        )  # fmt: skip
    elif given and largest / given > limit.exploding:
        at = int(gradient.argmax()) + 1
        yield Advice(
            "exploding", trace.name, largest / given,
            f"gradient at step {at} is {largest / given:.2g} times the largest that the loss gives any step{by}: "
            "smaller recurrent weights, or gradients clipped",
        )  # fmt: skip


def _target(trace: Trace, target: float, limit: Thresholds) -> Iterator[Advice]:
    var_h = float(trace.steps["var_h"][-1])
    if var_h > 0 and not 1 / limit.off_target <= var_h / target <= limit.off_target:
        bounded = trace.activations[2] == "tanh" and target > 1
        yield Advice(
            "target", trace.name, var_h / target,
            f"Var(h) = {var_h:.2g} is to estimate targets of variance {target:.2g}: "
            + ("tanh keeps h within 1, so " if bounded else "") + "put a linear layer after it "
            "(`init.fit_readout_` starts it), or `init.calibrate_` the LSTM",
        )  # fmt: skip
