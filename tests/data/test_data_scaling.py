"""Units, boxes, classes and constraints: what is scaled, by which rows, and what an attacker may change."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.data import load_dataset, read_settings
from pipeline.data.tables import Scaler, fit_scaler
from pipeline.errors import UserError


def _file(tmp_path, n=80, seed=0, classes=2, **more):
    rng = np.random.default_rng(seed)
    X = rng.normal([40, 3000, 0, 5], [12, 900, 1, 0], (n, 4))
    np.savez(tmp_path / "x.npz", X=X, y=np.arange(n) % classes, **more)
    return X, {"name": "npz", "path": str(tmp_path / "x.npz")}


def _csv(tmp_path, n=80):
    rng = np.random.default_rng(1)
    lines = [f"{a:.3f},{b:.3f},{k % 2}" for k, (a, b) in enumerate(rng.normal([40, 3000], [12, 900], (n, 2)))]
    (tmp_path / "x.csv").write_text("\n".join(["age,income,label", *lines]) + "\n")
    return {"name": "csv", "path": str(tmp_path / "x.csv"), "scale": "standard"}


def test_standard_scaling_is_fitted_on_the_training_rows_only(data_dir, tmp_path):
    X, mine = _file(tmp_path)
    made = load_dataset(mine | {"scale": "standard"})
    train = X[made.train_ids]
    np.testing.assert_allclose(made.X_train[:, :3].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(made.X_train[:, :3].std(axis=0), 1, atol=1e-5)
    np.testing.assert_array_equal(made.X_train[:, 3], 0)
    expected = (X[made.test_ids, :3] - train[:, :3].mean(axis=0)) / train[:, :3].std(axis=0)
    np.testing.assert_allclose(made.X_test[:, :3], expected, atol=1e-5)
    assert "standardised" in made.notes[0]


@pytest.mark.parametrize(
    ("settings", "notes"),
    [
        ({"scale": "none", "box": "data"}, ["in a range of each feature (dataset.box)"]),
        ({"scale": "minmax"}, ["minmax of the training rows; test values beyond their range are clipped", "radii"]),
        ({"scale": "minmax", "box": "common"}, ["minmax of the training rows", "radii", "values lie in ["]),
        ({"scale": 10000, "box": [-10000, 10000]}, ["divided by 10000", "radii", "values lie in [-1, 1], in scaled"]),
        ({"scale": "none", "box": [-9000, 9000]}, ["values lie in [-9000, 9000]"]),
    ],
)
def test_the_notes_say_what_was_scaled_and_what_radii_mean(data_dir, tmp_path, settings, notes):
    _, mine = _file(tmp_path)
    said = load_dataset(mine | settings).notes
    assert len(said) == len(notes)
    for note, words in zip(said, notes, strict=True):
        assert words in note
    assert any("clipped" in note for note in said) == (settings == {"scale": "minmax"})
    assert ("radii are in these scaled units, unless they say raw" in said) == (settings["scale"] != "none")


@pytest.mark.parametrize("scale", ["minmax", "minmax_all", "standard", 100])
def test_test_rows_never_move_the_training_rows(data_dir, tmp_path, scale):
    X, _ = _file(tmp_path)
    y = np.arange(80) % 2
    prints = []
    for factor in (1, 5):
        np.savez(tmp_path / "x.npz", X_train=X[:60], y_train=y[:60], X_test=X[60:] * factor, y_test=y[60:])
        made = load_dataset({"name": "npz", "path": str(tmp_path / "x.npz"), "scale": scale, "box": "data"})
        prints.append(made.X_train_sha256)
    assert prints[0] == prints[1]


@pytest.mark.parametrize(("scale", "box"), [("standard", "data"), ("none", "data"), (10, "data"), ("minmax", "data")])
def test_the_box_of_the_data_holds_every_row_and_touches_it(data_dir, tmp_path, scale, box):
    _, mine = _file(tmp_path)
    made = load_dataset(mine | {"scale": scale, "box": box})
    rows = np.vstack([made.X_train, made.X_test])
    low, high = made.box
    assert low.shape == high.shape == (4,)
    np.testing.assert_array_equal(rows.min(axis=0), low)
    np.testing.assert_array_equal(rows.max(axis=0), high)


def test_standardised_rows_have_one_range_for_all_features_that_holds_them(data_dir, tmp_path):
    _, mine = _file(tmp_path)
    made = load_dataset(mine | {"scale": "standard"})
    rows = np.vstack([made.X_train, made.X_test])
    assert made.box == (rows.min(), rows.max())
    assert all(isinstance(side, float) for side in made.box)
    assert made.fingerprint == load_dataset(mine | {"scale": "standard", "box": "common"}).fingerprint
    assert any("an attacker's values lie in" in note for note in made.notes)
    assert load_dataset(mine | {"box": [-10_000, 10_000]}).box == (-10_000.0, 10_000.0)


@pytest.mark.parametrize(("factor", "offered"), [(255, True), (4000, False), (-255, False)])
def test_dividing_by_255_is_offered_for_pixels_only(data_dir, tmp_path, factor, offered):
    np.savez(tmp_path / "x.npz", X=np.random.default_rng(0).random((20, 3)) * factor, y=np.arange(20) % 2)
    with pytest.raises(UserError, match=r"^dataset\.scale: the training values run from") as refused:
        load_dataset({"name": "npz", "path": str(tmp_path / "x.npz")})
    assert ("dataset.scale=255" in str(refused.value)) == offered


def test_rows_outside_the_unit_box_need_a_word_about_it(data_dir, tmp_path):
    _, mine = _file(tmp_path)
    with pytest.raises(UserError, match=r"dataset\.scale: .*outside \[0, 1\].*dataset\.box=data"):
        load_dataset(mine)
    assert load_dataset(mine | {"scale": "minmax"}).box == (0.0, 1.0)


def test_a_given_box_is_in_the_units_of_the_file(data_dir, tmp_path):
    mine = _csv(tmp_path)
    made = load_dataset(mine | {"box": {"age": [-20, 120]}})
    raw = [made.scaler.inverse_transform(side) for side in made.box]
    np.testing.assert_allclose([raw[0][0], raw[1][0]], [-20, 120], rtol=1e-5)
    income = np.loadtxt(tmp_path / "x.csv", delimiter=",", skiprows=1)[:, 1]
    np.testing.assert_allclose([raw[0][1], raw[1][1]], [income.min(), income.max()], rtol=1e-5)
    whole = load_dataset(mine | {"box": [-1e4, 1e4]})
    np.testing.assert_allclose(whole.scaler.inverse_transform(whole.box[1]), 1e4, rtol=1e-5)
    assert len({made.fingerprint, whole.fingerprint, load_dataset(mine).fingerprint}) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"box": {"age": [50, 60]}}, r"dataset\.box: feature age of the training rows runs from .* outside"),
        ({"box": {"aeg": [0, 1]}}, r"dataset\.box: there is no feature 'aeg' \(did you mean age"),
        ({"box": [5, 1]}, r"dataset\.box: .* is not \[low, high\]"),
        ({"box": "everything"}, r"dataset\.box: .* is not \[low, high\]"),
        ({"box": [[0], [1, 2]]}, r"dataset\.box: .* is not \[low, high\]"),
        ({"mutable": ["height"]}, r"dataset\.mutable: there is no feature 'height'; known: age, income"),
        ({"mutable": "age"}, r"dataset\.mutable: 'age' is not a list"),
        ({"mutable": []}, r"dataset\.mutable"),
        ({"monotone": ["-height"]}, r"dataset\.monotone: there is no feature 'height'"),
        ({"monotone": ["age", "-age"]}, r"dataset\.monotone: age cannot only grow and only shrink"),
        ({"monotone": [""]}, r"dataset\.monotone: there is no feature ''"),
        ({"max_gb": 0}, r"dataset\.max_gb"),
        ({"image_shape": [2, 2]}, r"dataset\.image_shape: .* does not hold the 2 values"),
        ({"image_shape": "big"}, r"dataset\.image_shape"),
        ({"name": "a/b"}, r"dataset\.name: 'a/b' must be letters"),
        ({"max_train": 2}, r"dataset\.max_train: class . has one training row"),
    ],
)
def test_a_wrong_word_is_one_line_naming_its_setting(data_dir, tmp_path, changes, message):
    settings = read_settings("csv", _csv(tmp_path)) | changes
    with pytest.raises(UserError, match=message) as error:
        load_dataset(settings)
    assert "\n" not in str(error.value)


@settings(max_examples=60, deadline=None)
@example(np.where(np.eye(7, 3) * [1, 0, 0], 5e-324, 0.0), "minmax")
@given(
    arrays(np.float64, (7, 3), elements=st.floats(-1e6, 1e6)), st.sampled_from(["minmax", "minmax_all", "standard", 7])
)
def test_a_scaler_takes_raw_rows_there_and_back(X, setting):
    scaler, _ = fit_scaler(setting, X)
    again = Scaler.from_dict(json.loads(json.dumps(scaler.to_dict())))
    np.testing.assert_array_equal(again.transform(X), scaler.transform(X))
    back = scaler.inverse_transform(scaler.transform(X))
    np.testing.assert_allclose(back, X, atol=1e-5 * (1 + np.abs(X).max()))
    # ε in scaled units is ε · scale in the units of each feature.
    moved = Scaler(scaler.shift, scaler.scale).transform(X + scaler.raw_radius(0.25))
    np.testing.assert_allclose(moved - Scaler(scaler.shift, scaler.scale).transform(X), 0.25, atol=2e-3)


def test_what_an_attacker_may_change_is_carried_by_name(data_dir, tmp_path):
    mine = _csv(tmp_path)
    free = load_dataset(mine)
    made = load_dataset(mine | {"mutable": ["income"], "monotone": ["-income", "age"]})
    assert made.mutable.tolist() == [False, True]
    assert made.monotone.tolist() == [1, -1]
    assert (free.mutable, free.monotone) == (None, None)
    assert made.fingerprint != free.fingerprint
    _, arrays_only = _file(tmp_path)
    assert load_dataset(arrays_only | {"scale": "minmax", "mutable": [0, 3]}).mutable.tolist() == [
        True,
        False,
        False,
        True,
    ]


def test_all_ten_digits_are_embedded(data_dir):
    digits = load_dataset("digits")
    assert digits.class_names == tuple("0123456789")
    assert digits.n_classes == 10
    assert set(digits.y_train) == set(digits.y_test) == set(range(10))
    assert len(digits.y_train) + len(digits.y_test) == 1797
    from sklearn.datasets import load_digits

    np.testing.assert_array_equal(load_digits().target[digits.train_ids], digits.y_train)
    pair = load_dataset({"name": "digits", "classes": [1, 7]})
    assert pair.fingerprint == load_dataset("digits_1v7").fingerprint


def test_all_classes_of_a_file_are_numbered_in_the_order_of_their_names(data_dir, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 2)), np.array(["oak", "elm", "ash"] * 20)
    np.savez(tmp_path / "x.npz", X=X, y=y)
    mine = {"name": "npz", "path": str(tmp_path / "x.npz"), "classes": "all"}
    made = load_dataset(mine)
    assert made.class_names == ("ash", "elm", "oak")
    np.testing.assert_array_equal(np.array(made.class_names)[made.y_train], y[made.train_ids])
    np.savez(tmp_path / "x.npz", X_train=X, y_train=y, X_test=X, y_test=np.where(y == "oak", "fir", y))
    with pytest.raises(UserError, match=r"dataset\.classes: there is no class fir in the training rows"):
        load_dataset(mine)
    np.savez(tmp_path / "x.npz", X=X, y=np.arange(60) % 2)
    two = load_dataset(mine)
    assert set(two.y_train) == {-1, 1}
    assert two.fingerprint == load_dataset(mine | {"classes": None}).fingerprint


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_a_constant_column_stays_constant(data_dir, tmp_path, scale):
    X = np.random.default_rng(0).random((60, 2))
    X[:, 1] = 0.1  # its mean is not exactly 0.1
    np.savez(tmp_path / "x.npz", X=X, y=np.arange(60) % 2)
    made = load_dataset({"name": "npz", "path": str(tmp_path / "x.npz"), "scale": scale})
    np.testing.assert_allclose(made.X_train[:, 1], 0, atol=1e-12)


def test_names_of_classes_and_features_are_part_of_the_identity(data_dir, tmp_path):
    mine = _csv(tmp_path)
    first = load_dataset(mine).fingerprint
    text = (tmp_path / "x.csv").read_text()
    (tmp_path / "x.csv").write_text(text.replace("income", "salary"))
    assert load_dataset(mine).fingerprint != first


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((8, 8), (8, 8)), ((1, 8, 8), (8, 8)), ((8, 8, 1), (8, 8)), ((3, 4, 4), (3, 4, 4)), ((4, 4, 3), (4, 4, 3)),
        ((2, 4, 4), (32,)), ((2, 2, 2, 2), (16,)), ((5,), (5,)), ((1,), (1,)), ((1, 1, 6), (6,)),
    ],
)  # fmt: skip
def test_a_row_is_an_image_only_when_it_has_the_shape_of_one(data_dir, tmp_path, shape, expected):
    X = np.random.default_rng(0).random((20, *shape))
    np.savez(tmp_path / "x.npz", X=X, y=np.arange(20) % 2)
    made = load_dataset({"name": "npz", "path": str(tmp_path / "x.npz")})
    assert made.image_shape == expected
    np.testing.assert_array_equal(made.X_test, X[made.test_ids].reshape(len(made.test_ids), -1).astype(np.float32))


def test_flat_rows_become_images_by_a_setting(data_dir, tmp_path):
    np.savez(tmp_path / "x.npz", X=np.random.default_rng(0).random((20, 6)), y=np.arange(20) % 2)
    mine = {"name": "npz", "path": str(tmp_path / "x.npz"), "image_shape": [2, 3]}
    assert load_dataset(mine).image_shape == (2, 3)
