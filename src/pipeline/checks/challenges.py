"""Cheap second opinions: other attacks tried on the points that an attack left standing.

A point that one attack gives up on and a weaker one breaks shows that the first was not working. A few dozen of the
points standing, half of them with the smallest margins, say nearly as much as the whole test set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.checks.base import Verdict, failed, passed, warned
from pipeline.checks.context import CheckContext


def judge(
    label: str, missed: int, tried: int, attacked: int, *, tolerance: float, one_is_luck: bool = True, **evidence: Any
) -> Verdict:
    """Compare a count of missed points with a tolerance in accuracy (a fraction of all attacked points).

    One point is luck (a coarse step jumps over a fold of the boundary) and gives a warning, unless told otherwise. Over
    an eighth of those tried is never within tolerance: a few tried points stand for thousands that were not.
    """
    evidence = {"broken_by_the_other": missed, "tried": tried, "attacked": attacked, "tolerance": tolerance} | evidence
    if missed > max(int(one_is_luck), min(tolerance * attacked, tried / 8)):
        return failed(f"{label} breaks {missed} of {tried} points left standing", **evidence)
    if missed:
        return warned(f"{label} breaks {missed} of {tried} points left standing: within tolerance", **evidence)
    return passed(f"{label} breaks none of {tried} points left standing", **evidence)


def broken_by_noise(context: CheckContext, rows: np.ndarray, sizes: np.ndarray, norm: str) -> np.ndarray:
    """Which rows random noise of the given sizes breaks, (k,) bool: one scoring."""
    rng = np.random.default_rng(0)
    X = context.X[rows].astype(np.float64)
    if norm == "linf":
        noise = rng.choice([-1.0, 1.0], size=X.shape)
    else:
        noise = rng.standard_normal(X.shape)
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    points = np.clip(X + np.asarray(sizes).reshape(-1, 1) * noise, 0.0, 1.0)
    return wrong(context, points, rows)


def broken_by_queries(
    context: CheckContext, rows: np.ndarray, epsilon: float, norm: str, steps: int = 2, coordinates: int = 128
) -> np.ndarray:
    """Which rows a descent that sees only scores breaks inside the ball, (k,) bool.

    The slope comes from differences of scores over (at most 128 random) coordinates; the steps share the radius.
    """
    from attacks import as_target

    if len(rows) == 0:
        return np.zeros(0, dtype=bool)
    target = as_target(context.model)
    X, signs = context.X[rows].astype(np.float64), context.signs[rows]
    rng = np.random.default_rng(0)
    points = X.copy()
    broken = np.zeros(len(rows), dtype=bool)
    for _ in range(steps):
        coords = np.sort(rng.choice(X.shape[1], min(coordinates, X.shape[1]), replace=False))
        plus, minus = target.probe(points, coords, 1e-3)
        slope = np.zeros_like(points)
        slope[:, coords] = signs[:, None] * (plus - minus)
        if norm == "linf":
            points = points - epsilon / steps * np.sign(slope)
            points = np.clip(points, X - epsilon, X + epsilon)
        else:
            length = np.linalg.norm(slope, axis=1, keepdims=True)
            points = points - epsilon / steps * slope / np.where(length > 0, length, 1.0)
            delta = points - X
            points = X + delta * np.minimum(1.0, epsilon / np.maximum(np.linalg.norm(delta, axis=1), 1e-300))[:, None]
        points = np.clip(points, 0.0, 1.0)
        broken |= wrong(context, points, rows)
    return broken


def broken_by(attack: Any, context: CheckContext, rows: np.ndarray) -> np.ndarray:
    """Which rows another attack breaks, (k,) bool."""
    if len(rows) == 0:
        return np.zeros(0, dtype=bool)
    return np.asarray(attack(context.model, context.X[rows], context.y[rows]).success)


def wrong(context: CheckContext, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which points the model puts into another class than their clean rows have, (k,) bool."""
    if len(rows) == 0:
        return np.zeros(0, dtype=bool)
    return (np.asarray(context.model.scores(points.astype(context.X.dtype))) > 0) != (context.signs[rows] > 0)
