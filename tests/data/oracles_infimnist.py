"""Infinite MNIST pixel by pixel, in plain loops."""

from __future__ import annotations

import numpy as np


def shift(image: np.ndarray, number: int) -> np.ndarray:
    """Translate one (28, 28) byte image as the description words it."""
    out = np.zeros_like(image)

    def at(r: int, c: int) -> int:
        return image[r, c] if 0 <= r < 28 and 0 <= c < 28 else 0

    for r in range(28):
        for c in range(28):
            if number == 0:
                out[r, c] = at(r + 1, c)
            elif number == 1:
                out[r, c] = at(r - 1, c)
            elif number == 2:
                out[r, c] = 0 if c == 0 else at(r, c + 1) if c <= 26 else at(r + 1, 0)
            elif number == 3:
                out[r, c] = at(r - 1, 27) if c == 0 else 0 if c == 1 else at(r, c - 1)
            elif number == 4:
                out[r, c] = at(r + 1, c + 1)
            elif number == 5:
                out[r, c] = at(r + 1, c - 1)
            elif number == 6:
                out[r, c] = at(r - 1, c + 1)
            elif number == 7:
                out[r, c] = at(r - 1, c - 1)
            else:
                out[r, c] = image[r, c]
    return out


def example(index: int, images: np.ndarray, fields: np.ndarray, tangents: np.ndarray) -> np.ndarray:
    """Example `index` ≥ 10000 from (60000, 28, 28) images, (1522, 28, 28) fields, (60000, 2, 28, 28) tangents."""
    a = (index - 10000) % 60000
    if index < 70000:
        return images[a]
    k1 = ((index * 131071) % 2**32) % 1521
    k2 = (k1 + 1 + 2 * index) % 1522
    c = np.float32(1 if (k1 + k2) % 2 == 0 else -1)
    out = np.zeros((28, 28), dtype=np.uint8)
    for r in range(28):
        for col in range(28):
            move = fields[k1, r, col] * tangents[a, 0, r, col] - fields[k2, r, col] * tangents[a, 1, r, col]
            value = np.float32(images[a, r, col]) + c * move
            out[r, col] = int(min(max(value, np.float32(0)), np.float32(255)))
    return shift(out, k1 % 9)


def stand_in_tangents(image: np.ndarray, s: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    """T0 = G X Dᵀ and T1 = D X Gᵀ by their sums."""
    g = np.array(
        [[np.exp(-((a - b) ** 2) / (2 * s * s)) / (np.sqrt(2 * np.pi) * s) for b in range(28)] for a in range(28)]
    )
    d = np.array([[-(a - b) / (s * s) * g[a, b] for b in range(28)] for a in range(28)])
    return np.einsum("ra,ab,cb->rc", g, image, d), np.einsum("ra,ab,cb->rc", d, image, g)
