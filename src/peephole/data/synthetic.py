"""Made-up cohorts of a slow disease, with gaps and with the truth behind them.

The course: a subject `j` has an onset `o` (years after baseline) and a speed `v`; t years after baseline its disease
time is `s = v (t - o)`. Below `ONSET_OF_MCI` it is CN, below 0 MCI, else AD. A biomarker without noise is

    healthy + personal + ageing (age + t - 73) + change sigmoid((s - middle) / width),

monotone in time, for ageing and disease push the same way. `personal` is normal and shared in part by all biomarkers
of a subject, as is the noise of a visit by all biomarkers of that visit.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from peephole.data.draws import Array, Stream
from peephole.data.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BIOMARKERS", "DIAGNOSES", "Biomarker", "Cohort", "Truth", "cohort"]

DIAGNOSES = ("CN", "MCI", "AD")
"""Healthy, mild cognitive impairment, dementia."""

ONSET_OF_MCI = -5.0  # years of disease time before dementia
STEEP = 1.5  # not at random: what one standard deviation of disease time adds to a gap's log-odds


class Biomarker(NamedTuple):
    """A volume over ICV: its healthy mean, what the disease and a year of age add, spreads, middle and width in years.

    The sizes are those that MRI of the elderly shows, roughly; they were made up, not fitted to anybody's data.
    """

    name: str
    healthy: float
    change: float
    ageing: float
    personal: float
    noise: float
    middle: float
    width: float


BIOMARKERS = (
    Biomarker("Ventricles_ICV", 0.024, +0.040, +0.0003, 0.0060, 0.00100, 1.0, 3.0),
    Biomarker("Hippocampus_ICV", 0.0050, -0.0018, -0.00003, 0.0005, 0.00010, -3.0, 2.5),
    Biomarker("WholeBrain_ICV", 0.700, -0.090, -0.0018, 0.0300, 0.00600, 1.0, 3.0),
    Biomarker("Fusiform_ICV", 0.0121, -0.0030, -0.00005, 0.0010, 0.00030, 0.0, 2.5),
    Biomarker("MidTemp_ICV", 0.0136, -0.0038, -0.00006, 0.0011, 0.00030, 0.0, 2.5),
    Biomarker("Entorhinal_ICV", 0.0026, -0.0010, -0.000012, 0.0003, 0.00012, -2.0, 2.2),
)
"""The six volumes that a cohort has, in this order."""


@dataclass(frozen=True, eq=False)
class Truth:
    """What is behind a cohort, of all J subjects at all T planned visits, also those after drop-out.

    `X` (J, T, N) is without noise and gaps, `latent` (J, T) the disease time in years, `diagnosis` (J, T) what
    follows from it, `times` (J, T) the months, `onset` and `speed` (J,) the subjects' own.
    """

    X: Array = field(repr=False)
    latent: Array = field(repr=False)
    diagnosis: NDArray[np.str_] = field(repr=False)
    times: Array = field(repr=False)
    onset: Array = field(repr=False)
    speed: Array = field(repr=False)


@dataclass(frozen=True, eq=False)
class Cohort:
    """A made-up cohort: the tidy `table` that a user would have, the same as arrays, and the `truth`.

    `table` has a row for each visit that took place: `id`, `time` in months, the features, `diagnosis` and `age`
    (at baseline). `X` (J, T, N) has NaN for missing and after drop-out, `times` (J, T) NaN after drop-out.
    """

    table: "pd.DataFrame" = field(repr=False)
    truth: Truth = field(repr=False)
    features: tuple[str, ...]
    X: Array = field(repr=False)
    times: Array = field(repr=False)


def cohort(
    subjects: int,
    visits: int = 10,
    *,
    features: int = 6,
    missing: float = 0.3,
    mechanism: Literal["random", "not-random"] = "random",
    whole_visits: float = 0.0,
    dropout: float = 0.05,
    jitter: float = 1.0,
    noise: float = 1.0,
    seed: int,
) -> Cohort:
    """Make a cohort of so many subjects with up to so many yearly visits.

    Args:
        subjects: how many.
        visits: planned for each, a year apart, the first at month 0.
        features: how many biomarkers: the first of `BIOMARKERS`, after the sixth again with a later middle.
        missing: the expected share of values missing at visits that took place.
        mechanism: `random`: each value alike; `not-random`: more often the further the disease, and so is drop-out.
        whole_visits: the share of `missing` that takes all of a visit's values at once.
        dropout: the chance of leaving after each visit from the second on: nobody has fewer than two, if planned.
        jitter: the standard deviation in months of a visit's distance from its anniversary, cut at 4.
        noise: multiplies the noise of a visit; 0 shows the truth.
        seed: the same seed gives the same cohort, whatever the version of NumPy. Courses, noise, gaps and drop-out
            have streams of their own: another `missing` changes no value that remains, and what is missing at 30%
            is missing at 40%.

    Raises:
        DataError: for a number out of its range.
    """
    _check(subjects, visits, features, missing, mechanism, whole_visits, dropout, jitter, noise)
    J, T, N = subjects, visits, features
    course, visit, gap, leave = (Stream(seed, place) for place in range(4))

    onset = 5.0 + 6.0 * course.normal(J)
    speed = np.clip(np.exp(0.4 * course.normal(J)), 0.4, 2.5)
    age = np.asarray(np.round(np.clip(73.0 + 7.0 * course.normal(J), 55.0, 91.0), 1), dtype=np.float64)
    exact = 12.0 * np.arange(T) + np.clip(jitter * visit.normal(J, T), -4.0, 4.0)
    exact[:, 0] = 0.0
    times: Array = np.round(exact, 2)
    latent = speed[:, None] * (times / 12.0 - onset[:, None])
    diagnosis = np.array(DIAGNOSES)[np.searchsorted([ONSET_OF_MCI, 0.0], latent, side="right")]

    kinds = _kinds(N)
    true = _trajectories(kinds, latent, age[:, None] + times / 12.0 - 73.0, course)
    noisy = true + noise * kinds.noise * _correlated(kinds, 0.3, visit, J, T)

    worse = (latent - latent.mean()) / (latent.std() or 1.0)
    slope = STEEP * worse if mechanism == "not-random" else np.zeros_like(worse)
    here = _attended(dropout, slope, leave)
    gone = _gaps(_chance(missing, slope, here), whole_visits, N, gap)
    X = np.where(gone | ~here[..., None], np.nan, noisy)
    truth = Truth(true, latent, diagnosis, times, onset, speed)
    times = np.where(here, times, np.nan)
    return Cohort(_table(kinds.names, X, times, diagnosis, age), truth, kinds.names, X, times)


def _check(
    subjects: int,
    visits: int,
    features: int,
    missing: float,
    mechanism: str,
    whole_visits: float,
    dropout: float,
    jitter: float,
    noise: float,
) -> None:
    for name, count in (("subjects", subjects), ("visits", visits), ("features", features)):
        if count < 1:
            raise DataError(f"{name} = {count}: expected at least 1")
    for name, share in (("missing", missing), ("dropout", dropout), ("whole_visits", whole_visits)):
        top = 1.0 if name == "whole_visits" else np.nextafter(1.0, 0.0)
        if not 0 <= share <= top:
            raise DataError(f"{name} = {share:g}: expected a share from 0 to {'1' if top == 1 else 'below 1'}")
    for name, size in (("jitter", jitter), ("noise", noise)):
        if not 0 <= size < np.inf:
            raise DataError(f"{name} = {size:g}: expected a finite number not below 0")
    if mechanism not in ("random", "not-random"):
        raise DataError(f"mechanism {mechanism!r}: expected 'random' or 'not-random'")


class _Kinds(NamedTuple):
    names: tuple[str, ...]
    healthy: Array
    change: Array
    ageing: Array
    personal: Array
    noise: Array
    middle: Array
    width: Array


def _kinds(features: int) -> _Kinds:
    """The biomarkers' numbers, each as an array (N,)."""
    six = len(BIOMARKERS)
    rounds = [divmod(place, six) for place in range(features)]
    names = tuple(BIOMARKERS[kind].name + (f"_{again + 1}" if again else "") for again, kind in rounds)
    numbers = np.array([BIOMARKERS[kind][1:] for _, kind in rounds]).T
    numbers[5] += [again for again, _ in rounds]
    return _Kinds(names, *numbers)


def _correlated(kinds: _Kinds, share: float, stream: Stream, *shape: int) -> Array:
    """Normal numbers (*shape, N) of variance 1, of which `share` is common and pushes as the disease does."""
    common = np.sign(kinds.change) * stream.normal(*shape, 1)
    own = stream.normal(*shape, len(kinds.names))
    mixed: Array = np.sqrt(share) * common + np.sqrt(1.0 - share) * own
    return mixed


def _trajectories(kinds: _Kinds, latent: Array, older: Array, stream: Stream) -> Array:
    """The biomarkers (J, T, N) without noise; `older` is the age at the visit beyond 73 years."""
    personal = kinds.personal * np.clip(_correlated(kinds, 0.4, stream, len(latent), 1), -2.5, 2.5)  # none below zero
    disease: Array = expit((latent[..., None] - kinds.middle) / kinds.width)
    return kinds.healthy + personal + kinds.ageing * older[..., None] + kinds.change * disease


def _attended(dropout: float, slope: Array, stream: Stream) -> NDArray[np.bool_]:
    """Which visits (J, T) took place: all up to the one after which a subject leaves."""
    leaves = stream.uniform(*slope.shape) < _chance(dropout, slope)
    leaves[:, :1] = False  # two visits at least
    here: NDArray[np.bool_] = np.cumsum(leaves, axis=1) - leaves == 0
    return here


def _gaps(chance: Array, whole: float, features: int, stream: Stream) -> NDArray[np.bool_]:
    """Which values (J, T, N) are missing: a visit's all with one chance, else each with the chance that is left."""
    at_once = stream.uniform(*chance.shape) < whole * chance
    single = chance * (1.0 - whole) / (1.0 - whole * chance)
    return at_once[..., None] | (stream.uniform(*chance.shape, features) < single[..., None])


def _chance(mean: float, slope: Array, where: NDArray[np.bool_] | Literal[True] = True) -> Array:
    """Chances (J, T) whose log-odds differ as `slope` does, with this mean over the visits `where`."""
    if mean == 0 or not slope.any():
        return np.full(slope.shape, mean)
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(middle + slope).mean(where=where) < mean else (low, middle)
    chances: Array = expit((low + high) / 2 + slope)
    return chances


def _table(names: tuple[str, ...], X: Array, times: Array, diagnosis: NDArray[np.str_], age: Array) -> "pd.DataFrame":
    from peephole.data.frames import pandas

    who, when = np.nonzero(~np.isnan(times))
    columns = {name: X[who, when, place] for place, name in enumerate(names)}
    digits = len(str(len(X)))
    ids = [f"S{j + 1:0{digits}d}" for j in who]
    rows = {"id": ids, "time": times[who, when], **columns, "diagnosis": diagnosis[who, when].tolist(), "age": age[who]}
    return pandas().DataFrame(rows)
