"""Input checks whose messages name the argument to mend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def check_epsilon(epsilon: Any, name: str = "epsilon") -> float:
    """A radius: a finite number >= 0."""
    value = float(epsilon)
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number >= 0, got {epsilon!r}")
    return value


def check_count(value: Any, name: str, least: int = 1) -> None:
    """An integer setting with a smallest value."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")


def check_positive(value: Any, name: str) -> None:
    """A finite number > 0."""
    if not (isinstance(value, (int, float, np.number)) and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")


def check_box(box: Any) -> None:
    """A pair (lowest, highest) pixel value."""
    try:
        lowest, highest = box
        ordered = float(lowest) < float(highest)
    except (TypeError, ValueError):
        ordered = False
    if not ordered:
        raise ValueError(f"box must be a pair (lowest, highest) with lowest < highest, got {box!r}")


def check_points(X: Any, dtype: str, box: tuple[float, float], name: str = "X") -> np.ndarray:
    """Rows of finite pixels inside the box, (n, d), in the attack's dtype."""
    points = np.asarray(X)
    if points.ndim != 2 or points.shape[0] == 0 or points.shape[1] == 0:
        raise ValueError(f"{name} must be a non-empty array of shape (n, d), got shape {points.shape}")
    if not (np.issubdtype(points.dtype, np.number) or points.dtype == bool):
        raise ValueError(f"{name} must hold numbers, got dtype {points.dtype}")
    points = np.ascontiguousarray(points, dtype=dtype)
    if not points.flags.writeable:
        points = points.copy()  # torch warns of arrays it could write to and must not
    if not np.isfinite(points).all():
        raise ValueError(f"{name} must be finite, but holds NaN or infinite values")
    if points.min() < box[0] or points.max() > box[1]:
        raise ValueError(
            f"{name} must lie in box={tuple(box)}, but its values span [{points.min():.6g}, {points.max():.6g}]"
        )
    return points


def check_labels(y: Any, n: int, classes: np.ndarray | None) -> np.ndarray:
    """Signs of the labels: +1 for ``classes[1]``, -1 for ``classes[0]``."""
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise ValueError(f"y must have shape ({n},) to match X, got shape {labels.shape}")
    known = np.array([-1, 1]) if classes is None else np.asarray(classes)
    positive, negative = labels == known[1], labels == known[0]
    strangers = ~(positive | negative)
    if np.any(strangers):
        what = "-1 or +1" if classes is None else f"one of the model's classes {known.tolist()}"
        raise ValueError(f"y must be {what}, got {np.unique(labels[strangers])[:5].tolist()}")
    return np.where(positive, 1, -1)


def check_scores(scores: Any, n: int) -> np.ndarray:
    """One finite score per row, as float64."""
    values = np.array(scores, dtype=np.float64)  # a copy: the model may keep its own
    if values.shape != (n,):
        raise ValueError(f"model must give one score per row, got shape {values.shape} for {n} rows")
    if not np.isfinite(values).all():
        raise ValueError(f"model gives scores that are NaN or infinite for {np.sum(~np.isfinite(values))} of {n} rows")
    return values
