"""Accuracy under a threat, cheaply enough for tuning: to first order for many settings at once, then by descent.

``models.certify`` proves and ``attacks`` breaks; this only ranks settings.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from models.threat import Threat

# From points and the numbers of the rows they were to their margins and slopes.
MarginsAndSlopes = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# Steps of the descent on the few best settings, in radii. The first goes to where a linear score would be lowest: what
# is nearly linear is settled by it, and the others are for the curvature.
_STEPS = (1.0, 0.5, 0.5, *[0.25] * 4, *[0.125] * 4)
# Pixels whose slopes are computed to first order for all settings: with so many of them the length of a slope is known
# to a few percent, much better than its fold score is known from some hundred rows.
SAMPLED = 512


def room(threat: Threat, X: Tensor) -> tuple[Tensor, Tensor]:
    """How far each coordinate may fall and rise, both (n, d)."""
    if threat.box is None:
        room = torch.full_like(X, threat.epsilon)
        return room, room
    low, high = (torch.as_tensor(side, dtype=X.dtype) for side in threat.box)
    return (X - low).clamp(0.0, threat.epsilon), (high - X).clamp(0.0, threat.epsilon)


def lengths(threat: Threat, X: Tensor) -> np.ndarray:
    """Largest ‖δ‖₂ for each row, shape (n,), float64."""
    if threat.norm == "l2":
        return np.full(len(X), float(threat.epsilon))
    return torch.maximum(*room(threat, X)).double().norm(dim=1).numpy()


def linear_loss(threat: Threat, X: Tensor, slopes: Tensor) -> Tensor:
    """The most that slope·δ can fall, shape (n, c), for slopes of shape (n, c, d).

    Exact in L∞ (with the box) and in L2 without one; in L2 with a box, coordinates at its edge stay and the others
    are taken as free.
    """
    fall, rise = (part[:, None, :] for part in room(threat, X))
    if threat.norm == "linf":
        return (slopes.clamp(min=0.0) * fall).sum(2) - (slopes.clamp(max=0.0) * rise).sum(2)
    free = torch.where(slopes > 0, fall, rise) > 0
    return (slopes * free).norm(dim=2) * threat.epsilon


def sampled_loss(threat: Threat, X: Tensor, slopes: Tensor, coords: Tensor) -> Tensor:
    """`linear_loss` estimated from the slopes of some coordinates, shape (n, c, len(coords))."""
    share = len(coords) / X.shape[1]
    sides = None if threat.box is None else tuple(np.broadcast_to(side, X.shape[1])[coords] for side in threat.box)
    some = replace(threat, box=sides)
    return linear_loss(some, X[:, coords], slopes) / (share if threat.norm == "linf" else share**0.5)


def descend(threat: Threat, X: Tensor, slopes: Callable[[Tensor], Tensor], steps: int) -> Tensor:
    """Rows moved to where a margin is low, by steps of min(1, 2.5 / steps) radii from the rows themselves.

    `slopes` gives y·∇f of points, shape (n, d). One step in L∞ goes to where a linear margin would be lowest.
    """
    fall, rise = room(threat, X)
    moved, length = torch.zeros_like(X), min(1.0, 2.5 / steps) * threat.epsilon
    for _ in range(steps):
        slope = slopes(X + moved)
        if threat.norm == "linf":
            moved = moved - length * slope.sign()
        else:
            # What cannot move any further takes no share of the step's length.
            slope = slope * torch.where(slope > 0, moved > -fall, moved < rise)
            moved = moved - length * slope / slope.norm(dim=1, keepdim=True).clamp_(min=1e-30)
            moved = moved * (threat.epsilon / moved.norm(dim=1, keepdim=True).clamp_(min=1e-30)).clamp_(max=1.0)
        moved = torch.minimum(torch.maximum(moved, -fall), rise)
    return X + moved


def survivors(threat: Threat, X: np.ndarray, margins_and_slopes: MarginsAndSlopes) -> np.ndarray:
    """Rows that projected gradient descent leaves right, shape (n,); a row is given up as soon as it is wrong.

    `margins_and_slopes` gives y·f(x), shape (n,), and y·∇f(x), shape (n, d), of points and their rows' numbers.
    """
    rows, points = np.arange(len(X)), X
    for size in (*_STEPS, None):
        margins, slopes = margins_and_slopes(points, rows)
        right = margins > 0
        rows, points, slopes = rows[right], points[right], slopes[right]
        if size is None or len(rows) == 0:
            break
        start, length = X[rows], size * threat.epsilon
        if threat.norm == "linf":
            moved = np.clip(points - start - length * np.sign(slopes), -threat.epsilon, threat.epsilon)
        else:
            steepness = np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), 1e-30)
            moved = _into_ball(threat, _into_box(threat, points - length * slopes / steepness) - start)
        points = _into_box(threat, start + moved).astype(X.dtype)
    found = np.zeros(len(X), dtype=bool)
    found[rows] = True
    return found


def _into_box(threat: Threat, points: np.ndarray) -> np.ndarray:
    return points if threat.box is None else np.clip(points, *threat.box)


def _into_ball(threat: Threat, moved: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    return moved * np.minimum(1.0, threat.epsilon / np.maximum(lengths, 1e-30))
