"""Named arrays as the bytes of a safetensors file, smaller than they are and the same bit for bit when they come back.

Support vectors are rows of the data, and data are mostly pixels: k / 255 in float32 is one byte and a division. What
is on no such grid is deflated, as it is or with equal bytes of all numbers together, so that signs and exponents lie
side by side, whichever is shorter; what that does not make smaller stays. A file without a note on its encoding holds
plain arrays.
"""

import json
import math
import zlib
from typing import Any

import numpy as np
from safetensors.numpy import load, save

_NOTE = "encoding"
# Grey levels of 8 bits, and those of the embedded digits.
_GRIDS = (255, 16)
_SMALL = 1024  # bytes; below it there is nothing to gain
_WORTHWHILE = 0.95  # of the plain size
_KINDS = "fiub"
_LEVEL = 4  # of zlib


def pack(arrays: dict[str, np.ndarray]) -> bytes:
    """The content of a safetensors file; the same arrays give the same bytes."""
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    stored, notes = {}, {}
    for name, array in plain.items():
        stored[name], note = _encode(array)
        if note:
            notes[name] = note
    # One entry: safetensors writes several in no particular order.
    return save(stored, {_NOTE: json.dumps(notes, sort_keys=True)} if notes else None)


def unpack(content: bytes) -> dict[str, np.ndarray]:
    """Inverse of :func:`pack`; also of a plain safetensors file. ValueError when the notes do not fit the arrays."""
    stored, notes = load(content), _notes(content)
    return {name: _decode(array, notes[name]) if name in notes else array for name, array in stored.items()}


def _encode(array: np.ndarray) -> tuple[np.ndarray, dict[str, Any] | None]:
    if array.nbytes < _SMALL or array.dtype.kind not in _KINDS:
        return array, None
    codes, levels = _on_grid(array)
    # Few different numbers repeat as they are; many that are near each other share their first bytes.
    packed, planes = zlib.compress(_bits(codes).tobytes(), _LEVEL), False
    if codes.dtype.itemsize > 1 and len(other := zlib.compress(_planes(codes), _LEVEL)) < len(packed):
        packed, planes = other, True
    if len(packed) > _WORTHWHILE * array.nbytes:
        return array, None
    note = {"dtype": array.dtype.str, "shape": array.shape, "levels": levels, "planes": planes}
    return np.frombuffer(packed, dtype=np.uint8), note


def _decode(packed: np.ndarray, note: dict[str, Any]) -> np.ndarray:
    try:
        dtype, shape, levels = np.dtype(note["dtype"]), tuple(note["shape"]), note["levels"]
        if dtype.kind not in _KINDS or not all(isinstance(size, int) and size >= 0 for size in shape):
            raise ValueError("an array of another kind")
        if levels not in (None, *_GRIDS) or (levels and dtype.kind != "f"):
            raise ValueError("another grid")
        inner, size = (np.dtype(np.uint8) if levels else dtype), math.prod(shape)
        # Not one byte more than the note says: a small file cannot fill the memory unannounced.
        content = zlib.decompressobj().decompress(packed.tobytes(), max(size * inner.itemsize, 1))
        numbers = np.frombuffer(content, dtype=np.uint8)
        numbers = numbers.reshape(inner.itemsize, size).T if note["planes"] else numbers.reshape(size, inner.itemsize)
    except (zlib.error, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"an array does not fit its note: {error}") from error
    codes = np.ascontiguousarray(numbers).view(inner).reshape(shape)
    return _from_grid(codes, levels, dtype) if levels else codes


def _on_grid(array: np.ndarray) -> tuple[np.ndarray, int | None]:
    """Whole numbers k with array = k / levels to the last bit, or the array itself."""
    if array.dtype.kind == "f" and array.dtype.itemsize >= 4:
        low, high = float(array.min()), float(array.max())
        for levels in _GRIDS:
            if not (low >= 0 and high * levels < 255.5):  # false for nan, too
                continue
            codes = np.rint(array * levels).astype(np.uint8)
            if np.array_equal(_bits(_from_grid(codes, levels, array.dtype)), _bits(array)):
                return codes, levels
    return array, None


def _from_grid(codes: np.ndarray, levels: int, dtype: np.dtype[Any]) -> np.ndarray:
    return codes.astype(dtype) / dtype.type(levels)


def _bits(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _planes(array: np.ndarray) -> bytes:
    """First bytes of all numbers, then their second bytes, and so on."""
    return np.ascontiguousarray(_bits(array).reshape(-1, array.dtype.itemsize).T).tobytes()


def _notes(content: bytes) -> dict[str, Any]:
    """What the header says of the encoding; safetensors reads it from files only."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    notes = json.loads(header.get("__metadata__", {}).get(_NOTE, "{}"))
    if not isinstance(notes, dict):
        raise ValueError("an encoding that is no table")
    return notes
