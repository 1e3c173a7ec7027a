"""Data of the user's own: npz and CSV, two classes by name, scaled explicitly into [0, 1]."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.data import load_dataset
from pipeline.errors import UserError


def _rows(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, 6)), np.array(["cat", "dog"] * (n // 2))


def _npz(path, **changes):
    return {"name": "npz", "path": str(path), **changes}


def test_an_npz_with_one_table_is_split_by_class_and_seed(data_dir, write_npz):
    X, y = _rows()
    path = write_npz(X=X, y=y)
    made = load_dataset(_npz(path, classes=["dog", "cat"]))
    assert (len(made.X_train), len(made.X_test)) == (30, 10)
    assert made.y_test.sum() == 0
    assert made.class_names == ("cat", "dog")
    np.testing.assert_array_equal(made.X_test, X[made.test_ids].astype(np.float32))
    np.testing.assert_array_equal(made.y_test, np.where(y[made.test_ids] == "dog", 1, -1))
    assert load_dataset(_npz(path, classes=["dog", "cat"], split_seed=1)).fingerprint != made.fingerprint
    assert len(load_dataset(_npz(path, test_fraction=0.5)).X_test) == 20


def test_an_npz_with_its_own_split_keeps_it(data_dir, write_npz):
    (X, y), (X_test, y_test) = _rows(), _rows(10, seed=1)
    made = load_dataset(_npz(write_npz(X_train=X, y_train=y, X_test=X_test, y_test=y_test)))
    np.testing.assert_array_equal(made.X_test, X_test.astype(np.float32))
    np.testing.assert_array_equal(made.train_ids, np.arange(40))


def test_images_keep_their_shape(data_dir, write_npz):
    X = np.random.default_rng(0).integers(0, 256, (20, 5, 4, 3), dtype=np.uint8)
    made = load_dataset(_npz(write_npz(X=X, y=np.arange(20) % 2), scale=255))
    assert made.image_shape == (5, 4, 3)
    np.testing.assert_array_equal(made.X_train, (X[made.train_ids].reshape(-1, 60) / 255).astype(np.float32))


def test_scaling_is_explicit_and_ends_in_the_unit_interval(data_dir, write_npz):
    X, y = _rows()
    path = write_npz(X=X * 90 - 30, y=y)
    with pytest.raises(UserError, match=r"dataset\.scale: .*outside \[0, 1\]"):
        load_dataset(_npz(path))
    with pytest.raises(UserError, match=r"dataset\.scale: .*outside \[0, 1\]"):
        load_dataset(_npz(path, scale=255))
    columns = load_dataset(_npz(path, scale="minmax"))
    np.testing.assert_array_equal(columns.X_train.min(axis=0), 0)
    np.testing.assert_array_equal(columns.X_train.max(axis=0), 1)
    assert columns.X_test.min() >= 0
    assert columns.X_test.max() <= 1
    together = load_dataset(_npz(path, scale="minmax_all"))
    assert (together.X_train.min(), together.X_train.max()) == (0, 1)
    assert together.fingerprint != columns.fingerprint
    assert "minmax" in columns.notes[0]


@pytest.mark.parametrize("scale", ["maxmin", 0, -1, True, "nan"])
def test_an_unknown_scale_lists_the_known_ones(data_dir, write_npz, scale):
    X, y = _rows()
    with pytest.raises(UserError, match=r"dataset\.scale: .*minmax"):
        load_dataset(_npz(write_npz(X=X, y=y), scale=scale))


def test_a_constant_column_survives_minmax(data_dir, write_npz):
    X, y = _rows()
    X[:, 2] = 7.0
    assert (load_dataset(_npz(write_npz(X=X, y=y), scale="minmax")).X_train[:, 2] == 0).all()


_X, _Y = _rows()


@pytest.mark.parametrize(
    ("arrays", "changes", "message"),
    [
        ({"images": _X, "labels": _Y}, {}, r"dataset\.path: .* holds images, labels; it must hold X, y"),
        ({"X": _X}, {}, r"dataset\.path: .* holds X; it must hold"),
        ({"X": _X, "y": np.arange(40) % 3}, {}, r"dataset\.classes: the labels hold 3 classes \(0, 1, 2\)"),
        ({"X": _X, "y": np.zeros(40)}, {}, r"dataset\.path: all labels are of one class \(0\)"),
        ({"X": _X, "y": _Y}, {"classes": ["dog", "cow"]}, r"dataset\.classes: there is no class cow .*cat, dog"),
        ({"X": _X, "y": _Y[:-1]}, {}, r"dataset\.path: 40 training rows, but labels of shape \(39,\)"),
        ({"X": _X[:, 0], "y": _Y}, {}, r"dataset\.path: .* shape \(40,\)"),
        ({"X": _X[:0], "y": _Y[:0]}, {}, r"dataset\.path"),
        ({"X": np.where(_X > 0.99, np.nan, _X), "y": _Y}, {}, r"dataset\.path: .*NaN"),
        ({"X": _X * np.inf, "y": _Y}, {"scale": "minmax"}, r"dataset\.path: .*infinite"),
        ({"X": _X.astype(str), "y": _Y}, {}, r"dataset\.path: .*must be numbers"),
        ({"X": _X, "y": np.array([*_Y], dtype=object)}, {}, r"dataset\.path: .*not an npz of plain arrays"),
        ({"X": _X, "y": np.full(40, np.nan)}, {}, r"dataset\.path: .*labels"),
        ({"X": _X, "y": np.array(["a"] * 39 + ["b"])}, {}, r"dataset\.path: class b has fewer than two rows"),
        ({"X": _X, "y": _Y}, {"test_fraction": 1.5}, r"dataset\.test_fraction"),
        (
            {"X_train": _X, "y_train": _Y, "X_test": _X[:, :3], "y_test": _Y},
            {},
            r"dataset\.path: training rows have 6 values, test rows 3",
        ),
        (
            {"X_train": _X, "y_train": _Y, "X_test": _X, "y_test": np.array(["cow"] * 40)},
            {},
            r"dataset\.classes: there is no class dog",
        ),
    ],
)
def test_an_unusable_npz_is_one_line_naming_the_setting(data_dir, tmp_path, arrays, changes, message):
    np.savez(tmp_path / "my.npz", **arrays)
    with pytest.raises(UserError, match=message) as error:
        load_dataset(_npz(tmp_path / "my.npz", **changes))
    assert "\n" not in str(error.value)
    assert not (data_dir / "manifests").exists()


def test_a_broken_missing_or_unnamed_npz_is_named(data_dir, tmp_path, write_npz):
    X, y = _rows()
    path = write_npz(X=X, y=y)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(UserError, match=r"dataset\.path: .*damaged"):
        load_dataset(_npz(path))
    with pytest.raises(UserError, match=r"dataset\.path: .* does not exist"):
        load_dataset(_npz(tmp_path / "nowhere.npz"))
    with pytest.raises(UserError, match=r"dataset\.path: name your file"):
        load_dataset("npz")
    np.save(tmp_path / "single.npy", X)
    with pytest.raises(UserError, match=r"dataset\.path: .*not an npz"):
        load_dataset(_npz(tmp_path / "single.npy"))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "flowers.csv"
    rng = np.random.default_rng(0)
    lines = ["length,width,species"]
    lines += [f"{rng.random() * 8:.4f},{rng.random() * 4:.4f},{name}" for name in ["iris", "rose", "oak"] * 20]
    path.write_text("\n".join(lines) + "\n")
    return path


def _csv(path, **changes):
    return {"name": "csv", "path": str(path), "label": "species", "scale": "minmax", **changes}


def test_a_csv_gives_two_classes_by_name(data_dir, table):
    made = load_dataset(_csv(table, classes=["rose", "oak"]))
    assert (len(made.X_train), len(made.X_test)) == (30, 10)
    assert made.class_names == ("oak", "rose")
    assert made.image_shape == (2,)
    rows = [line.split(",")[2] for line in table.read_text().splitlines()[1:]]
    assert all(rows[i] == "rose" for i in made.train_ids[made.y_train == 1])


def test_a_csv_may_bring_its_test_file_and_separator(data_dir, table, tmp_path):
    other = tmp_path / "test.csv"
    other.write_text(table.read_text())
    made = load_dataset(_csv(table, classes=["rose", "oak"], test_path=str(other)))
    assert (len(made.X_train), len(made.X_test)) == (40, 40)
    table.write_text(table.read_text().replace(",", ";"))
    assert len(load_dataset(_csv(table, classes=["rose", "oak"], separator=";")).X_train) == 30
    with pytest.raises(UserError, match=r"dataset\.separator: .* is one column.*dataset\.separator=';'"):
        load_dataset(_csv(table, classes=["rose", "oak"], test_path=str(other)))


def test_numeric_labels_of_a_csv_are_written_as_numbers(data_dir, tmp_path):
    path = tmp_path / "n.csv"
    path.write_text("a,label\n" + "".join(f"0.{k % 10},{k % 2}\n" for k in range(40)))
    made = load_dataset({"name": "csv", "path": str(path), "classes": [0, 1]})
    assert made.class_names == ("1", "0")


@pytest.mark.parametrize(
    ("change", "text", "message"),
    [
        ({}, None, r"dataset\.classes: the labels hold 3 classes \(iris, oak, rose\)"),
        ({"label": "specie"}, None, r"dataset\.label: .*did you mean species"),
        ({"classes": ["rose", "elm"]}, None, r"dataset\.classes: there is no class elm"),
        ({"scale": "none", "classes": ["rose", "oak"]}, None, r"dataset\.scale"),
        ({"test_path": "nowhere.csv"}, None, r"dataset\.test_path: .* does not exist"),
        (
            {},
            "a,colour,species\n1,red,x\n2,blue,y\n",
            r"dataset\.path: column 'colour' .* is not numeric.*'red'",
        ),
        ({}, "a,species\n1,x\n,y\n1,x\n3,y\n", r"dataset\.path: .*NaN"),
        ({}, "a,species\n1,x\n2,\n", r"dataset\.label: .* has gaps"),
        ({}, "", r"dataset\.path: .* is not a readable CSV"),
        ({}, "species\nx\ny\n", r"dataset\.path: .* shape \(2, 0\)"),
        ({}, 'a,b\n1,"2\n', r"dataset\.path: .* is not a readable CSV"),
    ],
)
def test_an_unusable_csv_is_one_line_naming_the_setting(data_dir, table, change, text, message):
    if text is not None:
        table.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        load_dataset(_csv(table, **change))
    assert "\n" not in str(error.value)
