"""Are the gradients true, is the score a function, did the descent have slope and time?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.checks.context import CheckContext, ModelContext, Part, evenly
from pipeline.checks.registry import Check, failed, of_attack, of_model, of_run, passed, skipped, warned

_TOLERANCE = 1e-3
# Steps of difference quotients over the data's scale: curvature spoils the long ones and rounding the short ones.
_STEPS = (1 / 32, 1 / 128, 1 / 512)
_MORE_STEPS = (1 / 8, *_STEPS, 1 / 2048)
_TINY_STEPS = (1e-5, 1e-6, 1e-7)  # in float64


@of_model("01_gradient")
def gradient_equals_finite_differences(context: ModelContext) -> Check:
    """∇f against differences of scores, at test points and between them: along itself, along chords, by coordinate."""
    if context.sample_gradients is None:
        return skipped("the model gives no gradients")
    X = context.sample.astype(np.float64)
    # A gradient that is right at the data only is no gradient.
    between = 0.8 * X + 0.2 * np.roll(X, 3, axis=0)
    points = np.concatenate([X, between])
    beside = np.asarray(context.target.scores_and_gradients(between.astype(context.sample.dtype))[1], dtype=np.float64)
    gradients = np.concatenate([context.sample_gradients, beside])
    answer, smooth = _compared(context, points, gradients)
    rows = evenly(np.flatnonzero(smooth[: len(X)]), 8)
    if len(rows) == 0:
        return answer
    errors, judged = _by_coordinate(context.target, context.scale, X[rows], gradients[rows], _STEPS[1:])
    kinks = judged & (errors > _TOLERANCE)
    if kinks.any() and context.precise is not None:
        # A step across the kink of a network says nothing about either side: ask again with steps that are too short.
        some = rows[kinks]
        errors[kinks], judged[kinks] = _by_coordinate(
            context.precise, context.scale, X[some], gradients[some], _TINY_STEPS[:2]
        )
    most = float(errors[judged].max(initial=0.0))
    evidence = answer.evidence | {"relative_error_by_coordinate": most, "judged_by_coordinate": int(judged.sum())}
    if most > _TOLERANCE:
        return failed(
            f"the gradient is off by {most:.1e} (relative, by coordinate) from finite differences", **evidence
        )
    return replace(answer, evidence=evidence)


@of_run("01_gradient", general=True)
def gradient_is_true_where_the_attack_went(context: CheckContext) -> Check:
    """The same at some of the run's examples; of many classes the margins of two."""
    if not context.has_gradients:
        return skipped("the model gives no gradients")
    if context.many:
        return _of_many(context)
    points = np.ascontiguousarray(context.attacked.result.examples[context.spread(8)])
    gradients = np.asarray(context.target.scores_and_gradients(points)[1], dtype=np.float64)
    answer, _ = _compared(context, points.astype(np.float64), gradients)
    return replace(answer, evidence={f"at_examples_{name}": value for name, value in answer.evidence.items()})


def _of_many(context: CheckContext) -> Check:
    """Margins of the two classes that most attacked rows have, at clean points and at examples."""
    labels, counts = np.unique(context.y, return_counts=True)
    wrong, judged, most = 0, 0, 0.0
    for code in context.target.codes(labels[np.argsort(-counts, kind="stable")[:2]], "y"):
        rows = context.spread(8, np.flatnonzero(context.y == context.target.classes_[code]))
        points = np.concatenate([context.X[rows], np.asarray(context.attacked.result.examples)[rows]])
        target = context.target.against(int(code))
        gradients = np.asarray(target.scores_and_gradients(points)[1], dtype=np.float64)
        evidence = _compared(context, points.astype(np.float64), gradients, target)[0].evidence
        wrong, judged = wrong + evidence["wrong"], judged + evidence["compared"]
        most = max(most, evidence["relative_error_along_gradient"])
    found = {"compared": judged, "wrong": wrong, "relative_error_along_gradient": most}
    # The strongest rival changes from place to place: across such a kink a difference says nothing.
    if wrong > 0.25 * judged:
        return failed(f"{wrong} of {judged} slopes of the margins are not those of finite differences", **found)
    if judged == 0:
        return warned("the margins are too rough or too flat to judge the gradient by differences", **found)
    return passed("the gradients of the margins equal finite differences", **found)


def _compared(
    context: ModelContext, X: np.ndarray, gradients: np.ndarray, target: Any = None
) -> tuple[Check, np.ndarray]:
    """The gradients' components along themselves and along chords to other points, against difference quotients.

    Returns
    -------
    Check, and which points the model's own arithmetic was good enough for, (n,) bool
    """
    norms = np.linalg.norm(gradients, axis=1)
    chords = np.roll(X, 1, axis=0) - X
    chords[~chords.any(axis=1)] = 1.0
    along = np.where((norms > 0)[:, None], gradients, chords)
    directions = np.concatenate([along, chords])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    stated = (np.tile(gradients, (2, 1)) * directions).sum(axis=1)
    # Relative to the gradient, and where that all but vanishes (the top of a hill) to a typical one.
    scale = np.tile(np.maximum(norms, 0.02 * np.median(norms)), 2)
    slopes = Slopes(np.tile(X, (2, 1)), directions, stated, scale, context.scale)
    own, target = target is None, context.target if target is None else target
    errors, judged = slopes.errors(target, _STEPS)
    rough = ~judged | (errors > _TOLERANCE)
    if rough.any():
        errors[rough], judged[rough] = slopes.some(rough).errors(target, _MORE_STEPS)
        rough = ~judged | (errors > _TOLERANCE)
    precise, waves = context.precise if own and rough.any() else None, 0
    if precise is not None:
        # A few stand for all: float64 is slow, and what is rough is rough everywhere.
        judged[rough] = False
        few = evenly(np.flatnonzero(rough), 16)
        errors[few], judged[few] = slopes.some(few).errors(precise, _TINY_STEPS)
        # What is smooth in float64 was rough by rounding, as the sum of a wide kernel; the rest has short waves.
        apart, steady = slopes.some(few).errors(precise, _STEPS)
        waves = int(rough.sum() * np.mean(~steady | (apart > _TOLERANCE)))
    most = float(errors[judged].max(initial=0.0))
    evidence = {
        "points": len(X),
        "judged": int(judged.reshape(2, -1).any(axis=0).sum()),
        "rough": int(rough.sum()),
        "waves": waves,
        "relative_error_along_gradient": most,
        "wrong": int((errors[judged] > _TOLERANCE).sum()),
        "compared": int(judged.sum()),
        "tolerance": _TOLERANCE,
    }
    evidence["jumps"] = slopes.jumps(target) if rough.any() and precise is None else 0.0
    return _judged(context, X, gradients, precise, evidence), np.all(
        (~rough | (precise is None)).reshape(2, -1), axis=0
    )


def _judged(
    context: ModelContext, X: np.ndarray, gradients: np.ndarray, precise: Any, evidence: dict[str, Any]
) -> Check:
    most, jumps = evidence["relative_error_along_gradient"], evidence["jumps"]
    if most > _TOLERANCE:
        message = f"the gradient is off by {most:.1e} (relative) from finite differences"
        if precise is None or not _lost_in_float32(context, precise, X, gradients, most):
            return failed(message, **evidence)
        reason = "the kernel's waves are too short for float32 (set model.dtype=float64, or another expansion)"
        return warned(f"{message}: {reason}", **evidence)
    if precise is None and jumps > 0.5:
        return failed("the scores jump between neighbouring points: no gradient can say how they change", **evidence)
    if (precise is None and evidence["judged"] < len(X) / 2) or evidence["judged"] == 0:
        return warned("the scores are too rough or too flat to judge the gradient by differences", **evidence)
    if precise is not None and evidence["waves"] > len(X):
        reason = f"only of steps below {context.scale * _STEPS[-1]:.0e}: attacks may follow waves that are shorter"
        return warned(f"the gradient equals finite differences, but {reason}", **evidence)
    return passed("the gradient equals finite differences", **evidence)


def _lost_in_float32(context: ModelContext, precise: Any, X: np.ndarray, gradients: np.ndarray, error: float) -> bool:
    """Whether rounding explains an error: in float64 the gradient is another, and a large error shows in scores too."""
    scores, exact = precise.scores_and_gradients(X)
    apart = float((np.linalg.norm(exact - gradients, axis=1) / np.linalg.norm(exact, axis=1)).max())
    rounded = np.asarray(context.target.scores(X.astype(context.sample.dtype)))
    loss = float(np.abs(rounded - scores).max() / np.abs(scores).max())
    return 0.5 * error < apart and (error < 0.05 or loss > 1e-4)


@dataclass(frozen=True)
class Slopes:
    """Slopes that a gradient states at points X (n, d) along unit directions (n, d), and what to measure them by."""

    X: np.ndarray
    directions: np.ndarray
    stated: np.ndarray
    scale: np.ndarray
    length: float

    def some(self, rows: np.ndarray) -> Slopes:
        """A choice of them."""
        chosen = (self.X[rows], self.directions[rows], self.stated[rows], self.scale[rows])
        return Slopes(*chosen, self.length)

    def jumps(self, target: Any) -> float:
        """Share of slopes whose difference quotient grows as the step shrinks, by more than rounding explains."""
        lengths = self.length * np.array([_STEPS[0], _STEPS[-1]])
        moved = [self.X + sign * h * self.directions for h in lengths for sign in (1, -1)]
        scores = np.asarray(target.scores(np.concatenate(moved)), dtype=np.float64).reshape(2, 2, -1)
        coarse, fine = np.abs(scores[:, 0] - scores[:, 1]) / (2 * lengths[:, None])
        rounding = 1e-5 * np.abs(scores).max() / lengths[1]
        return float(np.mean(fine > 4 * np.maximum(coarse, self.scale) + rounding))

    def errors(self, target: Any, steps: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Relative errors, (n,), and where three steps in a row agree well enough to judge them."""
        lengths = self.length * np.asarray(steps)
        moved = [self.X + sign * h * self.directions for h in lengths for sign in (1, -1)]
        scores = np.asarray(target.scores(np.concatenate(moved)), dtype=np.float64).reshape(len(steps), 2, -1)
        quotients = (scores[:, 0] - scores[:, 1]) / (2 * lengths[:, None])
        scale = np.maximum(self.scale, np.abs(quotients).min(axis=0))
        scale = np.where(scale > 0, scale, 1.0)
        # Two agreeing quotients may be chance where the score is noise, three hardly. Of the estimates that can judge
        # the nearest counts, less what they are apart: a wrong gradient fits none of them.
        apart = np.abs(np.diff(quotients, axis=0)) / scale
        steady = (apart[1:] < 3 * _TOLERANCE) & (apart[:-1] < 3 * _TOLERANCE)
        # Far from all data an RBF kernel is so flat that no score can show its slope: equal scores say nothing there.
        rises = 2 * lengths[1:-1, None] * np.maximum(np.abs(self.stated), np.abs(quotients[1:-1]))
        steady &= rises > np.finfo(np.float64).eps * np.abs(scores[1:-1]).max(axis=1)
        errors = np.maximum(np.abs(quotients[1:-1] - self.stated) / scale - apart[1:], 0.0)
        return np.where(steady, errors, np.inf).min(axis=0), np.any(steady, axis=0)


def _by_coordinate(
    target: Any, scale: float, X: np.ndarray, gradients: np.ndarray, steps: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Relative error per point over 64 coordinates, by the probe that black-box attacks use; and where it can judge."""
    rng = np.random.default_rng(0)
    coords = np.sort(rng.choice(X.shape[1], min(64, X.shape[1]), replace=False))
    quotients = []
    for step in steps:
        plus, minus = target.probe(X, coords, step * scale)
        quotients.append((plus - minus) / (2 * step * scale))
    coarse, fine = quotients
    # Relative to the whole gradient: float32 resolves its parts to about 1e-4 of it (measured on CIFAR-10, where the
    # two halves of a kernel sum's gradient cancel), while one wrong coordinate of thousands still stands out.
    sizes = np.maximum(np.linalg.norm(fine, axis=1), np.linalg.norm(gradients, axis=1))
    sizes = np.where(sizes > 0, sizes, 1.0)
    apart = np.linalg.norm(fine - coarse, axis=1) / sizes
    errors = np.linalg.norm(fine - gradients[:, coords], axis=1) / sizes - apart
    return np.maximum(errors, 0.0), apart < 10 * _TOLERANCE


@of_model("02_deterministic")
def scores_are_deterministic(context: ModelContext) -> Check:
    """The same points, scored twice: equal bit for bit; scored in other company: equal up to rounding."""
    first, second = context.sample_scores, np.asarray(context.model.scores(context.sample))
    evidence = {"points": len(first), "largest_difference": float(np.abs(first - second).max(initial=0.0))}
    if not np.array_equal(first, second):
        reason = "something random is still in it, as dropout in a network left in training mode"
        return failed(f"scoring the same points twice gives different scores: {reason}", **evidence)
    # Neighbours by index are often of one class: half a sample has other batch statistics than the whole.
    halves = np.array_split(context.sample, min(2, len(first)))
    apart = np.concatenate([np.asarray(context.model.scores(half)) for half in halves])
    evidence["largest_difference_in_other_company"] = float(np.abs(first - apart).max(initial=0.0))
    if not _equal_up_to_rounding(first, apart):
        reason = "a row's score depends on the rows beside it, as with batch statistics that are not frozen"
        return failed(f"scoring the same points in two batches gives other scores: {reason}", **evidence)
    return passed("scores are deterministic", **evidence)


def _equal_up_to_rounding(scores: np.ndarray, others: np.ndarray) -> bool:
    """Other batch shapes round differently."""
    return bool(np.abs(scores - others).max(initial=0.0) <= 1e-4 * (float(np.abs(scores).max(initial=0.0)) or 1.0))


@of_run("02_deterministic", general=True)
def the_attack_saw_the_same_scores(context: CheckContext) -> Check:
    """Scores of attacked points are what the attack was told."""
    rows = context.spread(16)
    margins, told = context.margins_of(context.X[rows], context.y[rows]), context.margins[rows]
    apart = float(np.abs(margins - told).max(initial=0.0))
    if not _equal_up_to_rounding(margins, told):
        return failed("the scores the attack saw are not the model's", largest_difference_to_attack=apart)
    return passed("the attack saw the model's scores", largest_difference_to_attack=apart)


@of_model("13_zero_gradients")
def gradients_do_not_vanish(context: ModelContext) -> Check:
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
    top = _at_the_top(context)
    evidence = {"points": len(zero), "zero_at_clean_points": int(zero.sum()), "at_the_largest_score": top}
    if top > 0.25:
        return failed(f"{top:.0%} of the scores are one and the same: saturated, they hide the slope", **evidence)
    if zero.mean() > 0.01:
        return failed(f"{zero.mean():.0%} of the gradients at clean points are exactly 0", **evidence)
    if zero.any():
        return warned("some gradients at clean points are exactly 0", **evidence)
    return passed("no gradient is 0", **evidence)


def _at_the_top(context: ModelContext) -> float:
    """Share of 64 test points (of different content) whose score is, up to rounding, the largest of its sign."""
    rows = evenly(np.unique(context.test_digests, return_index=True)[1], 64)
    scores = np.asarray(context.model.scores(np.ascontiguousarray(context.data.X_test[np.sort(rows)])))
    shares = []
    for side in (scores[scores > 0], -scores[scores < 0]):
        if len(side) >= 4:
            shares.append(float(np.mean(side >= side.max() * (1 - 1e-5))) - 1 / len(side))
    return max(shares, default=0.0)


def _vanished(gradients: np.ndarray) -> np.ndarray:
    return np.logical_not(np.asarray(gradients).any(axis=1))


@of_run("13_zero_gradients", general=True)
def the_attack_had_slopes_to_follow(context: CheckContext) -> Check:
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


@of_attack("14_budget", general=True)
def descent_has_come_to_rest(context: CheckContext, part: Part) -> Check:
    """A loss still falling at the last step means that the attack's budget was too small."""
    gain = part.result.history.get("last_step_gain")
    if gain is None:
        return skipped(f"{part.name} records no loss by step")
    if not part.iterates:
        return skipped(f"{part.name} has one step by definition")
    evidence = {"last_step_gain": float(gain), "steps": part.attack.steps}
    if gain > 0.10:
        return failed(
            f"{gain:.0%} of {part.name}'s progress came in its last step: raise attack.steps or attack.step_size",
            **evidence,
        )
    if gain > 0.02:
        return warned(f"{gain:.1%} of {part.name}'s progress came in its last step", **evidence)
    return passed(f"{part.name} had come to rest", **evidence)
