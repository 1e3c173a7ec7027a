"""Two digits (or all ten) of scikit-learn's embedded 8×8 images: no files, no network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.data.dataset import Dataset, Status
from pipeline.data.fetching import Progress
from pipeline.data.rows import chosen_classes, class_labels, n_test_rows, split_seed, stratified_split
from pipeline.data.settings import Settings

DIGITS = tuple("0123456789")
# Images of each digit 0..9.
COUNTS = (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)


def load(settings: Settings, data_dir: Path, progress: Progress) -> Dataset:
    """Two digits, or all, with a seeded stratified split (the images come without an official one)."""
    from sklearn import datasets

    images, labels = datasets.load_digits(return_X_y=True)
    held = Path(datasets.__file__).parent / "data" / "digits.csv.gz"
    rows, y, names = class_labels(labels, settings["classes"])
    pixels = (images[rows] / 16.0).astype(np.float32)
    train, test = stratified_split(y, settings["test_fraction"], split_seed(settings))
    return Dataset(
        name=settings["name"],
        X_train=pixels[train],
        y_train=y[train],
        X_test=pixels[test],
        y_test=y[test],
        image_shape=(8, 8),
        class_names=names,
        train_ids=rows[train],
        test_ids=rows[test],
        source="scikit-learn load_digits",
        files=(held,) if held.is_file() else (),
    )


def status(settings: Settings, data_dir: Path) -> Status:
    """Sizes without reading the data; it is always present."""
    counts = [COUNTS[int(name)] for name in chosen_classes(settings["classes"], DIGITS)]
    n_test = sum(n_test_rows(count, settings["test_fraction"]) for count in counts)
    return Status((sum(counts) - n_test, n_test), "scikit-learn", True, "embedded")
