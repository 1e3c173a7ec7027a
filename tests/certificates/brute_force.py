"""Random machines of few dimensions, and the lowest margin that a dense search finds in a region."""

from collections.abc import Callable

import numpy as np

from models.certificates.gaussian import GaussianSum
from models.certificates.region import Region, region
from models.threat import Box


def random_sum(rng: np.random.Generator, d: int) -> GaussianSum:
    """Few or many terms, narrow or wide, tiny to huge weights, duplicates, with and without intercept."""
    m = int(rng.integers(1, 13))
    centers = rng.uniform(0, 1, (m, d))
    if rng.random() < 0.3:
        centers[rng.integers(m)] = centers[rng.integers(m)]
    weights = rng.standard_normal(m) * 10.0 ** rng.choice([0, 0, 0, rng.uniform(-6, 6)])
    if rng.random() < 0.2:
        weights *= 10.0 ** rng.uniform(-3, 3, m)
    gamma = 10.0 ** rng.uniform(-2.5, 2.5)
    total = np.abs(weights).sum()
    intercept = float(rng.choice([0.0, 0.3 * rng.standard_normal() * total]))
    return GaussianSum(centers, weights, gamma, intercept)


def random_points(rng: np.random.Generator, d: int, n: int) -> np.ndarray:
    """Points of the unit cube, some on its edges."""
    X = rng.uniform(0, 1, (n, d))
    X[rng.random((n, d)) < 0.2] = 0.0
    X[rng.random((n, d)) < 0.1] = 1.0
    return X


def random_threat(rng: np.random.Generator, d: int) -> tuple[str, Box]:
    """A norm, and a box or none."""
    box = [None, (0.0, 1.0), (np.zeros(d), np.full(d, 1.0))][rng.integers(3)]
    return str(rng.choice(["l2", "linf"])), box


def random_regions(rng: np.random.Generator, d: int, n: int) -> tuple[Region, str]:
    norm, box = random_threat(rng, d)
    return region(random_points(rng, d, n), 10.0 ** rng.uniform(-3, 0.3, n), norm, box), norm


def largest_proved(prove: Callable[[Region], np.ndarray], X: np.ndarray, norm: str, box: Box) -> np.ndarray:
    """The largest radius of a fine ladder that is proved, per row; 0 if none is. A wrong bound is wrong there first."""
    best = np.zeros(len(X))
    for epsilon in np.geomspace(1e-3, 2.0, 40):
        best = np.where(prove(region(X, epsilon, norm, box)), epsilon, best)
    return best


def scores(form: GaussianSum, points: np.ndarray) -> np.ndarray:
    """From differences, point by point."""
    squared = ((points[:, None, :] - form.centers) ** 2).sum(2)
    return np.exp(-form.gamma * squared) @ form.weights + form.intercept


def inside(where: Region, row: int, rng: np.random.Generator, n: int = 600) -> np.ndarray:
    """Points of one region: corners, edges and the interior, pulled back into the ball."""
    d = where.X.shape[1]
    lower, upper = where.lower[row], where.upper[row]
    corners = np.array(np.meshgrid(*([[0.0, 0.5, 1.0]] * d))).reshape(d, -1).T
    share = np.concatenate([corners, rng.uniform(0, 1, (n, d)), rng.integers(0, 2, (n // 4, d))])
    moves = lower + share * (upper - lower)
    sphere = rng.standard_normal((n, d))
    sphere *= where.radius[row] / np.linalg.norm(sphere, axis=1, keepdims=True)
    moves = np.concatenate([moves, np.clip(sphere, lower, upper)])
    length = np.linalg.norm(moves, axis=1, keepdims=True)
    return where.X[row] + moves * np.minimum(1.0, where.radius[row] / np.maximum(length, 1e-300))


def lowest(score, where: Region, row: int, sign: float, rng: np.random.Generator, rounds: int = 6) -> float:
    """Smallest sign·f found: dense sampling, then sampling ever closer around the best."""
    points = inside(where, row, rng)
    values = sign * score(points)
    best, x = values.min(), where.X[row]
    center, spread = points[values.argmin()] - x, 0.3
    for _ in range(rounds):
        moves = center + spread * (where.upper[row] - where.lower[row]) * rng.standard_normal((150, len(x)))
        moves = np.clip(moves, where.lower[row], where.upper[row])
        length = np.linalg.norm(moves, axis=1, keepdims=True)
        moves *= np.minimum(1.0, where.radius[row] / np.maximum(length, 1e-300))
        values = sign * score(x + moves)
        if values.min() < best:
            best, center = values.min(), moves[values.argmin()]
        spread *= 0.4
    return float(best)
