"""What every dataset promises, whatever its source."""

from __future__ import annotations

import textwrap
import time

import numpy as np
import pytest
from omegaconf import OmegaConf

from pipeline.data import build_dataset, dataset_names, fingerprint, load_dataset, read_settings, summary
from pipeline.data import settings as settings_module
from pipeline.data.rows import binary_labels, stratified_split, stratified_subsample
from pipeline.errors import UserError


def _parts(**changes):
    rng = np.random.default_rng(0)
    parts = {
        "name": "made",
        "X_train": rng.random((8, 4), dtype=np.float32),
        "y_train": np.array([1, -1] * 4),
        "X_test": rng.random((4, 4), dtype=np.float32),
        "y_test": np.array([1, -1] * 2),
        "image_shape": (2, 2),
        "class_names": ("b", "a"),
        "train_ids": np.arange(8),
        "test_ids": np.arange(4),
        "source": "made by the test",
    }
    return parts | changes


def test_the_paper_s_six_datasets_and_the_open_ones_are_there():
    assert {
        "digits_1v7",
        "mnist_1v7",
        "mnist_8v9",
        "cifar10_automobile_truck",
        "cifar10_dog_horse",
        "mnist8m_0v4",
        "mnist8m_6v8",
        "npz",
        "csv",
    } <= set(dataset_names())


@pytest.mark.parametrize("name", dataset_names())
def test_every_yaml_names_itself_and_a_loader_that_exists(name):
    from pipeline.data.loading import loader_module

    settings = read_settings(name)
    assert settings["name"] == name
    loader_module(settings)


def test_digits_come_scaled_labelled_and_split(data_dir):
    digits = load_dataset("digits_1v7")
    assert digits.X_train.shape == (270, 64)
    assert digits.X_test.shape == (91, 64)
    assert digits.X_train.dtype == np.float32
    assert digits.y_train.dtype == np.int64
    assert 0.0 <= digits.X_train.min() < digits.X_train.max() == 1.0
    assert set(digits.y_train) == {-1, 1}
    assert digits.class_names == ("7", "1")
    assert digits.image_shape == (8, 8)
    assert not set(digits.train_ids) & set(digits.test_ids)


def test_the_first_named_class_is_positive(data_dir):
    one_first = load_dataset("digits_1v7")
    seven_first = load_dataset({"name": "digits_1v7", "classes": [7, 1]})
    from sklearn.datasets import load_digits

    labels = load_digits().target
    assert (labels[one_first.train_ids[one_first.y_train == 1]] == 1).all()
    assert (labels[seven_first.train_ids[seven_first.y_train == 1]] == 7).all()


def test_settings_may_be_a_name_a_mapping_or_a_config_node(data_dir):
    settings = read_settings("digits_1v7")
    prints = {load_dataset(form).fingerprint for form in ("digits_1v7", settings, OmegaConf.create(settings))}
    assert len(prints) == 1


def test_same_content_same_fingerprint_and_any_change_changes_it():
    first = build_dataset(**_parts()).fingerprint
    assert first == build_dataset(**_parts()).fingerprint
    assert first == build_dataset(**_parts(name="other", source="elsewhere")).fingerprint
    pixels = _parts()["X_train"].copy()
    pixels[3, 2] = np.nextafter(pixels[3, 2], np.float32(1))
    for change in (
        {"X_train": pixels},
        {"y_test": np.array([-1, 1, 1, -1])},
        {"train_ids": np.arange(1, 9)},
        {"image_shape": (4, 1)},
    ):
        assert build_dataset(**_parts(**change)).fingerprint != first


def test_a_known_fingerprint_needs_no_loading(data_dir, tmp_path, monkeypatch):
    loaded = load_dataset("digits_1v7")
    monkeypatch.setattr("pipeline.data.loading.loader_module", lambda settings: pytest.fail("it was loaded again"))
    start = time.perf_counter()
    assert fingerprint("digits_1v7") == loaded.fingerprint
    assert time.perf_counter() - start < 0.25
    known = summary("digits_1v7")
    assert (known["n_train"], known["n_test"]) == (270, 91)


def test_a_fingerprint_belongs_to_its_settings(data_dir):
    load_dataset("digits_1v7")
    assert fingerprint({"name": "digits_1v7", "split_seed": 1}) != fingerprint("digits_1v7")


def test_a_changed_user_file_changes_the_remembered_fingerprint(data_dir, write_npz):
    rng = np.random.default_rng(0)
    X, y = rng.random((20, 4)), np.arange(20) % 2
    settings = {"name": "npz", "path": str(write_npz(X=X, y=y))}
    first = fingerprint(settings)
    assert fingerprint(settings) == first
    write_npz(X=X[::-1], y=y)
    assert fingerprint(settings) != first


def test_a_relative_path_is_another_file_in_another_folder(data_dir, tmp_path, monkeypatch):
    prints = []
    for seed, folder in enumerate((tmp_path / "a", tmp_path / "b")):
        folder.mkdir()
        np.savez(folder / "my.npz", X=np.random.default_rng(seed).random((20, 4)), y=np.arange(20) % 2)
        monkeypatch.chdir(folder)
        prints.append(fingerprint({"name": "npz", "path": "my.npz"}))
    assert prints[0] != prints[1]


def test_a_read_only_data_folder_is_no_obstacle(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    assert len(load_dataset("digits_1v7", data_dir=blocked).X_train) == 270


def test_a_subsample_is_stratified_seeded_and_recorded(data_dir):
    whole = load_dataset("digits_1v7")
    settings = {"name": "digits_1v7", "max_train": 100, "max_test": 20}
    part = load_dataset(settings)
    assert (len(part.X_train), len(part.X_test)) == (100, 20)
    assert abs(part.y_train.sum()) <= 2
    assert set(part.train_ids) <= set(whole.train_ids)
    assert part.fingerprint == load_dataset(settings).fingerprint != whole.fingerprint
    assert "subsample" in part.notes
    other = load_dataset(settings | {"split_seed": 5})
    assert set(other.train_ids) != set(part.train_ids)


@pytest.mark.parametrize("size", [0, 1, -5, 2.5, "many", True])
def test_a_senseless_subsample_names_its_setting(data_dir, size):
    with pytest.raises(UserError, match=r"dataset\.max_train"):
        load_dataset({"name": "digits_1v7", "max_train": size})


def test_splits_keep_proportions_and_lose_nothing():
    y = np.array([1] * 30 + [-1] * 70)
    train, test = stratified_split(y, 0.2, seed=3)
    assert sorted([*train, *test]) == list(range(100))
    assert (y[test] == 1).sum() == 6
    assert len(test) == 20
    assert not np.array_equal(test, stratified_split(y, 0.2, seed=4)[1])
    for size in (2, 3, 7, 50, 99):
        rows = stratified_subsample(y, size, seed=0)
        assert len(set(rows)) == size
        assert {-1, 1} == set(y[rows])


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"X_train": np.full((8, 4), np.nan)}, "dataset.path"),
        ({"X_train": np.full((8, 4), 1.5)}, "dataset.scale"),
        ({"X_test": np.full((4, 4), -0.1)}, "dataset.scale"),
        ({"X_test": np.zeros((4, 5))}, "dataset.path"),
        ({"X_train": np.zeros((8, 2, 2))}, "dataset.path"),
        ({"X_train": np.zeros((0, 4)), "y_train": []}, "dataset.path"),
        ({"y_train": np.ones(8)}, "dataset.classes"),
        ({"y_test": np.ones(4)}, "dataset.classes"),
        ({"y_train": np.array([1, -1])}, "dataset.path"),
        ({"image_shape": (3, 3)}, "dataset.path"),
    ],
)
def test_unusable_rows_are_refused_by_the_name_of_a_setting(change, setting):
    with pytest.raises(UserError) as error:
        build_dataset(**_parts(**change))
    assert setting in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("classes", "reason"),
    [
        ([1, 11], "no class 11"),
        ([1], "does not choose two"),
        ("17", "does not choose two"),
        ([1, 2, 3], "does not choose two"),
        ([4, 4], "twice"),
        (None, "choose two"),
    ],
)
def test_a_wrong_choice_of_classes_says_what_to_do(classes, reason):
    with pytest.raises(UserError, match=rf"dataset\.classes: .*{reason}"):
        binary_labels(np.arange(10), classes)


def test_classes_are_found_by_name_number_or_text():
    rows, y, names = binary_labels(np.array(["cat", "dog", "cow"]), ["dog", "cat"])
    assert (rows.tolist(), y.tolist(), names) == ([0, 1], [-1, 1], ("cat", "dog"))
    _, y, names = binary_labels(np.array([0.0, 1.0]), None)
    assert (y.tolist(), names) == ([-1, 1], ("0", "1"))
    _, y, _ = binary_labels(np.array([5, 7, 5]), ["horse", 5], {5: "dog", 7: "horse"})
    assert y.tolist() == [-1, 1, -1]
    with pytest.raises(UserError, match="same class"):
        binary_labels(np.array([5, 7, 5]), ["dog", 5], {5: "dog", 7: "horse"})


def test_typing_errors_get_the_nearest_known_word(data_dir):
    with pytest.raises(UserError, match="did you mean mnist_1v7"):
        load_dataset("mnist_1v")
    with pytest.raises(UserError, match=r"dataset\.max_trian: no such setting \(did you mean max_train"):
        read_settings("digits_1v7", ["max_trian=3"])
    with pytest.raises(UserError, match=r"dataset\.loader"):
        load_dataset({"name": "x", "loader": "pipeline.data.nowhere.load"})
    with pytest.raises(UserError, match=r"dataset\.loader"):
        load_dataset({"name": "x", "loader": "pipeline.data.digits.lod"})
    with pytest.raises(UserError, match=r"dataset\.name"):
        load_dataset({"classes": [1, 7]})


def test_a_new_dataset_is_one_file_and_one_yaml(data_dir, tmp_path, monkeypatch):
    (tmp_path / "stripes.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            from pipeline.data import build_dataset

            def load(settings, data_dir, progress=None):
                X = np.zeros((40, 4), dtype=np.float32)
                X[::2, :2] = settings["brightness"]
                y, ids = np.tile([1, -1], 20), np.arange(40)
                return build_dataset(
                    name=settings["name"], X_train=X[:30], y_train=y[:30], X_test=X[30:], y_test=y[30:],
                    image_shape=(2, 2), class_names=("dark", "bright"), train_ids=ids[:30], test_ids=ids[30:],
                    source="drawn",
                )
            """
        )
    )
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "stripes.yaml").write_text("name: stripes\nloader: stripes.load\nbrightness: 0.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(settings_module, "conf_dir", lambda: tmp_path)
    assert load_dataset("stripes").X_train.max() == 0.5
    # It names no files, so only loading can tell whether it changed.
    assert summary("stripes") is None
    assert fingerprint("stripes") != load_dataset({"name": "stripes", "brightness": 1.0}).fingerprint
