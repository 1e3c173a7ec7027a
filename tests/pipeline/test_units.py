"""attack.units=raw: a radius in the units of the file means the same to the attack, the certificate and the reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import skops.io
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from attacks import bracket
from pipeline.cache import StageStore
from pipeline.data import load_dataset
from pipeline.errors import UserError
from pipeline.identity import flat
from pipeline.labels import threat_of
from pipeline.stages.build import attack_constraints, build_attack
from pipeline.stages.experiment import Experiment
from pipeline.tracking.record import describe_run, flat_params
from pipeline.validation import validate

SIZES = np.array([10.0, 0.1, 200.0])


@pytest.fixture
def table(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    X = np.array([50.0, -3.0, 1000.0]) + (rng.normal(size=(120, 3)) + 1.5 * y[:, None]) * SIZES
    np.savez(tmp_path / "t.npz", X=X, y=y)
    return tmp_path / "t.npz", X, y


def settings(path: Path, scale: str, *more: str) -> list[str]:
    own = ["dataset=npz", f"dataset.path={path}", f"dataset.scale={scale}", "dataset.box=data", "tune=none"]
    return [*own, "checks=cheap", "figures=off", "attack.units=raw", *more]


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_the_cell_of_the_file_is_attacked_and_certified_as_in_the_file(table, tmp_path, composed, scale):
    path, X, y = table
    model = make_pipeline(StandardScaler(), SVC(C=3.0)).fit(X, y)
    skops.io.dump(model, tmp_path / "m.skops")
    epsilon = 0.05  # half a spread of the second feature, nothing for the others
    chosen = settings(path, scale, "model=fitted", f"model.path={tmp_path / 'm.skops'}", f"attack.epsilon={epsilon}")
    cfg = composed(*chosen)
    cfg.tune.enabled = False
    data = load_dataset(cfg.dataset)
    results = Experiment.of(cfg, data.fingerprint).run(StageStore(tmp_path / "stages"), data)
    known, result = results.evaluated.verdicts, results.attacked.result
    clean, moved = data.scaler.inverse_transform(data.X_test), data.scaler.inverse_transform(result.examples)
    change = np.abs(moved - clean)
    rounding = 1e-6 * np.abs(clean).max(axis=0)
    assert (change <= epsilon + rounding).all()
    assert change[:, 1].max() > 0.9 * epsilon
    # The same question to the same model, asked in the units of the file.
    raw = X[data.test_ids]
    low, high = np.minimum(X.min(axis=0), clean.min(axis=0)) - 1e-3, np.maximum(X.max(axis=0), clean.max(axis=0)) + 1e-3
    oracle = bracket(model, raw, y[data.test_ids], epsilon, "linf", box=(low, high))
    certified, broken = np.asarray(oracle.certified), np.asarray(oracle.broken)
    assert not (known.certified & broken).any()
    assert not (certified & known.broken).any()
    assert known.certified.any()
    assert known.broken.any()
    assert np.mean(known.certified == certified) > 0.9
    assert np.mean(known.broken == broken) > 0.9
    assert not [check for check in results.evaluated.checks if check.status == "fail"]
    # What is certified holds no L2 ball larger than the narrowest side of the cell.
    assert known.l2_inside == pytest.approx(epsilon / data.scaler.scale.max())
    # And the reader is told.
    assert known.shown == "L∞ 0.05 in raw units"
    assert "certified within L∞ 0.05 in raw units" in describe_run(cfg, results)
    params = flat_params(cfg, results)
    assert (params["threat.epsilon"], params["threat.units"]) == ("0.05", "raw")
    threat, bounded = threat_of(flat(cfg))
    assert (str(threat), bounded) == ("L∞ 0.05 in raw units", True)
    assert str(threat_of(flat(cfg) | {"attack.units": "scaled"})[0]) == "L∞ 0.05"


def test_a_unit_that_is_too_much_for_a_feature_is_told(table, tmp_path, composed):
    path, X, y = table
    skops.io.dump(make_pipeline(StandardScaler(), SVC()).fit(X, y), tmp_path / "m.skops")
    chosen = settings(path, "standard", "model=fitted", f"model.path={tmp_path / 'm.skops'}", "attack.epsilon=30")
    cfg = composed(*chosen)
    cfg.tune.enabled = False
    data = load_dataset(cfg.dataset)
    results = Experiment.of(cfg, data.fingerprint).run(StageStore(tmp_path / "stages"), data)
    (units,) = [check for check in results.evaluated.checks if check.id == "23_units"]
    assert units.status == "warn"
    assert units.message.startswith("L∞ 30 in raw units covers the range of 1 of 3 features")


@pytest.mark.parametrize("attack", ["pgd", "pgd_l2", "auto", "suite"])
def test_one_scale_for_all_features_is_a_division(table, composed, attack):
    path, _, _ = table
    cfg = composed(*settings(path, "200", f"attack={attack}", "attack.epsilon=5"))
    data = load_dataset(cfg.dataset)
    method = build_attack(cfg, data)
    assert method.epsilon == 5 / 200
    assert method.threat().epsilon == 5 / 200
    assert attack_constraints(cfg, data) is None
    if attack == "suite":
        assert {one.epsilon for one in method.members().values() if one.bounded} == {5 / 200}


def test_a_given_step_is_divided_too(table, composed):
    path, _, _ = table
    cfg = composed(*settings(path, "200", "attack.epsilon=5", "attack.step_size=1"))
    assert build_attack(cfg, load_dataset(cfg.dataset)).step_size == 1 / 200


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["attack=pgd_l2"], "attack.units=raw: dataset.scale gives every feature its own scale"),
        (["attack.step_size=0.1"], "attack.step_size: with attack.units=raw"),
        (["attack.units=metres"], "attack.units must be one of scaled, raw; got metres"),
        (["+attack.units=raw", "attack=cw"], "attack.units=raw: cw has no radius of its own"),
        (["tune=robust"], "tune.radius: with attack.units=raw"),
        (["model=dnn_standard"], "model.epsilon: with attack.units=raw"),
        (["attack=suite", "attack.attacks.pgd.units=raw"], "attack.attacks.pgd.units: one threat"),
    ],
)
def test_what_raw_units_cannot_mean_is_refused_in_one_line(table, composed, more, says):
    path, _, _ = table
    without = [item for item in settings(path, "standard") if not (item == "attack.units=raw" and "attack=cw" in more)]
    cfg = composed(*without, *more)

    def refuse():
        validate(cfg)
        build_attack(cfg, load_dataset(cfg.dataset))

    with pytest.raises(UserError) as refused:
        refuse()
    assert str(refused.value).startswith(says)
    assert "\n" not in str(refused.value)


def test_what_an_attacker_cannot_do_stays_forbidden(table, composed):
    path, _, _ = table
    cfg = composed(*settings(path, "standard", "attack.epsilon=1", "dataset.mutable=[0,2]", "dataset.monotone=[2]"))
    data = load_dataset(cfg.dataset)
    found = build_attack(cfg, data).constraints
    assert found.mask.tolist() == [False, True, False]
    assert found.direction.tolist() == [0, 0, 1]
    np.testing.assert_allclose(found.epsilon, 1 / data.scaler.scale)
