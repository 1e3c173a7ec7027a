"""Infinite MNIST against a naive generator, and MNIST8M in every form a user may have it."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from idx_files import write_idx
from oracles_infimnist import example, shift, stand_in_tangents

from pipeline.data import fingerprint, infimnist, load_dataset, mnist
from pipeline.data.mnist8m import MappedRows, write_rows
from pipeline.errors import UserError


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (70000, (0, 1010, 987, 2)),
        (70001, (1, 1275, 1254, 6)),
        (100000, (30000, 1306, 403, 1)),
        (130000, (0, 1039, 778, 4)),
        (1000000, (30000, 892, 985, 1)),
        (8109999, (59999, 200, 245, 2)),
    ],
)
def test_index_arithmetic_meets_the_check_values(index, expected):
    assert tuple(int(value) for value in infimnist.parameters(np.array(index))) == expected


def test_the_coefficient_is_always_minus_one():
    _, k1, k2, _ = infimnist.parameters(np.arange(70_000, 400_000))
    assert ((k1 + k2) % 2 == 1).all()


@pytest.mark.parametrize("number", range(9))
def test_shifts_equal_the_described_loops_quirks_included(number):
    images = np.random.default_rng(number).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    moved = infimnist.shifted(images.reshape(3, -1), np.full(3, number))
    np.testing.assert_array_equal(moved.reshape(3, 28, 28), [shift(image, number) for image in images])


def test_examples_equal_the_naive_generator():
    rng = np.random.default_rng(0)
    images = np.zeros((60_000, 784), dtype=np.uint8)
    index = np.array([10_000, 69_999, 70_000, 70_001, 100_000, 130_000, 1_000_000, 8_109_999, 70_005, 70_013])
    rows = (index - 10_000) % 60_000
    images[rows] = rng.integers(0, 256, (len(rows), 784), dtype=np.uint8)
    fields = rng.normal(size=(1522, 784)).astype(np.float32)
    tangents = np.zeros((60_000, 2, 784), dtype=np.float32)
    tangents[rows] = rng.normal(scale=60, size=(len(rows), 2, 784))
    made = infimnist.Deformations(fields, lambda rows, pixels: (tangents[rows, 0], tangents[rows, 1]))
    got = infimnist.examples(index, images, made)
    square = (images.reshape(-1, 28, 28), fields.reshape(-1, 28, 28), tangents.reshape(-1, 2, 28, 28))
    for i, pixels in zip(index, got, strict=True):
        np.testing.assert_array_equal(pixels.reshape(28, 28), example(int(i), *square))


def test_stand_in_tangents_and_fields_are_as_described():
    image = np.random.default_rng(1).integers(0, 256, (28, 28)).astype(np.float32)
    made = infimnist.stand_in()
    first, second = made.tangents(np.array([0]), image.reshape(1, -1))
    expected = stand_in_tangents(image.astype(np.float64))
    np.testing.assert_allclose(first.reshape(28, 28), expected[0], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(second.reshape(28, 28), expected[1], rtol=1e-5, atol=1e-4)
    assert made.fields.shape == (1522, 784)
    assert np.sqrt(np.mean(made.fields.astype(np.float64) ** 2)) == pytest.approx(1, abs=1e-3)


@pytest.fixture(scope="module")
def big_mnist(tmp_path_factory):
    """60,000 and 10,000 random images as IDX files, with their checksums."""
    folder = tmp_path_factory.mktemp("mnist") / "mnist"
    folder.mkdir()
    rng = np.random.default_rng(11)
    images = rng.integers(0, 256, (60_000, 28, 28), dtype=np.uint8)
    arrays = {
        mnist.TRAIN_IMAGES: images,
        mnist.TRAIN_LABELS: rng.integers(0, 10, 60_000, dtype=np.uint8),
        mnist.TEST_IMAGES: images[:10_000],
        mnist.TEST_LABELS: rng.integers(0, 10, 10_000, dtype=np.uint8),
    }
    sums = {}
    for name, array in arrays.items():
        write_idx(folder / name, array)
        sums[name] = "md5:" + hashlib.md5((folder / name).read_bytes(), usedforsecurity=False).hexdigest()
    return folder, arrays, sums


@pytest.fixture
def settings(big_mnist, data_dir, monkeypatch):
    """Settings of a small MNIST8M pair over the random images."""
    folder, _, sums = big_mnist
    monkeypatch.setattr(mnist, "FILES", dataclasses.replace(mnist.FILES, checksums=sums))
    return {"name": "mnist8m_0v4", "mnist_path": str(folder), "total": 20_000}


def test_training_rows_are_the_generated_ones_in_index_order(settings, big_mnist, data_dir):
    _, arrays, _ = big_mnist
    pair = load_dataset(settings)
    test_rows = np.flatnonzero(np.isin(arrays[mnist.TEST_LABELS], (0, 4)))
    np.testing.assert_array_equal(pair.test_ids, test_rows)
    assert len(pair.X_train) + len(pair.X_test) == 20_000
    chosen = np.flatnonzero(np.isin(arrays[mnist.TRAIN_LABELS], (0, 4)))
    ids = np.concatenate([10_000 + chosen, 70_000 + chosen])[: len(pair.X_train)]
    np.testing.assert_array_equal(pair.train_ids, ids)
    labels = arrays[mnist.TRAIN_LABELS][(ids - 10_000) % 60_000]
    np.testing.assert_array_equal(pair.y_train, np.where(labels == 0, 1, -1))
    images = arrays[mnist.TRAIN_IMAGES].reshape(-1, 784)
    some = np.array([0, 5, len(chosen) - 1, len(chosen), len(chosen) + 7, len(ids) - 1])
    expected = infimnist.examples(ids[some], images, infimnist.stand_in())
    np.testing.assert_array_equal(np.rint(pair.X_train[some] * 255), expected)
    assert pair.notes == ("stand-in deformations",)
    assert "stand-in deformations" in pair.source


def test_a_second_load_generates_nothing_and_damage_is_repaired(settings, data_dir, caplog, monkeypatch):
    first = load_dataset(settings)
    pixels = next((data_dir / "mnist8m").rglob("pixels.f32"))
    stamp = pixels.stat().st_mtime_ns
    assert load_dataset(settings).fingerprint == fingerprint(settings) == first.fingerprint
    assert pixels.stat().st_mtime_ns == stamp
    with pixels.open("r+b") as file:
        file.seek(4000)
        file.write(b"\x07")
    assert fingerprint(settings) == first.fingerprint
    assert "damaged" in caplog.text
    with pixels.open("r+b") as file:
        file.truncate(1000)
    assert load_dataset(settings).fingerprint == first.fingerprint


def test_a_smaller_test_part_leaves_the_training_rows_on_disk(settings):
    whole, part = load_dataset(settings), load_dataset(settings | {"max_test": 50})
    assert isinstance(part.X_train, MappedRows)
    assert (len(part.X_train), len(part.X_test)) == (len(whole.X_train), 50)
    assert part.fingerprint != whole.fingerprint
    few = load_dataset(settings | {"max_train": 500})
    assert not isinstance(few.X_train, MappedRows)
    np.testing.assert_array_equal(few.X_train, whole.X_train[np.searchsorted(whole.train_ids, few.train_ids)])


def test_a_failing_generation_leaves_nothing(settings, data_dir, monkeypatch):
    def full(path, windows):
        next(iter(windows))
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipeline.data.mnist8m.write_rows", full)
    with pytest.raises(UserError, match=r"ADVSVM_DATA: .*No space left"):
        load_dataset(settings)
    assert not [path for path in (data_dir / "mnist8m").rglob("*") if path.suffix != ".lock"]


def test_the_original_s_files_are_used_when_given(settings, tmp_path, big_mnist):
    fields, tangents = tmp_path / "fields.bin", tmp_path / "tangents.bin"
    np.random.default_rng(0).normal(size=(1522, 784)).astype("<f4").tofile(fields)
    with tangents.open("wb") as file:
        file.truncate(60_000 * 2 * 784 * 4)  # zeros: only the shifts remain
    pair = load_dataset(settings | {"fields": str(fields), "tangents": str(tangents)})
    assert pair.notes == ()
    assert "stand-in" not in pair.source
    images = big_mnist[1][mnist.TRAIN_IMAGES].reshape(-1, 784)
    rows, _, _, moves = infimnist.parameters(pair.train_ids[-50:])
    np.testing.assert_array_equal(np.rint(pair.X_train[-50:] * 255), infimnist.shifted(images[rows], moves))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fields": "short.bin", "tangents": "short.bin"}, r"dataset\.fields, dataset\.tangents: .* bytes instead of"),
        ({"fields": "short.bin"}, r"dataset\.tangents: missing"),
        ({"tangents": "short.bin"}, r"dataset\.fields: missing"),
        ({"total": 100}, r"dataset\.total"),
        ({"total": "many"}, r"dataset\.total"),
        ({"total": 10_000_000}, r"dataset\.total: MNIST8M holds only"),
        ({"classes": [0, "four"]}, r"dataset\.classes"),
        ({"path": "empty"}, r"dataset\.path: .* holds no MNIST8M file"),
        ({"path": "short.bin"}, r"dataset\.path: .*is damaged or not an MNIST8M file"),
    ],
)
def test_wrong_settings_are_named(settings, tmp_path, monkeypatch, changes, message):
    # A wrong total is named also where the disk is full.
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0 if "total" in changes else 2**40))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.bin").write_bytes(b"short")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=message) as error:
        load_dataset(settings | changes)
    assert "\n" not in str(error.value)


def _eight_million(folder, n_rows=9_000):
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (n_rows, 28, 28), dtype=np.uint8) * (rng.random((n_rows, 28, 28)) < 0.2)
    labels = rng.integers(0, 10, n_rows, dtype=np.uint8)
    write_idx(folder / "mnist8m-patterns-idx3-ubyte", images)
    write_idx(folder / "mnist8m-labels-idx1-ubyte", labels)
    return images.reshape(n_rows, -1), labels


def _libsvm(images, labels, scaled) -> bytes:
    lines = []
    for image, label in zip(images, labels, strict=True):
        places = np.flatnonzero(image)
        values = [f"{image[j] / 255:.6g}" if scaled else str(image[j]) for j in places]
        lines.append(" ".join([str(label), *(f"{j + 1}:{value}" for j, value in zip(places, values, strict=True))]))
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("form", ["idx", "idx folder", "idx gz", "libsvm", "libsvm scaled bz2"])
def test_an_mnist8m_file_gives_the_real_rows_in_any_form(settings, tmp_path, big_mnist, form):
    images, labels = _eight_million(tmp_path)
    path = tmp_path / "mnist8m-patterns-idx3-ubyte"
    if form == "idx folder":
        path = tmp_path
    elif form == "idx gz":
        packed = tmp_path / "mnist8m-patterns-idx3-ubyte.gz"
        packed.write_bytes(gzip.compress(path.read_bytes(), 1))
        path.unlink()
        path = packed
    elif form == "libsvm":
        path = tmp_path / "mnist8m"
        path.write_bytes(_libsvm(images[:2000], labels[:2000], scaled=False))
    elif form == "libsvm scaled bz2":
        path = tmp_path / "mnist8m.scale.bz2"
        path.write_bytes(bz2.compress(_libsvm(images[:2000], labels[:2000], scaled=True)))
    n_test = int(np.isin(big_mnist[1][mnist.TEST_LABELS], (0, 4)).sum())
    pair = load_dataset(settings | {"path": str(path), "total": n_test + 300})
    rows = np.flatnonzero(np.isin(labels, (0, 4)))[:300]
    np.testing.assert_array_equal(pair.train_ids, 10_000 + rows)
    np.testing.assert_array_equal(np.rint(pair.X_train * 255), images[rows])
    np.testing.assert_array_equal(pair.y_train, np.where(labels[rows] == 0, 1, -1))
    assert pair.notes == ()


def test_a_short_or_truncated_mnist8m_file_is_named(settings, tmp_path):
    _eight_million(tmp_path, 500)
    path = tmp_path / "mnist8m-patterns-idx3-ubyte"
    with pytest.raises(UserError, match=r"dataset\.path: .* holds only \d+ images of 0 and 4"):
        load_dataset(settings | {"path": str(path)})
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(UserError, match=r"dataset\.path: .*ends within image 49[89]"):
        load_dataset(settings | {"path": str(path)})
    (tmp_path / "mnist8m-labels-idx1-ubyte").unlink()
    with pytest.raises(UserError, match=r"dataset\.path: the labels of .* are missing"):
        load_dataset(settings | {"path": str(path)})


def test_mapped_rows_behave_like_an_array(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (100, 12), dtype=np.uint8)
    checksum = write_rows(tmp_path / "p.f32", [pixels[:64], pixels[64:]])
    expected = pixels.astype(np.float32) / np.float32(255)
    assert checksum == hashlib.sha256(expected.tobytes()).hexdigest()
    rows = MappedRows.open(tmp_path / "p.f32", 12)
    assert rows.shape == (100, 12)
    keys = (slice(5, 50), slice(None, None, 7), 3, -1, [4, 2, -1], np.array([9, 9, 0]), expected[:, 0] > 0.5)
    for key in (*keys, (slice(3, 9), 2), (4, 5), (np.array([1, 2]), slice(2, 4)), None, ...):
        np.testing.assert_array_equal(np.asarray(rows[key]), expected[key])
    np.testing.assert_array_equal(rows.T[3], expected.T[3])
    np.testing.assert_array_equal(rows.reshape(50, 24)[[1, 4]], expected.reshape(50, 24)[[1, 4]])
    np.testing.assert_array_equal(np.asarray(rows), expected)
    assert rows[2:4].flags.writeable
    assert not rows.flags.writeable
    with pytest.raises(IndexError):
        rows[[100]]


_MEASURE = """
import json, sys, time
import numpy as np
from pipeline.data import load_dataset
start = time.perf_counter()
pair = load_dataset("mnist8m_0v4", data_dir=sys.argv[1])
seconds = time.perf_counter() - start
order = np.random.default_rng(0).permutation(len(pair.X_train))
total = sum(float(pair.X_train[order[k:k + 500]].sum()) for k in range(0, len(order), 500))
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"seconds": seconds, "mb": peak / 1024, "sizes": [len(pair.X_train), len(pair.X_test)]}))
"""


@pytest.mark.realdata
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_200_000_images_take_seconds_and_little_memory(tmp_path):
    from pipeline.paths import default_data_dir

    if not mnist.FILES.is_present(default_data_dir()):
        pytest.skip("MNIST is not in the data folder: python -m pipeline.data dataset=mnist_1v7")
    (tmp_path / "mnist").symlink_to(default_data_dir() / "mnist")
    done = subprocess.run([sys.executable, "-c", _MEASURE, str(tmp_path)], capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout)
    assert measured["sizes"] == [198_038, 1_962]
    assert measured["seconds"] < 20
    assert measured["mb"] < 300
