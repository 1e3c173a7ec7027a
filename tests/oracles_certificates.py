"""A naive RBF machine with an intercept, and an attacker that tries hard to change its sign within a ball."""

from dataclasses import dataclass

import numpy as np


@dataclass
class NaiveMachine:
    """f(x) = Σ_i a_i exp(-gamma ‖x - s_i‖²) + b, evaluated from differences, point by point."""

    points: np.ndarray
    coefficients: np.ndarray
    gamma: float
    intercept: float = 0.0

    def kernel(self, x):
        return np.exp(-self.gamma * ((x - self.points) ** 2).sum(axis=1))

    def score(self, x):
        return float(self.coefficients @ self.kernel(x)) + self.intercept

    def gradient(self, x):
        return -2 * self.gamma * ((self.coefficients * self.kernel(x)) @ (x - self.points))

    def norm(self):
        gram = np.array([self.kernel(s) for s in self.points])
        return float(np.sqrt(max(self.coefficients @ gram @ self.coefficients, 0.0)))


def lowest_margin(score, gradient, x, sign, radius, directions, steps=40):
    """Smallest sign·f found in the ball: projected descent from the centre and from points on the sphere."""
    starts = [np.zeros_like(x), *(radius * v / np.linalg.norm(v) for v in directions)]
    lowest = sign * score(x)
    for delta in starts:
        size = radius / 4
        value = sign * score(x + delta)
        for _ in range(steps):
            slope = sign * gradient(x + delta)
            length = np.linalg.norm(slope)
            if length == 0:
                break
            tried = delta - size * slope / length
            tried *= min(1.0, radius / max(np.linalg.norm(tried), 1e-300))
            new = sign * score(x + tried)
            if new < value:
                delta, value = tried, new
            else:
                size /= 2
        lowest = min(lowest, value)
    return lowest
