"""Input checks whose messages name the argument to change."""

import math
from typing import Any

import numpy as np
from scipy.sparse import issparse


class Unattackable(ValueError):
    """The model does not give what the attack needs: scores, or gradients."""


def check_epsilon(epsilon: Any, name: str = "epsilon") -> float:
    """A radius: a finite number >= 0."""
    if np.ndim(epsilon) > 0:
        raise ValueError(
            f"{name} must be one number, got shape {np.shape(epsilon)}: per feature use constraints.epsilon"
        )
    try:
        value = float(epsilon)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number >= 0, got {epsilon!r}")
    return value


def as_dense(X: Any, name: str = "X") -> np.ndarray:
    """Rows as an array; sparse ones are refused, not silently unpacked."""
    if issparse(X):
        raise ValueError(f"{name} is sparse, but an attacker may change any value: give dense rows, {name}.toarray()")
    return np.asarray(X)


def check_points(X: Any, dtype: str, box: tuple[Any, Any], name: str = "X") -> np.ndarray:
    """Rows of finite features inside the box, (n, d), in the attack's dtype."""
    points = as_dense(X, name)
    if points.ndim != 2 or points.shape[0] == 0 or points.shape[1] == 0:
        raise ValueError(f"{name} must be a non-empty array of shape (n, d), got shape {points.shape}")
    if not (np.issubdtype(points.dtype, np.number) or points.dtype == bool):
        raise ValueError(f"{name} must hold numbers, got dtype {points.dtype}")
    points = np.ascontiguousarray(points, dtype=dtype)
    if not points.flags.writeable:
        points = points.copy()  # torch warns of arrays it could write to and must not
    if not np.isfinite(points).all():
        raise ValueError(f"{name} must be finite, but holds NaN or infinite values")
    lowest, highest = (np.asarray(limit, dtype=points.dtype) for limit in box)
    for limit in (lowest, highest):
        if limit.shape not in ((), (points.shape[1],)):
            raise ValueError(f"box must hold one limit or one per feature ({points.shape[1]}), got shape {limit.shape}")
    outside = ((points < lowest) | (points > highest)).any(axis=0)
    if outside.any():
        span = f"[{points.min():.6g}, {points.max():.6g}]"
        if lowest.ndim or highest.ndim:
            raise ValueError(f"{name} must lie in box, but feature {np.flatnonzero(outside)[0]} does not")
        raise ValueError(f"{name} must lie in box={tuple(box)}, but its values span {span}")
    return points


def check_labels(y: Any, n: int, classes: np.ndarray | None, name: str = "y") -> np.ndarray:
    """Signs of the labels: +1 for ``classes[1]``, -1 for ``classes[0]``."""
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},) to match X, got shape {labels.shape}")
    known = np.array([-1, 1]) if classes is None else np.asarray(classes)
    positive, negative = labels == known[1], labels == known[0]
    strangers = ~(positive | negative)
    if np.any(strangers):
        what = "-1 or +1" if classes is None else f"one of the model's classes {known.tolist()}"
        raise ValueError(f"{name} must be {what}, got {np.unique(labels[strangers])[:5].tolist()}")
    return np.where(positive, 1, -1)


def labels_to_leave(y: Any, targets: Any, n: int, classes: np.ndarray | None) -> Any:
    """What the rows are to be moved away from: y, or of two classes the one that is not the target."""
    if targets is None:
        return y
    known = np.array([-1, 1]) if classes is None else np.asarray(classes)
    return known[np.where(check_labels(targets, n, classes, "targets") > 0, 0, 1)]


def check_scores(scores: Any, n: int) -> np.ndarray:
    """One finite score per row, as float64."""
    values = np.array(scores, dtype=np.float64)  # a copy: the model may keep its own
    if values.shape != (n,):
        raise ValueError(f"model must give one score per row, got shape {values.shape} for {n} rows")
    if not np.isfinite(values).all():
        raise ValueError(f"model gives scores that are NaN or infinite for {np.sum(~np.isfinite(values))} of {n} rows")
    return values
