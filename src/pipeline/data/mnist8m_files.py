"""MNIST8M as a user may have it: an IDX pair, or LIBSVM's text, read from the front in windows."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from pipeline.data.checksums import open_plain
from pipeline.data.idx import idx_shape, read_idx
from pipeline.data.infimnist import N_PIXELS, SIDE
from pipeline.errors import UserError

_IDX_NAMES = ("mnist8m-patterns-idx3-ubyte", "mnist8m-images-idx3-ubyte", "mnist8m-patterns.idx3-ubyte")
_TEXT_NAMES = ("mnist8m", "mnist8m.scale")
_PACKINGS = ("", ".gz", ".bz2", ".xz")
_WINDOW = 4096


@dataclass(frozen=True)
class Window:
    """Some rows of the file: their numbers, digits and (n, 784) byte pixels."""

    rows: np.ndarray
    digits: np.ndarray
    pixels: np.ndarray


def find_file(path: Path) -> Path:
    """The file that `path` names, or the MNIST8M file in the folder that it names."""
    if path.is_file():
        return path
    for name in (*_IDX_NAMES, *_TEXT_NAMES):
        for packing in _PACKINGS:
            if (path / (name + packing)).is_file():
                return path / (name + packing)
    raise UserError(f"dataset.path: {path} holds no MNIST8M file; name the file itself ({_IDX_NAMES[0]} or LIBSVM)")


def windows(path: Path, digits: tuple[int, int], n_rows: int) -> Iterator[Window]:
    """The first `n_rows` rows of two digits, in file order.

    Raises
    ------
    UserError
        When the file is no MNIST8M file, is damaged, or holds too few rows.
    """
    found = 0
    try:
        with _opened(path) as stream:
            is_idx = stream.read(3) == b"\0\0\x08"
        for window in (_from_idx if is_idx else _from_text)(path, digits):
            kept = Window(
                window.rows[: n_rows - found], window.digits[: n_rows - found], window.pixels[: n_rows - found]
            )
            found += len(kept.rows)
            yield kept
            if found == n_rows:
                return
    except (ValueError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"dataset.path: {path} is damaged or no MNIST8M file ({error})") from error
    except OSError as error:
        raise UserError(f"dataset.path: cannot read {path} ({error.strerror or error})") from error
    raise UserError(
        f"dataset.path: {path} holds only {found} images of {digits[0]} and {digits[1]}, {n_rows} are needed; "
        "use the whole MNIST8M or lower dataset.total"
    )


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".bz2":
        return cast("IO[bytes]", bz2.open(path, "rb"))
    if path.suffix == ".xz":
        return cast("IO[bytes]", lzma.open(path, "rb"))
    return open_plain(path)


def labels_beside(path: Path) -> Path:
    """The IDX label file that belongs to an IDX image file."""
    name = path.name.replace("patterns", "labels").replace("images", "labels").replace("idx3", "idx1")
    plain = path.with_name(name.removesuffix(".gz"))
    for place in (path.with_name(name), plain, plain.with_name(plain.name + ".gz")):
        if place.is_file() and place != path:
            return place
    raise UserError(f"dataset.path: the labels of {path} are missing; put {plain.name} beside it")


def _from_idx(path: Path, digits: tuple[int, int]) -> Iterator[Window]:
    labels = read_idx(labels_beside(path))
    with _opened(path) as stream:
        shape, _ = idx_shape(stream.read(16), path.name)
        if shape != (len(labels), SIDE, SIDE):
            raise ValueError(f"its shape is {shape}, with {len(labels)} labels")
        for start in range(0, len(labels), _WINDOW):
            part = labels[start : start + _WINDOW]
            data = stream.read(len(part) * N_PIXELS)
            if len(data) != len(part) * N_PIXELS:
                raise ValueError(f"it ends within image {start + len(data) // N_PIXELS}")
            chosen = np.flatnonzero(np.isin(part, digits))
            pixels = np.frombuffer(data, dtype=np.uint8).reshape(-1, N_PIXELS)
            yield Window(start + chosen, part[chosen].astype(np.int64), pixels[chosen])


def _from_text(path: Path, digits: tuple[int, int]) -> Iterator[Window]:
    wanted = {str(digit).encode() for digit in digits}
    rows: list[int] = []
    labels: list[int] = []
    pixels = np.zeros((_WINDOW, N_PIXELS), dtype=np.float32)
    factor = None
    with _opened(path) as stream:
        for row, line in enumerate(stream):
            label = line.split(b" ", 1)[0].strip().removeprefix(b"+").removesuffix(b".0")
            if not label.isdigit():
                raise ValueError(f"line {row + 1} does not begin with a digit's label")
            if label not in wanted:
                continue
            _fill(pixels[len(rows)], line, row)
            rows.append(row)
            labels.append(int(label))
            if len(rows) == _WINDOW:
                factor = factor or _factor(pixels)
                yield Window(np.array(rows), np.array(labels), _bytes(pixels, factor))
                rows, labels = [], []
                pixels[:] = 0
    if rows:
        used = pixels[: len(rows)]
        yield Window(np.array(rows), np.array(labels), _bytes(used, factor or _factor(used)))


def _fill(target: np.ndarray, line: bytes, row: int) -> None:
    numbers = np.array(line.replace(b":", b" ").split()[1:], dtype=np.float64)
    places = numbers[0::2].astype(np.int64) - 1
    if len(numbers) % 2 or len(numbers) // 2 != line.count(b":") or (len(places) and places.min() < 0):
        raise ValueError(f"line {row + 1} is no LIBSVM line")
    if len(places) and places.max() >= N_PIXELS:
        raise ValueError(f"line {row + 1} has pixel {places.max() + 1} of {N_PIXELS}")
    target[places] = numbers[1::2]


def _factor(pixels: np.ndarray) -> int:
    # LIBSVM offers the bytes, and the same divided by 255 with six digits.
    return 255 if pixels.max() <= 1.0 else 1


def _bytes(pixels: np.ndarray, factor: int) -> np.ndarray:
    values = np.rint(pixels * factor)
    if values.min() < 0 or values.max() > 255:
        raise ValueError("a pixel is outside 0..255")
    return values.astype(np.uint8)
