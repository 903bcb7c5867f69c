"""The estimator: its manners, its forecasts, its folder."""

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from peephole.data import DataWarning, Grid, folds, synthetic, to_grid
from peephole.progression import LEVELS, ProgressionError, ProgressionModel, evaluate
from peephole.progression.networks import Inputs, residual
from peephole.progression.trajectories import trajectories

QUICK: dict[str, Any] = {"seeds": 5, "epochs": 30}


@pytest.fixture(scope="module")
def parts() -> tuple[Grid, Grid]:
    """A made-up cohort with 30% missing, split by subject."""
    grid = to_grid(synthetic.cohort(200, visits=8, missing=0.3, seed=0).table)
    train, test = next(folds(grid, 4, seed=0))
    return grid.take(train), grid.take(test)


@pytest.fixture(scope="module")
def model(parts: tuple[Grid, Grid]) -> ProgressionModel:
    """The default architecture, trained for a short time."""
    return ProgressionModel(**QUICK).fit(parts[0])


def test_manners() -> None:
    """get_params, set_params and scikit-learn's clone work; the representation tells what differs."""
    model = ProgressionModel(seeds=3, fill="zero")
    assert model.get_params()["seeds"] == 3
    other = clone(model)
    assert other is not model
    assert other.get_params() == model.get_params()
    assert other.set_params(epochs=7).epochs == 7
    assert repr(model) == "ProgressionModel(seeds=3, fill='zero')"
    with pytest.raises(ProgressionError, match="no parameter 'seedz'"):
        model.set_params(seedz=1)
    with pytest.raises(ProgressionError, match="not fitted"):
        model.forecast(pd.DataFrame())


def test_beats_the_baselines(model: ProgressionModel, parts: tuple[Grid, Grid]) -> None:
    """On unseen subjects it beats every baseline at every horizon; its intervals cover, and it tells diagnoses."""
    found = evaluate(model, parts[1])
    assert found.months.tolist() == [12, 24, 36, 48, 60]
    assert found.wins
    assert (found.mean["model"] < 0.95 * found.mean["last value"]).all()
    for place, level in enumerate(LEVELS):
        assert found.covered[place] == pytest.approx(np.full(5, level), abs=0.12)  # 50 subjects
    assert found.mauc is not None
    assert (found.mauc > 0.7).all()


def test_a_random_head_loses(model: ProgressionModel, parts: tuple[Grid, Grid]) -> None:
    """The same networks with a head that was drawn at random lose to a baseline: the check can fail."""
    lost = copy.deepcopy(model)
    head = lost.networks_.weights["head_weight"]
    head.copy_(0.3 * torch.randn(head.shape, generator=torch.Generator().manual_seed(0)))
    assert not evaluate(lost, parts[1]).wins


def test_tidy_forecasts(model: ProgressionModel) -> None:
    """A row for each subject and horizon in the table's units; intervals are nested and hold the forecast."""
    table = synthetic.cohort(6, visits=4, seed=5).table
    found = model.forecast(table, [6, 12, 36])
    assert len(found) == 18
    assert found["horizon"].tolist()[:3] == [6, 12, 36]
    last = table.groupby("id", sort=False)["time"].max()
    assert found["origin"].to_numpy()[::3] == pytest.approx(last.to_numpy())
    assert (found["time"] == found["origin"] + found["horizon"]).all()
    for name in model.features_:
        ends = [found[f"{name}_{end}"] for end in ("lower90", "lower50", "upper50", "upper90")]
        ordered = np.stack([ends[0], ends[1], found[name], ends[2], ends[3]])
        assert (np.diff(ordered, axis=0) >= 0).all()
        assert ordered.min() > table[name].min() - 5 * table[name].std()
    assert found[["p_CN", "p_MCI", "p_AD"]].sum(axis=1).to_numpy() == pytest.approx(np.ones(18))


def test_horizons_are_one_path(model: ProgressionModel) -> None:
    """Which horizons are asked for together changes nothing; between two steps lies their mean; `next` is one step."""
    table = synthetic.cohort(5, visits=4, jitter=0.0, seed=6).table
    name = model.features_[0]
    several = model.forecast(table, [12, 18, 24, 96])
    alone = [model.forecast(table, [month])[name].to_numpy() for month in (12, 18, 24, 96)]
    np.testing.assert_allclose(several[name].to_numpy().reshape(5, 4).T, alone, rtol=1e-6)
    np.testing.assert_allclose(alone[1], (alone[0] + alone[2]) / 2, rtol=1e-9)
    pd.testing.assert_frame_equal(model.forecast(table, step="next"), model.forecast(table, [12]))
    running = model.forecast(table, [12, 24], free_running=True)[name].to_numpy().reshape(5, 2)
    np.testing.assert_allclose(running[:, 0], alone[0], rtol=1e-6)
    assert not np.allclose(running[:, 1], alone[2], rtol=1e-6)  # at once is not step by step


def test_only_the_past_counts(model: ProgressionModel, parts: tuple[Grid, Grid]) -> None:
    """Forecasts from a visit do not depend on what follows, nor on the other subjects or empty visits at the end."""
    X = model.standardised(parts[1])[:10]
    whole = model.networks_.forecasts(X, 3)
    later = X.copy()
    later[:, 4:] = 7.0
    np.testing.assert_array_equal(model.networks_.forecasts(later, 3)[:, :4], whole[:, :4])
    assert (model.networks_.forecasts(later, 3)[:, 4:] != whole[:, 4:]).any()
    padded = np.concatenate([X, np.full_like(X, np.nan)], axis=1)
    np.testing.assert_allclose(model.networks_.forecasts(padded, 3)[:, :8], whole, atol=2e-6)
    np.testing.assert_allclose(model.networks_.forecasts(X[:1], 3), whole[:1], atol=2e-6)


def test_every_origin(model: ProgressionModel, parts: tuple[Grid, Grid]) -> None:
    """From every visit as from the last: the rows of last visits are the same."""
    every, last = (model.forecast(parts[1], [12], origin=origin) for origin in ("every", "last"))
    assert len(every) > 3 * len(last)
    tail = every.groupby("id", sort=False).tail(1).reset_index(drop=True)
    np.testing.assert_allclose(tail["MidTemp_ICV"], last["MidTemp_ICV"], rtol=1e-5)


def test_logarithms(tmp_path: Path) -> None:
    """A feature modelled as its logarithm has forecasts above zero, and intervals that grow with its level."""
    table = synthetic.cohort(80, visits=5, missing=0.1, jitter=0.0, seed=4).table.drop(columns="diagnosis")
    name = "Ventricles_ICV"
    table[name] = np.exp(60 * (table[name] - table[name].mean()))
    model = ProgressionModel(seeds=5, epochs=10, horizons=2, logarithms=[name]).fit(table)
    found = ProgressionModel.load(model.save(tmp_path / "m")).forecast(table, step="next")
    width, level = found[f"{name}_upper90"] - found[f"{name}_lower90"], found[name]
    assert (found[f"{name}_lower90"] > 0).all()
    np.testing.assert_allclose(width / level, (width / level)[0], rtol=1e-9)
    assert evaluate(model, model.grid(table)).features[0] == f"log {name}"
    plain = ProgressionModel(seeds=5, epochs=10, horizons=2).fit(table).forecast(table, step="next")
    assert np.ptp(plain[f"{name}_upper90"] - plain[f"{name}_lower90"]) < 1e-9 < np.ptp(width)
    with pytest.raises(ProgressionError, match="not above 0"):
        model.forecast(table.assign(**{name: -1.0}), step="next")


@pytest.mark.parametrize("fill", ["zero", "scaled", "unit-variance", "model", "forward"])
def test_fills(fill: str, parts: tuple[Grid, Grid]) -> None:
    """Every fill trains in both architectures; in the default one it beats the training mean."""
    small = parts[0].take(np.arange(60))
    for architecture in ("residual", "paper"):
        model = ProgressionModel(architecture=architecture, seeds=2, epochs=5, horizons=2, fill=fill).fit(small)
        found = evaluate(model, parts[1])
        assert np.isfinite(found.mean["model"]).all()
        if architecture == "residual":
            assert (found.mean["model"] < found.mean["training mean"]).all()


def test_model_fill_takes_the_forecast() -> None:
    """With the model fill, a gap behaves as a visit at which the network's own forecast was observed."""
    grid = to_grid(synthetic.cohort(40, visits=5, missing=0.2, seed=3).table)
    model = ProgressionModel(seeds=1, epochs=3, horizons=1, fill="model").fit(grid)
    X = model.standardised(grid)[:, :3]
    inputs = Inputs.of(X, "model")
    weights = model.networks_.weights
    outputs = residual(weights, inputs, 1)[0, :, :, 0]
    assert inputs.own is not None
    filled = inputs.visit.clone()
    filled[1:] = torch.where(inputs.own[1:], outputs[:-1], inputs.visit[1:])
    filled[0] = torch.where(inputs.own[0], 0.0, inputs.visit[0])
    by_hand = residual(weights, Inputs(filled, inputs.known, None), 1)[0, :, :, 0]
    torch.testing.assert_close(by_hand, outputs, rtol=1e-5, atol=1e-5)


def test_same_seed_same_bits(tmp_path: Path, parts: tuple[Grid, Grid]) -> None:
    """The same seed gives the same bytes for one thread and for two; another seed does not."""
    small = parts[0].take(np.arange(50))
    before, written = torch.get_num_threads(), []
    try:
        for place, (threads, seed) in enumerate([(1, 0), (2, 0), (2, 1)]):
            torch.set_num_threads(threads)
            for architecture in ("residual", "paper"):
                model = ProgressionModel(architecture=architecture, seeds=6, epochs=5, horizons=2, seed=seed)
                model.fit(small).save(tmp_path / f"{architecture}-{place}")
    finally:
        torch.set_num_threads(before)
    for architecture in ("residual", "paper"):
        written = [(tmp_path / f"{architecture}-{place}" / "model.safetensors").read_bytes() for place in range(3)]
        assert written[0] == written[1]
        assert written[0] != written[2]


def test_networks_hold_out_subjects(parts: tuple[Grid, Grid]) -> None:
    """With one network, a fifth of the subjects calibrates; what they are worth does not enter its training."""
    model = ProgressionModel(seeds=1, epochs=3).fit(parts[0])
    every = ProgressionModel(seeds=5, epochs=3).fit(parts[0])
    assert model.intervals_.counts[0] == pytest.approx(every.intervals_.counts[0] / 5, rel=0.25)


def test_save_and_load(tmp_path: Path, model: ProgressionModel) -> None:
    """A loaded model forecasts the same, to the bit, and its folder is written again with the same bytes."""
    table = synthetic.cohort(5, visits=4, seed=8).table
    loaded = ProgressionModel.load(model.save(tmp_path / "m"))
    pd.testing.assert_frame_equal(loaded.forecast(table), model.forecast(table), check_exact=True)
    assert loaded.get_params() == model.get_params()
    again = loaded.save(tmp_path / "again")
    assert (again / "model.safetensors").read_bytes() == (tmp_path / "m" / "model.safetensors").read_bytes()


def _sealed(folder: Path, change: Any) -> None:
    """Change the document and give it a checksum that fits."""
    from peephole.progression.storage import _digest

    path = folder / "model.json"
    document = json.loads(path.read_text())
    change(document)
    document.pop("sha256")
    path.write_text(json.dumps(document | {"sha256": _digest(document)}))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", lambda p: p.write_bytes(p.read_bytes()[:-10]), "model.safetensors: not the bytes"),
        ("model.safetensors", lambda p: p.write_bytes(p.read_bytes()[:-1] + b"x"), "model.safetensors: not the bytes"),
        ("model.safetensors", lambda p: p.unlink(), "model.safetensors: No such file"),
        ("model.json", lambda p: p.write_text(p.read_text()[:200]), "model.json: not JSON"),
        ("model.json", lambda p: p.write_text(p.read_text().replace("MidTemp", "MidTamp")), "checksum does not match"),
        ("model.json", lambda p: p.write_text("{}"), "not a model of"),
        ("model.json", lambda p: _sealed(p.parent, lambda d: d.update(version=99)), "format version 99"),
        ("model.json", lambda p: _sealed(p.parent, lambda d: d["content"]["parameters"].update(x=1)), "no model that"),
        ("model.json", lambda p: _sealed(p.parent, lambda d: d["content"].update(horizons=4)), "expected shape"),
        ("model.json", lambda p: _sealed(p.parent, lambda d: d["content"].update(features=[1])), "not what they"),
    ],
)
def test_damage_is_refused(tmp_path: Path, model: ProgressionModel, name: str, damage: Any, message: str) -> None:
    """A folder that was cut, changed or made up is refused with the file and what is wrong with it."""
    folder = model.save(tmp_path / "m")
    damage(folder / name)
    with pytest.raises(ProgressionError, match=message):
        ProgressionModel.load(folder)


def test_folders(tmp_path: Path, model: ProgressionModel) -> None:
    """Nothing else is overwritten by a model; an earlier model is; what is no folder is refused."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ProgressionError, match="something else"):
        model.save(tmp_path)
    with pytest.raises(ProgressionError, match="a file"):
        model.save(tmp_path / "notes.txt")
    with pytest.raises(ProgressionError, match="no such folder"):
        ProgressionModel.load(tmp_path / "none")
    assert model.save(model.save(tmp_path / "m")) == tmp_path / "m"


def test_odd_tables(parts: tuple[Grid, Grid]) -> None:
    """Features without spread are left out with a warning; too little to learn from is refused in one line."""
    table = parts[0].take(np.arange(40)).to_table()
    table["blank"], table["flat"] = np.nan, np.arange(len(table)) % 2 * 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = ProgressionModel(seeds=1, epochs=1).fit(table)
    assert "blank" not in model.features_
    first = to_grid(table[["id", "time", *model.features_]].groupby("id").head(1), features=model.features_)
    with pytest.raises(ProgressionError, match="nothing to learn from"):
        ProgressionModel(seeds=1, epochs=1).fit(first)
    with pytest.raises(ProgressionError, match="finite and above 0"):
        model.forecast(parts[1], [-3])
    with pytest.raises(ProgressionError, match="1200 at most"):
        model.forecast(parts[1], [1e6])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"architecture": "grand"}, "architecture 'grand'"),
        ({"seeds": 0}, "seeds = 0"),
        ({"fill": "x"}, "fill 'x'"),
        ({"method": "x"}, "method 'x'"),
        ({"rate": -1.0}, "rate = -1"),
    ],
)
def test_wrong_parameters(wrong: dict[str, Any], message: str, parts: tuple[Grid, Grid]) -> None:
    """A parameter out of its range is named when the model is fitted."""
    with pytest.raises(ProgressionError, match=message):
        ProgressionModel(**wrong).fit(parts[0])


def test_nobody_with_the_features(model: ProgressionModel, parts: tuple[Grid, Grid]) -> None:
    """Subjects of whom nothing was observed are left out of a forecast, and told."""
    grid = parts[1].take(np.arange(5))
    grid.X[2] = np.nan
    with pytest.warns(DataWarning, match="1 of 5 subjects left out"):
        found = model.forecast(grid, step="next")
    assert len(found) == 4


def test_trajectories(model: ProgressionModel, parts: tuple[Grid, Grid]) -> None:
    """Those seen most often, forecast from half way: what came later does not change the forecast."""
    drawn = trajectories(model, parts[1], 3)
    assert len(drawn) == 3
    assert all((one.times > one.origin).any() for one in drawn)
    assert drawn[0].ends.shape == (2, 2, 6, 6)
    changed = parts[1].take(np.arange(len(parts[1].subjects)))
    changed.X[:, 6:] += np.where(np.isnan(changed.X[:, 6:]), 0.0, 0.1)
    np.testing.assert_array_equal(trajectories(model, changed, 3)[0].points, drawn[0].points)
