"""Slow, obvious versions of what ``models`` does fast: numpy, float64, one row, one feature, one setting at a time."""

import numpy as np


def kernel_matrix(name, A, B, gamma):
    """k(a, b) from the differences themselves."""
    squared = np.square(A[:, None, :] - B[None, :, :]).sum(2)
    return np.exp(-gamma * squared) if name == "rbf" else np.exp(-gamma * np.sqrt(squared))


def naive_training(K, signs, batches, *, C, step, penalty, diminishing=False, proximal=False, skip=None):
    """Algorithm 1 on the full kernel matrix: coefficients over all rows, the norm from the Gram matrix every time.

    Returns
    -------
    iterates : array of shape (T, n)
        Coefficients a of f_t = Σ_i a_i k(x_i, ·) after each iteration.
    """
    a = np.zeros(len(K))
    iterates = []
    for i, batch in enumerate(batches, start=1):
        gamma = step / i if diminishing else step
        norm = np.sqrt(max(a @ K @ a, 0.0))
        added, violators = np.zeros(len(K)), 0
        for b in batch:
            if skip is not None and skip[b]:
                continue
            if 1 - signs[b] * (K[b] @ a) + penalty * norm > 0:
                added[b] += gamma * C * signs[b]
                violators += 1
        pull = gamma * penalty * C * violators
        if proximal:
            a = (1 - gamma) * a + added
            norm = np.sqrt(max(a @ K @ a, 0.0))
            a = a * (max(0.0, 1 - pull / norm) if norm > 0 else 1.0)
        else:
            a = (1 - gamma - (pull / norm if norm > 0 else 0.0)) * a + added
        iterates.append(a.copy())
    return np.array(iterates)


def naive_feature_training(features, gram, signs, batches, *, C, step, penalty):
    """The same with random features: `features(i)` gives Φ_i, (n, m), of iteration i = 0, 1, …; constant step, literal.

    Returns the scores of all rows under the final function, and the norm by the recursion of the paper's kernel.
    """
    scores, squared_norm = np.zeros(len(signs)), 0.0
    for i, batch in enumerate(batches):
        norm = np.sqrt(squared_norm)
        violating = 1 - signs[batch] * scores[batch] + penalty * norm > 0
        c = step * C * violating * signs[batch]
        pull = step * penalty * C * violating.sum()
        decay = 1 - step - (pull / norm if norm > 0 else 0.0)
        own = c @ gram[np.ix_(batch, batch)] @ c
        squared_norm = max(0.0, decay**2 * squared_norm + 2 * decay * c @ scores[batch] + own)
        phi = features(i)
        scores = decay * scores + phi @ (phi[batch].T @ c)
    return scores, np.sqrt(squared_norm)


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
