"""Arrays on disk are smaller than they are, and the same bit for bit when they come back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

from models.compact import pack, unpack

GENERATOR = np.random.default_rng(0)
PIXELS = GENERATOR.integers(0, 256, (200, 64), dtype=np.uint8)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    ("array", "share"),
    [
        (PIXELS.astype(np.float32) / np.float32(255), 0.27),
        (PIXELS.astype(np.float64) / 255, 0.14),
        ((PIXELS % 17).astype(np.float32) / np.float32(16), 0.16),
        (np.where(PIXELS > 128, np.float32(8 / 255), np.float32(0)), 0.1),
        (np.arange(10_000), 0.3),
        (PIXELS > 100, 0.6),
        (GENERATOR.normal(size=(100, 64)), 1.02),
    ],
    ids=["pixels", "pixels, float64", "digits", "perturbations", "row numbers", "bool", "noise"],
)
def test_arrays_come_back_bit_for_bit_and_take_less(array: np.ndarray, share: float) -> None:
    content = pack({"x": array})
    assert same(unpack(content)["x"], array)
    assert len(content) <= share * array.nbytes + 300


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=40),
    )
)
def test_any_array_comes_back(array: np.ndarray) -> None:
    assert same(unpack(pack({"x": array}))["x"], array)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 300.0, -1.0])
def test_what_is_on_no_grid_is_not_put_on_one(value: float) -> None:
    array = np.full((40, 40), np.float32(1 / 255))
    array[3, 5] = value
    assert same(unpack(pack({"x": array}))["x"], array)


def test_the_same_arrays_give_the_same_bytes() -> None:
    arrays = dict.fromkeys("abcdefgh", PIXELS / 255.0)
    assert pack(arrays) == pack(dict(arrays))


def test_plain_files_are_read_as_they_are() -> None:
    assert same(unpack(save({"x": PIXELS}))["x"], PIXELS)


@pytest.mark.parametrize(
    "note",
    [
        {"x": {"dtype": "<f4", "shape": [3], "levels": None, "planes": True}},
        {"x": {"dtype": "|O", "shape": [3], "levels": None, "planes": True}},
        {"x": {"dtype": "<f4", "shape": [-1], "levels": None, "planes": True}},
        {"x": {"dtype": "<f4", "shape": [8], "levels": "many", "planes": True}},
        {"x": {"dtype": "<i4", "shape": [8], "levels": 255, "planes": True}},
        {"x": 3},
        [],
    ],
)
def test_a_note_that_does_not_fit_is_a_value_error(note: object) -> None:
    content = save({"x": np.frombuffer(b"nonsense", dtype=np.uint8)}, {"encoding": json.dumps(note)})
    with pytest.raises(ValueError, match=r"encoding|note"):
        unpack(content)
