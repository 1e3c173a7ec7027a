"""Algorithm 1 as one would write it down: NumPy, float64, one row at a time; the tests' measure of the fast code.

`algorithm1` holds f by its coefficients over all rows and the whole kernel matrix; `doubly_stochastic` holds scores and
draws new random features in every iteration; `fresh_examples` moves the rows of each batch before it learns from them.
"""

from collections.abc import Callable, Sequence

import numpy as np


def algorithm1(
    K: np.ndarray,
    y: np.ndarray,
    batches: Sequence[np.ndarray],
    *,
    C: float,
    step: float,
    penalty: float,
    diminishing: bool = False,
    proximal: bool = False,
) -> np.ndarray:
    """Coefficients a of every iterate f_t = Σ_i a_i k(x_i, ·), shape (T, n).

    Parameters
    ----------
    K : array of shape (n, n)
        Kernel matrix of the training rows.
    y : array of shape (n,)
        ±1.
    batches : sequence of row-number arrays
    C, step, penalty : float
        C, γ and ε' = sqrt(2g(0) - 2g(ε)).
    diminishing, proximal : bool
        γ_i = step / i instead of step; the proximal form of the ε' term instead of the paper's.
    """
    a = np.zeros(len(K))
    iterates = []
    for i, batch in enumerate(batches, start=1):
        gamma = step / i if diminishing else step
        norm = np.sqrt(max(a @ K @ a, 0.0))
        term, violators = np.zeros(len(K)), 0
        for b in batch:
            if 1 - y[b] * (K[b] @ a) + penalty * norm > 0:
                term[b] += gamma * C * y[b]
                violators += 1
        shrinkage = gamma * penalty * C * violators
        if proximal:
            a = (1 - gamma) * a + term
            norm = np.sqrt(max(a @ K @ a, 0.0))
            a = a * (max(0.0, 1 - shrinkage / norm) if norm > 0 else 1.0)
        else:
            a = (1 - gamma - (shrinkage / norm if norm > 0 else 0.0)) * a + term
        iterates.append(a)
    return np.array(iterates)


def doubly_stochastic(
    features: Callable[[int], np.ndarray],
    K: np.ndarray,
    y: np.ndarray,
    batches: Sequence[np.ndarray],
    *,
    C: float,
    step: float,
    penalty: float,
) -> tuple[np.ndarray, float]:
    """Scores of all rows under the last iterate, and ‖f‖ by the recursion; constant step, literal.

    `features(i)` draws Φ_i, shape (n, m), of iteration i = 0, 1, …, with Φ_i Φ_iᵀ ≈ K.
    """
    scores, squared_norm = np.zeros(len(y)), 0.0
    for i, batch in enumerate(batches):
        norm = np.sqrt(squared_norm)
        violating = 1 - y[batch] * scores[batch] + penalty * norm > 0
        c = step * C * violating * y[batch]
        decay = 1 - step - (step * penalty * C * violating.sum() / norm if norm > 0 else 0.0)
        gram = K[np.ix_(batch, batch)]
        squared_norm = max(0.0, decay**2 * squared_norm + 2 * decay * c @ scores[batch] + c @ gram @ c)
        phi = features(i)  # draw
        weights = phi[batch].T @ c  # project
        scores = decay * scores + phi @ weights  # accumulate
    return scores, float(np.sqrt(squared_norm))


def fresh_examples(
    X: np.ndarray,
    y: np.ndarray,
    batches: Sequence[np.ndarray],
    *,
    width: float,
    C: float,
    step: float,
    radius: float,
    norm: str,
    box: tuple[float, float],
    attack_steps: int,
    diminishing: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Centres s, shape (m, d), and coefficients a of f = Σ_j a_j exp(-width ‖x - s_j‖²), trained on moved rows.

    Every row of a batch is moved down the slope of y·f before it is learned from, each coordinate within the box.
    """
    centres: list[np.ndarray] = []
    a: list[float] = []

    def score_and_slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        score, slope = 0.0, np.zeros(len(x))
        for s, weight in zip(centres, a):
            value = weight * np.exp(-width * np.sum((x - s) ** 2))
            score, slope = score + value, slope - 2 * width * value * (x - s)
        return score, slope

    def moved(x: np.ndarray, sign: float) -> np.ndarray:
        delta = np.zeros(len(x))
        for _ in range(attack_steps):
            slope = sign * score_and_slope(x + delta)[1]
            if norm == "linf":
                delta = delta - min(1.0, 2.5 / attack_steps) * radius * np.sign(slope)
            else:
                stuck = np.where(slope > 0, x + delta <= box[0], x + delta >= box[1])
                slope = np.where(stuck, 0.0, slope)
                length = np.sqrt(np.sum(slope**2))
                delta = delta - min(1.0, 2.5 / attack_steps) * radius * slope / max(length, 1e-30)
                delta = delta * min(1.0, radius / max(np.sqrt(np.sum(delta**2)), 1e-30))
            delta = np.clip(x + np.clip(delta, -radius, radius), *box) - x
        return np.asarray(x + delta)

    for i, batch in enumerate(batches, start=1):
        gamma = step / i if diminishing else step
        examples = [(moved(X[b], y[b]), y[b]) for b in batch]
        learned = [(x, sign) for x, sign in examples if 1 - sign * score_and_slope(x)[0] > 0]
        a = [(1 - gamma) * weight for weight in a] + [gamma * C * sign for _, sign in learned]
        centres = centres + [x for x, _ in learned]
    return np.array(centres), np.array(a)
