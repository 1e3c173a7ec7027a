"""Are the gradients true, is the score a function, did the descent have slope and time?"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.checks.base import CheckContext, Verdict, failed, passed, skipped, warned, worst
from pipeline.checks.parts import Part
from pipeline.checks.registry import check

_TOLERANCE = 1e-3


@check("01_gradient")
def gradient_equals_finite_differences(context: CheckContext) -> Verdict:
    """∇f at 8 points against differences of scores: along its own direction, and coordinate by coordinate."""
    from attacks import as_target

    target = as_target(context.model)
    if not callable(getattr(target, "scores_and_gradients", None)):
        return skipped("the model gives no gradients")
    X = context.X[context.spread(8)].astype(np.float64)
    _, gradients = target.scores_and_gradients(X)
    gradients = np.asarray(gradients, dtype=np.float64)
    along, doubt = _along(target, X, gradients)
    coordinates = _by_coordinate(target, X, gradients)
    norms = np.linalg.norm(gradients, axis=1)
    scale = np.maximum(np.maximum(np.abs(along), norms), 1e-300)
    # Where halving the step moves the difference quotient itself by more than the tolerance, it cannot judge. Of the
    # others the nearest counts: rounding spoils short steps and curvature long ones, a wrong gradient fits none.
    usable = doubt < _TOLERANCE * scale
    errors = np.where(usable, np.abs(along - norms) / scale, np.inf).min(axis=0)
    judged = usable.any(axis=0)
    evidence = {
        "points": len(X),
        "judged": int(judged.sum()),
        "relative_error_along_gradient": float(errors[judged].max(initial=0.0)),
        "relative_error_by_coordinate": float(coordinates.max(initial=0.0)),
        "tolerance": _TOLERANCE,
    }
    if (errors[judged] > _TOLERANCE).any() or (coordinates > _TOLERANCE).any():
        most = max(evidence["relative_error_along_gradient"], evidence["relative_error_by_coordinate"])
        return failed(f"the gradient is off by {most:.1e} (relative) from finite differences", **evidence)
    if judged.sum() < len(X) / 2:
        return warned("scores are too noisy (or too flat) to judge the gradient by differences", **evidence)
    return passed("the gradient equals finite differences", **evidence)


def _along(target: Any, X: np.ndarray, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Difference quotients along each gradient (a fixed direction where it is 0) and their doubt, (lengths, n) each."""
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    flat = np.full(X.shape[1], 1.0 / np.sqrt(X.shape[1]))
    directions = np.where(norms > 0, gradients / np.where(norms > 0, norms, 1.0), flat)
    steps = np.array([[0.04, 0.02], [0.16, 0.08], [0.64, 0.32]]).T
    moved = [X + sign * h * directions for h in steps.ravel() for sign in (1, -1)]
    scores = np.asarray(target.scores(np.concatenate(moved)), dtype=np.float64)
    plus, minus = np.moveaxis(scores.reshape(*steps.shape, 2, len(X)), 2, 0)
    coarse, fine = (plus - minus) / (2 * steps[:, :, None])
    return fine + (fine - coarse) / 3, np.abs(fine - coarse) / 3


def _by_coordinate(target: Any, X: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Relative error per point over 64 coordinates, by the probe that black-box attacks use."""
    rng = np.random.default_rng(0)
    coords = np.sort(rng.choice(X.shape[1], min(64, X.shape[1]), replace=False))
    h = 1e-2
    plus, minus = target.probe(X, coords, h)
    estimated, stated = (plus - minus) / (2 * h), gradients[:, coords]
    # Relative to the whole gradient: float32 resolves its parts to about 1e-4 of it (measured on CIFAR-10, where the
    # two halves of a kernel sum's gradient cancel), while one wrong coordinate of thousands still stands out.
    scale = np.maximum(np.linalg.norm(estimated, axis=1), np.linalg.norm(gradients, axis=1))
    return np.linalg.norm(estimated - stated, axis=1) / np.where(scale > 0, scale, 1.0)


@check("02_deterministic")
def scores_are_deterministic(context: CheckContext) -> Verdict:
    """The same points, scored twice: equal bit for bit; and equal to what the attack was told."""
    rows = context.spread(32)
    X = context.X[rows]
    first, second = (np.asarray(context.model.scores(X)) for _ in range(2))
    told = context.attacked.result.clean_scores[rows]
    scale = float(np.abs(first).max(initial=0.0)) or 1.0
    evidence = {
        "points": len(rows),
        "largest_difference": float(np.abs(first - second).max(initial=0.0)),
        "largest_difference_to_attack": float(np.abs(first - told).max(initial=0.0)),
    }
    if not np.array_equal(first, second):
        return failed("scoring the same points twice gives different scores", **evidence)
    # Other batch shapes round differently.
    if not evidence["largest_difference_to_attack"] <= 1e-4 * scale:
        return failed("the scores the attack saw are not the model's", **evidence)
    return passed("scores are deterministic", **evidence)


@check("13_zero_gradients")
def gradients_do_not_vanish(context: CheckContext) -> Verdict:
    """A gradient of exactly 0 is the sign of a masked loss (a hinge beyond its margin) or of a constant model."""
    from attacks import as_target

    target = as_target(context.model)
    if not callable(getattr(target, "scores_and_gradients", None)):
        return skipped("the model gives no gradients")
    during = {
        part.name: int(part.result.history["zero_gradients"])
        for part in context.parts
        if "zero_gradients" in part.result.history
    }
    attacked = int((~context.attacked.clean_wrong).sum())
    begun = any(getattr(part.attack, "begins_at_clean", False) for part in context.parts if part.name in during)
    # An attack that counts and begins at the clean points has looked at those it attacked itself.
    rows = context.spread(0 if begun and attacked else 32)
    zero = int((~np.asarray(target.scores_and_gradients(context.X[rows])[1]).any(axis=1)).sum()) if len(rows) else 0
    evidence = {"points": len(rows), "zero_at_clean_points": zero, "attacked": attacked, "zero_during_attack": during}
    # By rows, not by evaluations: a row without a slope cannot move and is looked at once, a healthy one at every step.
    share = max([zero / max(1, len(rows))] + [count / max(1, attacked) for count in during.values()])
    if share > 0.01:
        return failed(f"{share:.0%} of the gradients are exactly 0: the attack had nothing to follow", **evidence)
    if zero or any(during.values()):
        return warned("some gradients are exactly 0", **evidence)
    return passed("no gradient is 0", **evidence)


@check("14_budget")
def descent_has_come_to_rest(context: CheckContext) -> Verdict:
    """A loss still falling at the last step means that the attack's budget was too small."""
    if not context.parts:
        return skipped("nothing was attacked")
    return worst([_at_rest(context, part) for part in context.parts])


def _at_rest(context: CheckContext, part: Part) -> Verdict:
    gain = part.result.history.get("last_step_gain")
    if gain is None:
        return skipped(f"{part.name} records no loss by step")
    if getattr(part.attack, "steps", 1) < 2:
        return skipped(f"{part.name} has one step by definition")
    evidence = {f"{part.name}_last_step_gain": float(gain), f"{part.name}_steps": part.attack.steps}
    if gain > 0.10:
        return failed(
            f"{gain:.0%} of {part.name}'s progress came in its last step: raise attack.steps or attack.step_size",
            **evidence,
        )
    if gain > 0.02:
        return warned(f"{gain:.1%} of {part.name}'s progress came in its last step", **evidence)
    return passed(f"{part.name} had come to rest", **evidence)
