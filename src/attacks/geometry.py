"""Balls, boxes and half-spaces: the projections the attacks share."""

import numpy as np
import torch

Limit = float | np.ndarray  # of all features, or (n, d)


def rows_of(limit: Limit, rows: np.ndarray) -> Limit:
    """A limit for some of the rows."""
    return limit[rows] if isinstance(limit, np.ndarray) else limit


def columns_of(limit: Limit, columns: np.ndarray) -> Limit:
    """A limit for some of the features."""
    return limit[:, columns] if isinstance(limit, np.ndarray) else limit


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


def linf_limits(X: np.ndarray, epsilon: float, box: tuple[Limit, Limit]) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest value every pixel may take in the L∞ ball and the box, rounded inwards.

    Rounding ``x + epsilon`` to float32 can land outside the ball, by half the spacing of numbers as large as the
    largest value; a radius smaller by that much makes ``|x' - x| <= epsilon`` hold for the stored numbers.
    """
    largest = max(abs(float(X.max(initial=0.0))), abs(float(X.min(initial=0.0)))) + epsilon
    slack = largest * float(np.finfo(X.dtype).eps)
    radius = float(X.dtype.type(max(epsilon - slack, 0.0)))
    points = torch.from_numpy(X)
    lowest, highest = (torch.as_tensor(limit, dtype=points.dtype) for limit in box)
    return torch.maximum(points - radius, lowest).numpy(), torch.minimum(points + radius, highest).numpy()


def project_l2(points: np.ndarray, X: np.ndarray, epsilon: float, box: tuple[Limit, Limit]) -> np.ndarray:
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


def row_distances(deltas: np.ndarray, norm: str) -> np.ndarray:
    """Length of every row in ``"l2"`` or ``"linf"``, in float64."""
    return row_norms(deltas) if norm == "l2" else np.abs(deltas).max(axis=1).astype(np.float64)


def nearest_below_plane(
    X: np.ndarray,
    normals: np.ndarray,
    offsets: np.ndarray,
    box: tuple[Limit, Limit],
    norm: str = "l2",
    iterations: int = 8,
) -> np.ndarray:
    """Point of the box nearest to x with ``normal · z <= offset``, row by row, in L2 or in L∞.

    The solution is ``clip(x - t · u)`` for a multiplier t >= 0, with u the normal itself (L2) or its signs (L∞), and
    ``t -> normal · clip(x - t · u)`` is convex and falling, so Newton's method from t = 0 climbs to the root without
    overshooting. Where the box holds no such point the result is the corner it tends to.
    """
    # Where scores vanish gradients can be smaller than float32 squares can hold: scale every plane to size 1.
    sizes = np.abs(normals).max(axis=1).astype(np.float64)
    sizes = np.where(sizes > 0, sizes, 1.0)
    normals, offsets = (normals / sizes[:, None]).astype(X.dtype), offsets / sizes
    lower, upper = box
    z = X.copy()
    index = np.arange(len(X))
    clean, t = X, np.zeros(len(X))
    ways = normals if norm == "l2" else np.sign(normals)
    slopes = normals.astype(np.float64) * ways
    limits: np.ndarray | None = None  # a millionth of the way is as good as there
    for _ in range(iterations):
        here = z[index]
        gap = row_dots(normals, here) - offsets
        free = ((here > lower) | (normals < 0)) & ((here < upper) | (normals > 0))
        slope = (slopes * free).sum(axis=1)
        if limits is None:
            limits = np.maximum(1e-6 * gap, 0.0)
        move = (gap > limits) & (slope > 0)
        if not move.all():
            index, clean, normals, ways, offsets = index[move], clean[move], normals[move], ways[move], offsets[move]
            slopes, t, gap, slope, limits = slopes[move], t[move], gap[move], slope[move], limits[move]
            lower, upper = rows_of(lower, move), rows_of(upper, move)
            if len(index) == 0:
                break
        t = np.minimum(t + gap / slope, 1e30)
        z[index] = np.clip(clean - t[:, None].astype(X.dtype) * ways, lower, upper)
    return z


def lowest_in_ball(
    X: np.ndarray, normals: np.ndarray, radius: float, box: tuple[Limit, Limit], iterations: int = 20
) -> np.ndarray:
    """Point of L2 ball and box where ``normal · z`` is least, row by row: the optimal perturbation of a linear model.

    It is ``clip(x - t · normal)`` with t >= 0 such that its length is the radius, or as long as the box allows. With
    what t clips taken as fixed, the t of the right length has a closed form. From radius / ‖normal‖ on, which is right
    when nothing is clipped, t can only grow and clips ever more, but never makes z too long: a few rounds suffice.
    """
    sizes = np.abs(normals).max(axis=1, keepdims=True)
    ways = normals / np.where(sizes > 0, sizes, 1.0)
    t = np.minimum(radius / np.maximum(row_norms(ways), 1e-30), 1e12)
    for _ in range(iterations):
        free = X - t[:, None].astype(X.dtype) * ways
        z = np.clip(free, *box)
        inside = z == free
        steep = row_norms(ways * inside)
        left = np.sqrt(np.maximum(radius**2 - row_norms((z - X) * ~inside) ** 2, 0.0))
        longer = np.minimum(left / np.maximum(steep, 1e-30), 1e12)
        if not (longer > t * (1.0 + 1e-6)).any():
            break
        t = np.maximum(t, longer)
    return z.astype(X.dtype)
