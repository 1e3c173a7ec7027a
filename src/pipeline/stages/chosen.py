"""Which test rows an attack gets, and the error curve of a training."""

from __future__ import annotations

import numpy as np

# Of more test rows than the first, the second are enough: an accuracy is then known to 0.7 points (standard error), and
# an attack of 100 steps on all test rows of covtype (145,253) would take hours.
MANY, PART = 10_000, 5_000


def choose_rows(y: np.ndarray, limit: int | None) -> np.ndarray:
    """At most ``limit`` rows, the same for every model and seed, with the classes in their proportion.

    None takes all of up to `MANY` rows, and `PART` of more.
    """
    if limit is None:
        limit = len(y) if len(y) <= MANY else PART
    if limit >= len(y):
        return np.arange(len(y))
    from sklearn.model_selection import train_test_split

    labels, classes, counts = np.unique(y, return_inverse=True, return_counts=True)
    if min(limit, len(y) - limit) < len(labels) or counts.min() < 2:
        # Too few for scikit-learn, which wants every class on both sides: the first rows of every class, in proportion.
        rank = np.array([np.count_nonzero(classes[:row] == own) for row, own in enumerate(classes)])
        return np.sort(np.argsort((rank + 0.5) / counts[classes], kind="stable")[:limit])
    rows, _ = train_test_split(np.arange(len(y)), train_size=limit, stratify=y, random_state=0)
    return np.sort(rows)
