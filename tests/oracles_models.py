"""Slow, obvious versions of what ``models`` does fast; Algorithm 1 itself is in ``models.reference``."""

import numpy as np

from models.kernels import Kernel


def kernel_matrix(name, A, B, gamma):
    """k(a, b) from the differences themselves."""
    squared = np.square(A[:, None, :] - B[None, :, :]).sum(2)
    written_out = {"rbf": lambda: np.exp(-gamma * squared), "laplacian": lambda: np.exp(-gamma * np.sqrt(squared))}
    return written_out[name]() if name in written_out else Kernel.of(name).profile(np.sqrt(squared), gamma)


def central_differences(scores, X, h=1e-5):
    """Numerical gradient of a score function, shape (n, d)."""
    steps = h * np.eye(X.shape[1])
    return np.stack([(scores(X + e) - scores(X - e)) / (2 * h) for e in steps], axis=1)


def strongest_point_within(model, X, signs, radii, steps=60):
    """Lowest margins y·f found by projected gradient descent inside each row's L2 ball, shape (n,)."""
    start, lowest = X.copy(), signs * model.scores(X)
    points = X.copy()
    for turn in range(steps):
        _, gradients = model.scores_and_gradients(points)
        direction = -signs[:, None] * gradients.astype(np.float64)
        length = np.linalg.norm(direction, axis=1, keepdims=True)
        rate = radii * 2.0 ** -(turn // 10)
        points = points + rate[:, None] * direction / np.maximum(length, 1e-300)
        move = points - start
        size = np.linalg.norm(move, axis=1)
        points = start + move * np.minimum(1.0, radii / np.maximum(size, 1e-300))[:, None]
        lowest = np.minimum(lowest, signs * model.scores(points))
    return lowest
