"""A certificate that an attack beats is a defect of the certificate."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.checks.context import CheckContext, ModelContext, evenly
from pipeline.checks.registry import Check, failed, of_model, of_run, passed, skipped
from pipeline.checks.strength import broken_by
from pipeline.data.rows import choose_rows


@of_run("16_certificate", general=True)
def the_run_does_not_beat_the_certificate(context: CheckContext) -> Check:
    """Certified ≤ attacked: in the run's own threat, and for the L2 radius of every example of the run."""
    radii = np.asarray(context.radii, dtype=np.float64)
    if len(radii) != len(context.data.y_test):
        return failed("there is not one radius per test point", points=len(context.data.y_test), radii=len(radii))
    own = radii[context.attacked.rows]
    beaten = 0
    for result in [context.attacked.result, *(part.result for part in context.parts)]:
        # Distances are rounded in their last place, certificates are rounded down: a hair is no contradiction.
        beaten = max(beaten, int((result.success & (result.distortion_l2 < own * (1 - 1e-6))).sum()))
    evidence: dict[str, Any] = {"beaten_by_the_run": beaten}
    if beaten:
        return failed(f"{beaten} adversarial examples lie inside their certified radius", **evidence)
    if context.verdicts is not None:
        threat, certified = context.verdicts.threat, context.verdicts.certified
        both = int((certified & context.verdicts.broken).sum())
        evidence |= {"threat": str(threat), "certified": int(certified.sum()), "certified_and_broken": both}
        if both:
            return failed(f"{both} points are certified at {threat} and broken there", **evidence)
        evidence["certified_and_broken_by_search"] = searched = _search(context, np.flatnonzero(certified))
        if searched:
            return failed(f"a search breaks {searched} points that are certified at {threat}", **evidence)
    if not (own > 0).any() and not evidence.get("certified"):
        return skipped("no attacked point is certified", **evidence)
    return passed("no adversarial example of the run lies where there is a certificate", **evidence)


def _search(context: CheckContext, rows: np.ndarray) -> int:
    """How many of the (at most 16) certified rows with the smallest margins PGD breaks in the run's threat."""
    from attacks import PGD

    threat = context.verdicts.threat if context.verdicts is not None else None
    if threat is None or len(rows) == 0 or not context.has_gradients:
        return 0
    rows = rows[np.argsort(context.margins[rows], kind="stable")[:16]]
    attack = PGD(epsilon=threat.epsilon, norm=threat.norm, box=threat.box, steps=20)
    return int(broken_by(attack, context, rows).sum())


@of_model("16_certificate")
def no_search_beats_the_certificate(context: ModelContext) -> Check:
    """Certified ≤ attacked, for a search that goes for the certificates.

    Near the decision boundary every sound bound of a smooth score tends to margin / slope, which is what an attack
    without the pixel box reaches: points close to the boundary leave an inflated certificate no room.
    """
    radii = np.asarray(context.radii, dtype=np.float64)
    # Of many test points a part was asked for, the others are NaN.
    asked = choose_rows(context.data.y_test, None)
    if len(radii) != len(context.data.y_test) or np.isnan(radii[asked]).any() or (radii < 0).any():
        return failed("there is not one radius ≥ 0 per test point", points=len(context.data.y_test), radii=len(radii))
    evidence: dict[str, Any] = {"certified_points": int((radii > 0).sum())}
    if not (radii > 0).any():
        return skipped("no point has a positive certified radius", **evidence)
    X, y, claimed, near = _challenge(context, radii)
    distances = _nearest(context, X, y)
    ratios = distances / np.where(claimed > 0, claimed, np.nan)
    inside = int((distances < claimed * (1 - 1e-4)).sum())
    finite = ratios[np.isfinite(ratios)]
    evidence |= {"challenged": len(X), "near_boundary": near, "beaten_by_search": inside}
    evidence["smallest_distance_over_radius"] = float(finite.min()) if finite.size else None
    if inside:
        return failed(f"a search beats {inside} of {len(X)} certificates it went for", **evidence)
    return passed(f"no adversarial example inside a certified radius ({len(X)} certificates challenged)", **evidence)


def _challenge(context: ModelContext, radii: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Eight test points with the smallest positive radius and up to four made to lie near the boundary: X, y, radii.

    The last value counts the points that were made.
    """
    positive = np.flatnonzero(radii > 0)
    rows = positive[np.argsort(radii[positive], kind="stable")[:8]]
    X, y, claimed = np.asarray(context.data.X_test[rows]), context.data.y_test[rows], radii[rows]
    made = _near_boundary(context, 4)
    if made is None:
        return X, y, claimed, 0
    near = np.asarray(context.model.certified_radius(*made), dtype=np.float64)
    return np.concatenate([X, made[0]]), np.concatenate([y, made[1]]), np.concatenate([claimed, near]), len(near)


def _near_boundary(context: ModelContext, count: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Points between the classes, on the positive side of the boundary by 1 % of a typical margin, and their class."""
    # Sides by prediction, from all test points: a small sample may miss a rare class.
    positive = (context.data.y_test == context.model.classes_[1]) == context.correct
    above, below = (evenly(np.flatnonzero(side), count) for side in (positive, ~positive))
    pairs = min(len(above), len(below))
    if pairs == 0:
        return None
    start, stop = (np.asarray(context.data.X_test[side[:pairs]], dtype=np.float64) for side in (above, below))
    wanted = 0.01 * float(np.median(np.abs(context.sample_scores)))
    low, width = np.zeros(pairs), 1.0
    # Two rounds of 16 steps along each segment, each in one scoring, instead of eight halvings.
    for _ in range(2):
        places = low[:, None] + width * np.arange(17) / 16
        tried = start[:, None] + places[:, :, None] * (stop - start)[:, None]
        deep = np.asarray(context.model.scores(tried.reshape(-1, start.shape[1]))).reshape(pairs, -1) > wanted
        low = places[np.arange(pairs), np.maximum(np.argmin(deep, axis=1) - 1, 0)]
        width /= 16
    points = (start + low[:, None] * (stop - start)).astype(context.sample.dtype)
    return points, np.full(pairs, context.model.classes_[1])


def _nearest(context: ModelContext, X: np.ndarray, y: np.ndarray, steps: int = 2) -> np.ndarray:
    """Distance of the nearest adversarial point found, infinity where none was found.

    Steps to the nearest point of the plane that the score's tangent says is the boundary, a hair beyond it. There is no
    pixel box: a certificate holds everywhere, and without the box the search can go straight for it.
    """
    target = context.target
    signs = np.where(y == context.model.classes_[1], 1.0, -1.0)
    clean = X.astype(np.float64)
    points, nearest = clean, np.full(len(X), np.inf)
    aim = np.zeros(len(X))
    for step in range(steps + 1):
        sent = points.astype(X.dtype)
        scores, gradients = target.scores_and_gradients(sent)
        margins, slopes = signs * np.asarray(scores), signs[:, None] * np.asarray(gradients, dtype=np.float64)
        points = sent.astype(np.float64)
        distances = np.linalg.norm(points - clean, axis=1)
        wrong = (np.asarray(scores) > 0) != (signs > 0)
        nearest = np.minimum(nearest, np.where(wrong & (distances > 0), distances, np.inf))
        if step == 0:
            aim = 2e-3 * np.abs(margins)
        squares = np.maximum((slopes * slopes).sum(axis=1), 1e-300)
        excess = margins + (slopes * (clean - points)).sum(axis=1) + aim
        points = clean - (excess / squares)[:, None] * slopes
    return nearest
