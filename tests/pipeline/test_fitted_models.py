"""model=fitted: somebody else's model, judged in the data's units and labels, opened safely."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import skops.io
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from attacks import PGD
from models import FittedClassifier, certify, load, save
from pipeline import fitted
from pipeline.data import load_dataset
from pipeline.errors import UserError
from pipeline.validation import fix_axes, validate
from runs import tracked

NAMES = ["length", "width", "weight"]


def rows(n: int = 90, classes: tuple[str, ...] = ("bad", "good")) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % len(classes)
    X = rng.normal(size=(n, 3)) + 2.0 * np.eye(3)[y % 3]
    return np.array([50.0, -3.0, 1000.0]) + X * np.array([10.0, 0.1, 200.0]), np.array(classes)[y]


@pytest.fixture
def table(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    X, y = rows()
    lines = [",".join([*NAMES, "label"]), *(",".join([*map(repr, map(float, x)), label]) for x, label in zip(X, y))]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    return tmp_path / "table.csv", X, y


def settings(path: Path, scale: str = "standard", classes: str = "null") -> list[str]:
    return ["dataset=csv", f"dataset.path={path}", f"dataset.scale={scale}", f"dataset.classes={classes}"]


@pytest.mark.parametrize("scale", ["standard", "minmax"])
@pytest.mark.parametrize("classes", ["[good,bad]", "[bad,good]"])
def test_a_model_of_raw_rows_is_judged_in_the_datas_units_and_labels(table, tmp_path, composed, scale, classes):
    path, X, y = table
    model = make_pipeline(StandardScaler(), SVC(C=3.0)).fit(X, y)
    skops.io.dump(model, tmp_path / "model.skops")
    cfg = composed(*settings(path, scale, classes), "model=fitted", f"model.path={tmp_path / 'model.skops'}")
    data = load_dataset(cfg.dataset)
    adopted = fitted.adopt(cfg, data)
    raw = data.scaler.inverse_transform(data.X_test)
    names = {-1: data.class_names[0], 1: data.class_names[1]}
    assert [names[label] for label in adopted.predict(data.X_test)] == model.predict(raw).tolist()
    result = PGD(epsilon=0.1, box=data.box)(adopted, data.X_test, data.y_test)
    certified = certify(adopted, data.X_test, data.y_test, 0.1, "linf", data.box)
    assert np.array_equal(result.success, adopted.predict(result.examples) != data.y_test)
    assert certified.any()
    assert not (certified & result.success).any()
    # Distances in scaled units: one standard deviation of a column is one.
    clean, broken = data.scaler.inverse_transform(data.X_test), data.scaler.inverse_transform(result.examples)
    assert (np.abs(broken - clean) <= data.scaler.raw_radius(0.1) * (1 + 1e-4)).all()


def test_a_fitted_model_is_kept_without_pickle(tmp_path):
    X, y = rows(classes=("a", "b", "c"))
    model = FittedClassifier(make_pipeline(StandardScaler(), SVC()).fit(X, y), [2, 0, 1], np.full(3, 2.0), np.ones(3))
    save(model, tmp_path / "kept")
    again = load(tmp_path / "kept")
    assert np.array_equal(again.predict(X / 2), model.predict(X / 2))
    assert again.classes_.tolist() == [2, 0, 1]


def test_a_model_of_sparse_rows_needs_no_trust(table, tmp_path, composed):
    from scipy import sparse

    path, X, y = table
    skops.io.dump(SVC().fit(sparse.csr_matrix(X / X.max(axis=0)), y), tmp_path / "m.skops")
    cfg = composed(*settings(path, "minmax"), "model=fitted", f"model.path={tmp_path / 'm.skops'}")
    data = load_dataset(cfg.dataset)
    adopted = fitted.adopt(cfg, data)
    assert set(adopted.predict(data.X_test)) <= {-1, 1}
    assert PGD(epsilon=0.1, box=data.box)(adopted, data.X_test, data.y_test).examples.shape == data.X_test.shape


def test_the_content_decides_and_not_the_name(tmp_path, composed, table):
    path, X, y = table
    for name, C in (("one", 1.0), ("two", 1.0), ("three", 5.0)):
        skops.io.dump(SVC(C=C).fit(X, y), tmp_path / f"{name}.skops")
    first = skops.io.dumps(SVC().fit(X, y))
    (tmp_path / "one.skops").write_bytes(first)
    (tmp_path / "two.skops").write_bytes(first)
    found = [
        fitted.digest(composed(*settings(path), "model=fitted", f"model.path={tmp_path / name}.skops"))
        for name in ("one", "two", "three")
    ]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("missing", "does not exist"),
        ("pickle", "is a pickle .* model.trust=true"),
        ("folder", "neither model.json nor MLmodel"),
        ("regression", "holds a LinearRegression, not a fitted classifier"),
        ("features", "takes 2 features, rows of csv have 3"),
        ("columns", "fitted with a column width where the data has length"),
        ("classes", "knows the classes x, y, the data of csv bad, good"),
        ("types", "does not trust by itself .*model.trust=true"),
        ("damaged", "cannot be read"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_line(table, tmp_path, composed, what, says):
    import pandas as pd

    path, X, y = table
    place = tmp_path / "model"
    if what == "pickle":
        place.write_bytes(pickle.dumps(SVC().fit(X, y)))
    elif what == "folder":
        place.mkdir()
    elif what == "damaged":
        place.write_bytes(b"PK\x03\x04" + bytes(200) + b"PK\x05\x06" + bytes(18))
    elif what != "missing":
        kinds = {
            "regression": lambda: LinearRegression().fit(X, y == "good"),
            "features": lambda: SVC().fit(X[:, :2], y),
            "columns": lambda: SVC().fit(pd.DataFrame(X, columns=NAMES[1:] + NAMES[:1]), y),
            "classes": lambda: SVC().fit(X, np.where(y == "good", "x", "y")),
        }
        if what == "types":
            model = SVC().fit(X, y)
            model.note = Path  # a type of no library that skops knows
            skops.io.dump(model, place)
        else:
            skops.io.dump(kinds[what](), place)
    cfg = composed(*settings(path), "model=fitted", f"model.path={place}")

    def refuse():
        fitted.check(cfg)
        fitted.adopt(cfg, load_dataset(cfg.dataset))

    with pytest.raises(UserError, match=says) as refused:
        refuse()
    assert "\n" not in str(refused.value)


def test_a_trusted_pickle_is_opened_and_nothing_is_tuned(table, tmp_path, composed):
    path, X, y = table
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(SVC().fit(X, y)))
    chosen = [*settings(path), "model=fitted", f"model.path={tmp_path / 'm.pkl'}", "model.trust=true"]
    cfg = composed(*chosen)
    assert fix_axes(cfg, chosen) == []
    validate(cfg)
    assert not cfg.tune.enabled
    assert isinstance(fitted.adopt(cfg, load_dataset(cfg.dataset)), FittedClassifier)
    with pytest.raises(UserError, match="nothing to tune"):
        fix_axes(composed(*chosen), [*chosen, "tune=paper"])


def test_a_run_of_a_fitted_pipeline_brackets_it(table, tmp_path, run_cli):
    path, X, y = table
    skops.io.dump(make_pipeline(StandardScaler(), SVC()).fit(X, y), tmp_path / "m.skops")
    arguments = (*settings(path), "model=fitted", f"model.path={tmp_path / 'm.skops'}", "attack.epsilon=0.1")
    done = run_cli(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "within L∞ 0.1: certified" in done.stdout
    assert "failed" not in done.stdout
    assert "Warning" not in done.stderr


def test_a_run_with_three_classes_a_box_per_feature_and_a_constrained_attacker(tmp_path, run_cli):
    X, y = rows(classes=("a", "b", "c"))
    lines = [",".join([*NAMES, "label"]), *(",".join([*map(repr, map(float, x)), label]) for x, label in zip(X, y))]
    (tmp_path / "three.csv").write_text("\n".join(lines))
    chosen = [*settings(tmp_path / "three.csv", "standard", "all"), "dataset.box=data", "attack.epsilon=0.5"]
    chosen += ["dataset.mutable=[width,weight]", "dataset.monotone=[-weight]", "model=svc", "tune.folds=2"]
    done = run_cli(*chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "within L∞ 0.5: certified" in done.stdout
    assert "failed" not in done.stdout
    (kept,) = (tmp_path / "mlruns" / "artifacts").glob("*/artifacts/adversarial/examples.npz")
    found = np.load(kept)
    clean = load_dataset({"name": "csv", "path": str(tmp_path / "three.csv"), "classes": "all", "scale": "standard"})
    moved = found["examples"] - clean.X_test[found["test_rows"]]
    assert (moved[:, 0] == 0).all()
    assert (moved[:, 2] <= 0).all()
    assert moved.any()


def test_what_has_labels_alone_of_three_classes_is_attacked_by_them(tmp_path, run_cli):
    X, y = rows(classes=("a", "b", "c"))
    lines = [",".join([*NAMES, "label"]), *(",".join([*map(repr, map(float, x)), label]) for x, label in zip(X, y))]
    (tmp_path / "three.csv").write_text("\n".join(lines))
    skops.io.dump(GaussianNB().fit(X, y), tmp_path / "bayes.skops")
    chosen = [*settings(tmp_path / "three.csv", "standard", "all"), "model=fitted"]
    done = run_cli(*chosen, f"model.path={tmp_path / 'bayes.skops'}", "attack=hop_skip_jump", "attack.max_queries=300")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout


@pytest.mark.parametrize("attack", ["auto", "zoo", "suite"])
def test_an_attack_that_asks_for_more_than_labels_is_refused_before_there_is_a_run(table, tmp_path, command, attack):
    skops.io.dump(GaussianNB().fit(*table[1:]), tmp_path / "bayes.skops")
    model = ["model=fitted", f"model.path={tmp_path / 'bayes.skops'}"]
    done = command(*settings(table[0]), *model, f"attack={attack}")
    assert done.returncode == 1
    assert f"error: attack={attack}: model FittedClassifier gives labels only" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not tracked(tmp_path)


def test_two_class_machines_of_others_are_refused_more_classes(tmp_path, composed):
    from pipeline.stages.build import build_model

    X, y = rows(classes=("a", "b", "c"))
    np.savez(tmp_path / "three.npz", X=X, y=y)
    cfg = composed(
        "dataset=npz", f"dataset.path={tmp_path / 'three.npz'}", "dataset.scale=minmax", "dataset.classes=all"
    )
    cfg.model = {"_target_": "test_fitted_models.TwoClasses", "name": "mine"}
    with pytest.raises(UserError, match="model=mine: it tells two classes apart, the data have 3"):
        build_model(cfg.model, load_dataset(cfg.dataset), 0)


class TwoClasses:
    def scores(self, X):
        return X[:, 0]
