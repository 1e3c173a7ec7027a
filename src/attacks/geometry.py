"""Balls, boxes and half-spaces: the projections the attacks share."""

from __future__ import annotations

import numpy as np


def row_norms(rows: np.ndarray) -> np.ndarray:
    """Euclidean norm of every row, accumulated in float64."""
    return np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))


def distortions(points: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L2 and L∞ distance of every row of `points` from its row of `X`, in float64."""
    delta = points.astype(np.float64) - X
    return row_norms(delta), np.abs(delta).max(axis=1, initial=0.0)


def linf_limits(X: np.ndarray, epsilon: float, box: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest value every pixel may take in the L∞ ball and the box, rounded inwards.

    Rounding ``x + epsilon`` to float32 can land outside the ball, by half the spacing of numbers as large as the
    largest value; a radius smaller by that much makes ``|x' - x| <= epsilon`` hold for the stored numbers.
    """
    largest = float(np.abs(X).max(initial=0.0)) + epsilon
    slack = largest * float(np.finfo(X.dtype).eps)
    radius = X.dtype.type(max(epsilon - slack, 0.0))
    return np.maximum(X - radius, X.dtype.type(box[0])), np.minimum(X + radius, X.dtype.type(box[1]))


def project_l2(points: np.ndarray, X: np.ndarray, epsilon: float, box: tuple[float, float]) -> np.ndarray:
    """Clip to the box and pull back into the L2 ball of radius `epsilon` around X, exactly for the stored numbers."""
    points = np.clip(points, box[0], box[1]).astype(X.dtype)
    shrink = 1.0
    for _ in range(20):
        delta = points.astype(np.float64) - X
        norms = row_norms(delta)
        outside = norms > epsilon
        if not outside.any():
            return points
        scale = shrink * epsilon / norms[outside, None]
        points[outside] = (X[outside] + delta[outside] * scale).astype(X.dtype)
        shrink *= 1.0 - 1e-6  # the cast can push a point out again by an ulp per pixel
    points[outside] = X[outside]
    return points


def nearest_below_plane(
    X: np.ndarray, normals: np.ndarray, offsets: np.ndarray, box: tuple[float, float], iterations: int = 8
) -> np.ndarray:
    """Point of the box nearest to x with ``normal · z <= offset``, row by row.

    The solution is ``clip(x - t · normal)`` for a multiplier t >= 0, and ``t -> normal · clip(x - t · normal)`` is
    convex and falling, so Newton's method from t = 0 climbs to the root without overshooting. Where the box holds no
    such point the result is the corner it tends to.
    """
    # Where scores vanish gradients can be smaller than float32 squares can hold: scale every plane to size 1.
    sizes = np.abs(normals).max(axis=1).astype(np.float64)
    sizes = np.where(sizes > 0, sizes, 1.0)
    normals, offsets = (normals / sizes[:, None]).astype(X.dtype), offsets / sizes
    t = np.zeros(len(X), dtype=np.float64)
    z = X
    for _ in range(iterations):
        gap = np.einsum("ij,ij->i", normals, z, dtype=np.float64) - offsets
        free = ((z > box[0]) | (normals < 0)) & ((z < box[1]) | (normals > 0))
        slope = np.einsum("ij,ij,ij->i", normals, normals, free, dtype=np.float64)
        move = (gap > 0) & (slope > 0)
        if not move.any():
            break
        t[move] = np.minimum(t[move] + gap[move] / slope[move], 1e30)
        z = np.clip(X - t[:, None].astype(X.dtype) * normals, box[0], box[1])
    return z
