"""Infinite MNIST: example number i, for any i, as a deformed and shifted copy of a training digit.

The index arithmetic, the first-order deformation and the shifts follow the program of Loosli, Canu and Bottou, of
which MNIST8M is the examples 10000 to 8109999. Its two data files (displacement fields and tangent images) are
published with that program only; `stand_in` makes similar ones, which are not calibrated against them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

N_TEST, N_TRAIN = 10_000, 60_000
LAST_OF_MNIST8M = 8_109_999
N_FIELDS = 1522
SIDE = 28
N_PIXELS = SIDE * SIDE
# Rows down and columns to the right of the nine shifts.
_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1), (0, 0))
_LEFT, _RIGHT = 2, 3


@dataclass(frozen=True)
class Deformations:
    """Displacement fields F, (1522, 784) float32, and the function from training rows a to T0[a], T1[a].

    `tangents(rows, images)` takes (n,) row numbers and their (n, 784) float32 pixels in 0..255 and returns two
    (n, 784) float32 arrays.
    """

    fields: np.ndarray
    tangents: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def parameters(index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training row a, fields k1 and k2, and shift t of the examples `index` ≥ 10000."""
    i = np.asarray(index, dtype=np.uint64)
    rows = (i - np.uint64(N_TEST)) % np.uint64(N_TRAIN)
    k1 = ((i * np.uint64(131071)) % np.uint64(2**32)) % np.uint64(N_FIELDS - 1)
    k2 = (k1 + np.uint64(1) + np.uint64(2) * i) % np.uint64(N_FIELDS)
    shift = k1 % np.uint64(len(_MOVES))
    return rows.astype(np.int64), k1.astype(np.int64), k2.astype(np.int64), shift.astype(np.int64)


def examples(index: np.ndarray, images: np.ndarray, deformations: Deformations) -> np.ndarray:
    """Pixels (n, 784) uint8 of the examples `index` ≥ 10000, made of MNIST's training `images`, (60000, 784) uint8."""
    rows, k1, k2, shift = parameters(index)
    originals = images[rows]
    deformed = np.asarray(index) >= N_TEST + N_TRAIN
    if not deformed.any():
        return originals
    rows, k1, k2, shift = rows[deformed], k1[deformed], k2[deformed], shift[deformed]
    pixels = originals[deformed].astype(np.float32)
    first, second = deformations.tangents(rows, pixels)
    # v = x + c (F[k1] T0 - F[k2] T1) with c = -1 throughout: k1 + k2 is always odd.
    move = deformations.fields[k1] * first
    move -= deformations.fields[k2] * second
    pixels -= move
    np.clip(pixels, 0, 255, out=pixels)
    originals[deformed] = shifted(pixels.astype(np.uint8), shift)
    return originals


def shifted(images: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Move (n, 784) byte images by one pixel, each by its number 0..8 of `shift`."""
    squares = images.reshape(-1, SIDE, SIDE)
    padded = np.pad(squares, ((0, 0), (1, 1), (1, 1)))
    out = np.empty_like(squares)
    for number, (down, right) in enumerate(_MOVES):
        chosen = np.flatnonzero(shift == number)
        out[chosen] = padded[chosen, 1 - down : 1 - down + SIDE, 1 - right : 1 - right + SIDE]
    # The original moves the flat bytes to the left and right, so that one edge receives the next row's pixels.
    left, right = shift == _LEFT, shift == _RIGHT
    out[left, :, 0] = 0
    out[left, :-1, -1] = squares[left, 1:, 0]
    out[right, :, 1] = 0
    out[right, 1:, 0] = squares[right, :-1, -1]
    return out.reshape(len(images), N_PIXELS)


def original(fields: Path, tangents: Path) -> Deformations:
    """The original program's two data files, mapped from disk; a ValueError when one has the wrong length."""
    for path, floats in ((fields, N_FIELDS * N_PIXELS), (tangents, N_TRAIN * 2 * N_PIXELS)):
        if path.stat().st_size != 4 * floats:
            raise ValueError(f"{path} has {path.stat().st_size} bytes instead of {4 * floats}")
    mapped = np.memmap(tangents, dtype="<f4", mode="r", shape=(N_TRAIN, 2, N_PIXELS))

    def look_up(rows: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pair = np.asarray(mapped[rows])
        return pair[:, 0], pair[:, 1]

    return Deformations(np.fromfile(fields, dtype="<f4").reshape(N_FIELDS, N_PIXELS), look_up)


def stand_in(width: float = 0.9, smoothing: float = 4.0, seed: int = 1522) -> Deformations:
    """Tangents as Gaussian derivatives of the digit, fields as smoothed noise of one pixel RMS.

    `width` and `smoothing` are the standard deviations in pixels of the derivative and of the noise's smoothing.
    """
    # Sums in float64, rounded once: the order in which a BLAS adds then never reaches the pixels.
    steps = np.arange(SIDE)[:, None] - np.arange(SIDE)
    gauss = np.exp(-(steps**2) / (2 * width**2)) / (np.sqrt(2 * np.pi) * width)
    slope = -steps / width**2 * gauss

    margin = int(4 * smoothing)
    noise = np.random.default_rng(seed).uniform(-1, 1, (N_FIELDS, SIDE + 2 * margin, SIDE + 2 * margin))
    reach = np.arange(SIDE)[:, None] + margin - np.arange(SIDE + 2 * margin)
    smooth = np.exp(-(reach**2) / (2 * smoothing**2))
    fields = (smooth @ noise @ smooth.T).reshape(N_FIELDS, N_PIXELS)
    fields /= np.sqrt(np.mean(fields**2))

    def derive(rows: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        squares = images.reshape(-1, SIDE, SIDE).astype(np.float64)
        first = gauss @ (squares @ slope.T)
        second = slope @ (squares @ gauss.T)
        return first.reshape(-1, N_PIXELS).astype(np.float32), second.reshape(-1, N_PIXELS).astype(np.float32)

    return Deformations(fields.astype(np.float32), derive)
