"""Accuracy under a threat, cheaply enough for tuning: to first order for many settings at once, then by descent.

``models.certify`` proves and ``attacks`` breaks; this only ranks settings.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

MarginsAndSlopes = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
# Steps of the descent on the few best settings.
_STEPS = 20


@dataclass(frozen=True)
class Ball:
    """Perturbations δ with ‖δ‖ ≤ radius and x + δ in the box.

    Attributes
    ----------
    norm : {"l2", "linf"}
    radius : float
    box : (low, high) or None
    """

    norm: str = "l2"
    radius: float = 0.5
    box: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.norm not in ("l2", "linf"):
            raise ValueError(f"norm={self.norm!r} is not one of l2, linf")
        if not self.radius >= 0:
            raise ValueError(f"radius={self.radius!r} must not be negative")

    def _room(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """How far each coordinate may fall and rise, both (n, d)."""
        if self.box is None:
            room = torch.full_like(X, self.radius)
            return room, room
        low, high = self.box
        return (X - low).clamp(0.0, self.radius), (high - X).clamp(0.0, self.radius)

    def lengths(self, X: Tensor) -> np.ndarray:
        """Largest ‖δ‖₂ for each row, shape (n,), float64."""
        if self.norm == "l2":
            return np.full(len(X), float(self.radius))
        return torch.maximum(*self._room(X)).double().norm(dim=1).numpy()

    def linear_loss(self, X: Tensor, slopes: Tensor) -> Tensor:
        """The most that slope·δ can fall, shape (n, c), for slopes of shape (n, c, d).

        Exact in L∞ (with the box) and in L2 without one; in L2 with a box, coordinates at its edge stay and the others
        are taken as free.
        """
        fall, rise = (part[:, None, :] for part in self._room(X))
        if self.norm == "linf":
            return (slopes.clamp(min=0.0) * fall).sum(2) - (slopes.clamp(max=0.0) * rise).sum(2)
        free = torch.where(slopes > 0, fall, rise) > 0
        return (slopes * free).norm(dim=2) * self.radius

    def lowest_margins(self, X: np.ndarray, margins_and_slopes: MarginsAndSlopes) -> np.ndarray:
        """Lowest y·f found by projected gradient descent from each row, shape (n,).

        `margins_and_slopes` gives y·f(x), shape (n,), and y·∇f(x), shape (n, d).
        """
        size = 2.5 * self.radius / _STEPS
        points, lowest = X, np.full(len(X), np.inf)
        for _ in range(_STEPS):
            margins, slopes = margins_and_slopes(points)
            lowest = np.minimum(lowest, margins)
            if self.norm == "linf":
                moved = points - X - size * np.sign(slopes)
                moved = np.clip(moved, -self.radius, self.radius)
            else:
                moved = points - X - size * slopes / np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), 1e-30)
                moved = self._into_ball(self._into_box(X + moved) - X)
            points = self._into_box(X + moved).astype(X.dtype)
        return np.minimum(lowest, margins_and_slopes(points)[0])

    def _into_box(self, points: np.ndarray) -> np.ndarray:
        return points if self.box is None else np.clip(points, *self.box)

    def _into_ball(self, moved: np.ndarray) -> np.ndarray:
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        return moved * np.minimum(1.0, self.radius / np.maximum(lengths, 1e-30))
