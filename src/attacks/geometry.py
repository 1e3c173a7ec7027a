"""Balls, boxes and half-spaces: the projections the attacks share."""

from __future__ import annotations

import numpy as np
import torch


def row_norms(rows: np.ndarray) -> np.ndarray:
    """Euclidean norm of every row, accumulated in float64."""
    return torch.linalg.vector_norm(torch.from_numpy(rows), dim=1, dtype=torch.float64).numpy()


def row_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Dot products of rows, in float64."""
    return torch.linalg.vecdot(torch.from_numpy(a).double(), torch.from_numpy(b).double()).numpy()


def distortions(points: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L2 and L∞ distance of every row of `points` from its row of `X`, in float64."""
    # Out of place: double() hands float64 arrays back as they are, and these are the caller's.
    delta = torch.sub(torch.from_numpy(points).double(), torch.from_numpy(X))
    return torch.linalg.vector_norm(delta, dim=1).numpy(), delta.abs_().amax(1).numpy()


def linf_limits(X: np.ndarray, epsilon: float, box: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest value every pixel may take in the L∞ ball and the box, rounded inwards.

    Rounding ``x + epsilon`` to float32 can land outside the ball, by half the spacing of numbers as large as the
    largest value; a radius smaller by that much makes ``|x' - x| <= epsilon`` hold for the stored numbers.
    """
    largest = max(abs(float(X.max(initial=0.0))), abs(float(X.min(initial=0.0)))) + epsilon
    slack = largest * float(np.finfo(X.dtype).eps)
    radius = float(X.dtype.type(max(epsilon - slack, 0.0)))
    points = torch.from_numpy(X)
    return (points - radius).clamp_(min=box[0]).numpy(), (points + radius).clamp_(max=box[1]).numpy()


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
    z = X.copy()
    index = np.arange(len(X))
    clean, t = X, np.zeros(len(X))
    squares = normals.astype(np.float64) ** 2
    limits: np.ndarray | None = None  # a millionth of the way is as good as there
    for _ in range(iterations):
        here = z[index]
        gap = row_dots(normals, here) - offsets
        free = ((here > box[0]) | (normals < 0)) & ((here < box[1]) | (normals > 0))
        slope = (squares * free).sum(axis=1)
        if limits is None:
            limits = np.maximum(1e-6 * gap, 0.0)
        move = (gap > limits) & (slope > 0)
        if not move.all():
            index, clean, normals, offsets = index[move], clean[move], normals[move], offsets[move]
            squares, t, gap, slope, limits = squares[move], t[move], gap[move], slope[move], limits[move]
            if len(index) == 0:
                break
        t = np.minimum(t + gap / slope, 1e30)
        z[index] = np.clip(clean - t[:, None].astype(X.dtype) * normals, box[0], box[1])
    return z
