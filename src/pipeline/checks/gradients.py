"""Are the gradients true, is the score a function, did the descent have slope and time?"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.checks.base import Verdict, failed, passed, skipped, warned, worst
from pipeline.checks.context import CheckContext, ModelContext, evenly
from pipeline.checks.parts import Part
from pipeline.checks.registry import check, model_check

_TOLERANCE = 1e-3


@model_check("01_gradient")
def gradient_equals_finite_differences(context: ModelContext) -> Verdict:
    """∇f at 8 points against differences of scores: along its own direction, and coordinate by coordinate."""
    if context.sample_gradients is None:
        return skipped("the model gives no gradients")
    target = context.target
    rows = evenly(np.arange(len(context.sample)), 8)
    X, gradients = context.sample[rows].astype(np.float64), context.sample_gradients[rows]
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


@model_check("02_deterministic")
def scores_are_deterministic(context: ModelContext) -> Verdict:
    """The same points, scored twice: equal bit for bit."""
    first, second = context.sample_scores, np.asarray(context.model.scores(context.sample))
    evidence = {"points": len(first), "largest_difference": float(np.abs(first - second).max(initial=0.0))}
    if not np.array_equal(first, second):
        return failed("scoring the same points twice gives different scores", **evidence)
    return passed("scores are deterministic", **evidence)


@check("02_deterministic")
def the_attack_saw_the_same_scores(context: CheckContext) -> Verdict:
    """Scores of attacked points are what the attack was told."""
    rows = context.spread(16)
    scores = np.asarray(context.model.scores(context.X[rows]))
    scale = float(np.abs(scores).max(initial=0.0)) or 1.0
    apart = float(np.abs(scores - context.attacked.result.clean_scores[rows]).max(initial=0.0))
    # Other batch shapes round differently.
    if not apart <= 1e-4 * scale:
        return failed("the scores the attack saw are not the model's", largest_difference_to_attack=apart)
    return passed("the attack saw the model's scores", largest_difference_to_attack=apart)


@model_check("13_zero_gradients")
def gradients_do_not_vanish(context: ModelContext) -> Verdict:
    """A gradient of exactly 0 is the sign of a masked loss (a hinge beyond its margin) or of a constant model."""
    gradients = context.sample_gradients
    if gradients is None:
        return skipped("the model gives no gradients")
    zero = _vanished(gradients)
    if zero.any():
        # One of a few says nothing about one in a hundred: ask more points.
        X = context.data.X_test
        more = np.ascontiguousarray(X[evenly(np.arange(len(X)), 256)])
        zero = _vanished(context.target.scores_and_gradients(more)[1])
    evidence = {"points": len(zero), "zero_at_clean_points": int(zero.sum())}
    if zero.mean() > 0.01:
        return failed(f"{zero.mean():.0%} of the gradients at clean points are exactly 0", **evidence)
    if zero.any():
        return warned("some gradients at clean points are exactly 0", **evidence)
    return passed("no gradient is 0", **evidence)


def _vanished(gradients: np.ndarray) -> np.ndarray:
    return np.logical_not(np.asarray(gradients).any(axis=1))


@check("13_zero_gradients")
def the_attack_had_slopes_to_follow(context: CheckContext) -> Verdict:
    """The same of the gradients that the attack met on its way, where it counts them."""
    during = {
        part.name: int(part.result.history["zero_gradients"])
        for part in context.parts
        if "zero_gradients" in part.result.history
    }
    if not during:
        return skipped("the attack counts no gradients")
    attacked = int((~context.attacked.clean_wrong).sum())
    evidence = {"attacked": attacked, "zero_during_attack": during}
    # By rows, not by evaluations: a row without a slope cannot move and is looked at once, a healthy one at every step.
    share = max(count / max(1, attacked) for count in during.values())
    if share > 0.01:
        return failed(f"{share:.0%} of the gradients are exactly 0: the attack had nothing to follow", **evidence)
    if any(during.values()):
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
