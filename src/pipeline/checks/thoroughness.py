"""Did the attack keep to what it was allowed, and use it: the ball and the box, the whole radius, every row, the units?

Evaluations that report too much robustness seldom look broken. They skip rows, stop early, keep to a part of the ball,
or count examples that lie far behind the boundary.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attacks.geometry import distortions
from pipeline.checks.context import CheckContext, Part
from pipeline.checks.registry import BOUNDED, UNBOUNDED, Among, Check, failed, of_attack, passed, skipped, warned
from pipeline.checks.strength import broken_by, gradient_distances, judge, wrong
from pipeline.stages.units import RAW, scaled_radii

_ROWS = 32
# How far along the way to an example the model must still be right.
_FRACTIONS = (0.5, 0.8, 0.9, 0.96, 0.98)


@of_attack("03_ball_and_box", general=True, among=Among(lambda context: context.results))
def ball_and_box_are_respected(context: CheckContext, part: Part) -> Check:
    """Every example lies in box, ball and limits, and is as far from its clean point as the result says."""
    result = part.result
    low, high = part.threat.box
    # NaN and infinity carry through to the distances.
    l2, linf = distortions(np.asarray(result.examples), context.X)
    lows, highs = result.examples.min(axis=0), result.examples.max(axis=0)
    outside = float(max((np.asarray(low) - lows).max(), (highs - np.asarray(high)).max(), 0.0))
    claimed = max(np.abs(l2 - result.distortion_l2).max(), np.abs(linf - result.distortion_linf).max())
    evidence = {"beyond_box": outside, "misstated_distortion": float(claimed)}
    problems = []
    if not np.isfinite(linf).all():
        problems.append("examples hold NaN or infinite values")
    if outside > 1e-6:
        problems.append(f"pixels lie {outside:.3g} outside [{np.min(low):g}, {np.max(high):g}]")
    if not claimed <= 1e-5 * max(1.0, float(l2.max(initial=0.0))):
        problems.append(f"distortions are misstated by up to {claimed:.3g}")
    if context.constraints is not None:
        evidence["beyond_limits"] = beyond = _beyond_limits(context, part)
        if beyond > 1e-6:
            problems.append(f"features change by {beyond:.3g} more than the attacker's limits allow")
    if not all(np.all(np.equal(own, whole)) for own, whole in zip(part.threat.box, context.data.box)):
        problems.append("it looks in another box than that of the data")
    if part.bounded or part.capped:
        reached = float((linf if part.threat.norm == "linf" else l2).max(initial=0.0))
        evidence |= {f"largest_{part.threat.norm}": reached, "epsilon": part.threat.epsilon}
        if reached > part.threat.epsilon * (1 + 1e-5) + 1e-7:
            problems.append(f"the ball {part.threat} is left ({reached:.4g})")
        if part.result.threat != part.threat:
            problems.append(f"the result speaks of another threat ({part.result.threat}) than {part.threat}")
    if problems:
        return failed(f"{part.name}: " + ", ".join(problems), **evidence)
    return passed("all examples lie in the ball and the box", **evidence)


def _beyond_limits(context: CheckContext, part: Part) -> float:
    """How far an example leaves what ``dataset.mutable``, ``dataset.monotone`` and radii per feature allow, at most."""
    examples = np.asarray(part.result.examples, dtype=np.float64)
    low, high = context.limits(part, np.arange(len(examples)))
    return float(max((low - examples).max(), (examples - high).max(), 0.0))


@of_attack("08_zero_epsilon", general=True)
def zero_epsilon_is_clean(context: CheckContext, part: Part) -> Check:
    """With radius 0 the attack must leave clean accuracy."""
    from attacks import accuracy_at

    if part.bounded:
        rows = context.spread(16)
        X, y = context.X[rows], context.y[rows]
        result = part.changed(epsilon=0.0, **_one_step(part.attack))(context.model, X, y)
        clean = float(np.mean(~context.attacked.clean_wrong[rows]))
        attacked = float(np.mean(~result.success))
        moved = float(np.abs(np.asarray(result.examples, dtype=np.float64) - X).max(initial=0.0))
    else:
        # The examples of an unbounded attack that cost nothing are those that were wrong already.
        clean, attacked = float(np.mean(~context.attacked.clean_wrong)), float(accuracy_at(part.result, 0.0))
        moved = 0.0
    evidence = {"clean": clean, "at_zero": attacked, "moved": moved}
    # Both are counts over the same points; the two ways of dividing them may differ in the last bit.
    if not np.isclose(attacked, clean, rtol=0.0, atol=1e-9) or moved > 0:
        return failed(f"{part.name} with radius 0 gives {attacked:.2%}, clean is {clean:.2%}", **evidence)
    return passed("radius 0 gives clean accuracy", **evidence)


def _one_step(attack: object) -> dict[str, int | None]:
    short: dict[str, int | None] = {"step_size": None, "steps": 1, "restarts": 1}
    return {name: value for name, value in short.items() if hasattr(attack, name)}


@of_attack("15_perturbation", general=True)
def perturbation_is_not_zero(context: CheckContext, part: Part) -> Check:
    """An attack that returns its input unchanged reports the clean accuracy as robustness."""
    open_rows = ~context.attacked.clean_wrong
    if not open_rows.any():
        return skipped("every point was misclassified before the attack")
    # From the examples themselves: a result may claim a distortion it does not have.
    moved = (np.asarray(part.result.examples) != context.X).any(axis=1)
    still = int((open_rows & ~moved).sum())
    evidence = {"unchanged": still, "attacked": int(open_rows.sum())}
    if part.capped and still:
        return skipped(f"examples of {part.name} outside {part.threat} were put back", **evidence)
    if still == open_rows.sum():
        return failed(f"{part.name} changed no point at all", **evidence)
    if still > 0.1 * open_rows.sum():
        return warned(f"{part.name} left {still} of {int(open_rows.sum())} correct points unchanged", **evidence)
    return passed("the attack moves the points", **evidence)


@of_attack("23_units", general=True)
def radius_fits_the_data(context: CheckContext, part: Part) -> Check:
    """A radius beyond the box, or a speck of the data's scale, is likely given in other units (0..255)."""
    sides = np.broadcast_to(np.subtract(*part.threat.box[::-1]), context.X.shape[1])
    if (radii := scaled_radii(context.cfg, context.data)) is not None:
        return _cell_fits_the_data(radii, sides, f"L∞ {context.cfg.attack.epsilon:g} {RAW}")
    low, high, root = np.min(part.threat.box[0]), np.max(part.threat.box[1]), np.sqrt(context.X.shape[1])
    epsilon = part.threat.epsilon
    # The largest step in the ball as an L2 length, and the longest that the box has room for.
    reach, room = (epsilon * root if part.threat.norm == "linf" else epsilon), float(np.linalg.norm(sides))
    spread = float(np.ptp(context.sample)) / (high - low)
    evidence = {"radius_over_box": reach / room, "radius_over_scale": reach / context.scale, "data_over_box": spread}
    if reach > room * (1 + 1e-9):
        return failed(f"the radius of {part.threat} is larger than the box [{low:g}, {high:g}]: in 0..255?", **evidence)
    if spread < 0.02:
        return failed(f"the data fill {spread:.1%} of the box [{low:g}, {high:g}]: divided by 255 twice?", **evidence)
    if reach > 0.5 * room:
        return warned(f"{part.threat} reaches over half of the box: no model can be robust there", **evidence)
    if reach < 1e-3 * context.scale:
        return warned(f"{part.threat} is {reach / context.scale:.1e} of the distance between points", **evidence)
    return passed("the radius fits the box and the data", **evidence)


def _cell_fits_the_data(radii: np.ndarray, sides: np.ndarray, threat: str) -> Check:
    """The same of a radius in the units of the file, which is another one in every feature."""
    covered = int(np.sum(radii >= sides))
    if covered == len(sides):
        return failed(f"{threat} covers the range of every feature: no model can be robust there", covered=covered)
    if covered:
        reason = (
            f"{threat} covers the range of {covered} of {len(sides)} features: a unit of the file is too much there"
        )
        return warned(reason, covered=covered)
    return passed("the radius fits the range of every feature", covered=0)


@of_attack("24_full_radius", among=BOUNDED, direct=True, general=True)
def no_row_is_given_up(context: CheckContext, part: Part) -> Check:
    """From where the attack left the rows standing, the rest of the radius or one more step gains hardly anything.

    Looked at are the rows that used least of their radius and as many evenly spaced.
    """
    standing = part.standing
    if len(standing) == 0:
        return passed("no point is left standing")
    linf = part.threat.norm == "linf"
    used = (part.result.distortion_linf if linf else part.result.distortion_l2)[standing] / part.threat.epsilon
    # A row may be taken to the ball's surface and still not be attacked: then its margin hardly falls.
    fallen = (context.margins - context.signs * part.result.scores)[standing]
    even = context.spread(_ROWS // 2, standing)
    lazy = [standing[np.argsort(measure, kind="stable")[: _ROWS // 4]] for measure in (used, fallen)]
    rows = np.unique(np.concatenate([even, *lazy]))
    fall, gain = _left_to_gain(context, part, rows)
    share = gain / np.maximum(gain + fall, 1e-300)
    idle = (share > 0.5) & (gain > 0.01 * np.abs(context.margins[rows]))
    lazier = max(_as_lazy(measure, np.searchsorted(standing, rows), idle) for measure in (used, fallen))
    chosen = np.isin(rows, even)
    left = float(gain[chosen].sum() / max(float((gain + fall)[chosen].sum()), 1e-300))
    evidence = {"standing": len(standing), "tried": len(rows), "given_up": lazier, "left_to_gain": left}
    evidence["radius_used_median"] = float(np.median(used))
    if lazier > max(1, 0.01 * len(context.y)):
        return failed(f"{part.name} gave up on some {lazier} of {len(standing)} points left standing", **evidence)
    if left > 0.10:
        return failed(f"{part.name} leaves {left:.0%} of the fall in margin unused inside {part.threat}", **evidence)
    if lazier or left > 0.04:
        return warned(f"{part.name} leaves {left:.0%} of the fall in margin unused inside {part.threat}", **evidence)
    return passed(f"{part.name} used its radius on the points left standing", **evidence)


def _as_lazy(measure: np.ndarray, looked: np.ndarray, idle: np.ndarray) -> int:
    """How many rows are likely idle: as many as lie below the bar of the idle ones among those looked at."""
    if not idle.any():
        return 0
    bar = measure[looked[idle]].max()
    below = measure[looked] <= bar
    # Where the idle ones are not told from the others by this measure they stand for themselves.
    return int(np.mean(idle[below]) * (measure <= bar).sum()) if np.mean(idle[below]) > 0.5 else int(idle.sum())


def _left_to_gain(context: CheckContext, part: Part, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far the margin fell under the attack, and how much farther it falls by simple means inside the ball."""
    X, limits = context.X[rows].astype(np.float64), context.limits(part, rows)
    points = np.asarray(part.result.examples)[rows].astype(np.float64)
    if part.white_box and not part.iterates:
        # A single step is asked for that step alone: the box cuts it in L2, and what is left of the radius is not used.
        step = part.threat.epsilon * part.direction(context.slopes_at(X, rows))
        tries = [points, part.projected(X, X - step, limits)]
    else:
        tries = [points, _stretched(part, X, points, limits)]
    if part.white_box and part.iterates:
        steps = part.direction(context.slopes_at(points, rows))
        tries += [part.projected(X, points - size * part.threat.epsilon * steps, limits) for size in (1.0, 0.25)]
    labels = np.tile(context.y[rows], len(tries))
    margins = context.margins_of(np.concatenate(tries), labels).reshape(len(tries), -1)
    return np.maximum(context.margins[rows] - margins[0], 0.0), margins[0] - margins.min(axis=0)


def _stretched(part: Part, X: np.ndarray, points: np.ndarray, limits: tuple[Any, Any]) -> np.ndarray:
    """The points pushed out to the ball's surface along their own directions, and into the limits."""
    delta = points - X
    sizes = np.abs(delta).max(axis=1) if part.threat.norm == "linf" else np.linalg.norm(delta, axis=1)
    return np.clip(X + delta * (part.threat.epsilon / np.where(sizes > 0, sizes, np.inf))[:, None], *limits)


@of_attack("25_reference", among=BOUNDED, direct=True, general=True)
def a_reference_breaks_no_more(context: CheckContext, part: Part) -> Check:
    """Random points left standing, attacked by the library's own PGD (or one step) and moved towards other data."""
    from attacks import FGSM, PGD

    rng = np.random.default_rng(len(part.standing))
    rows = np.sort(rng.permutation(part.standing)[:_ROWS])
    threat: dict[str, Any] = {"epsilon": part.threat.epsilon, "norm": part.threat.norm, "box": part.threat.box}
    if not (part.iterates or not part.white_box):
        return judge("FGSM", broken_by(FGSM(**threat), context, rows), context)
    broken = np.zeros(len(rows), dtype=bool)
    if context.has_gradients:
        broken = broken_by(PGD(**threat, steps=20, random_start=True, random_state=1), context, rows)
    # No gradient is asked here: a score that hides its slope does not hide where the other class lies.
    broken |= _broken_by_data(context, part, rows)
    # Twice the steps of the usual ten break a point or two more: a warning. An eighth of those tried is no such thing.
    answer = judge(f"a reference (PGD-20, steps towards data) at {part.threat}", broken, context, tolerance=1.0)
    if answer.status == "fail" and not part.white_box:
        return warned(f"{answer.message}: score queries found less than gradients", **answer.evidence)
    return answer


def _broken_by_data(context: CheckContext, part: Part, rows: np.ndarray) -> np.ndarray:
    """Which rows a step within the ball towards the other class's mean or nearest training rows breaks, (k,) bool."""
    broken = np.zeros(len(rows), dtype=bool)
    X, y = context.X[rows].astype(np.float64), context.y[rows]
    others, labels = context.training_rows
    for label in np.unique(y):
        own = np.flatnonzero(y == label)
        theirs, ours = others[labels != label], others[labels == label]
        if len(own) == 0 or len(theirs) == 0 or len(ours) == 0:
            continue
        distances = np.linalg.norm(X[own][:, None] - theirs[None], axis=2)
        nearest = np.argsort(distances, axis=1)[:, :3]
        aims = [theirs[nearest[:, k]] for k in range(nearest.shape[1])]
        aims.append(X[own] + 1e3 * np.sign(theirs.mean(axis=0) - ours.mean(axis=0)))
        tries = [part.projected(X[own], aim, context.limits(part, rows[own])) for aim in aims]
        missed = wrong(context, np.concatenate(tries), np.tile(rows[own], len(tries)))
        broken[own] = missed.reshape(len(tries), -1).any(axis=0)
    return broken


@of_attack("26_boundary", among=UNBOUNDED, direct=True, general=True)
def examples_end_at_the_boundary(context: CheckContext, part: Part) -> Check:
    """Shortened examples of a minimum-norm attack are still correct, and a short search finds none much nearer."""
    rows = context.spread(24, part.found)
    if len(rows) == 0:
        return passed(f"{part.name} broke no point")
    X = context.X[rows].astype(np.float64)
    delta = np.asarray(part.result.examples)[rows] - X
    tries = np.concatenate([X + fraction * delta for fraction in _FRACTIONS])
    early = wrong(context, tries, np.tile(rows, len(_FRACTIONS))).reshape(len(_FRACTIONS), -1)
    long = float(early.any(axis=0).mean())
    # Evenly spaced ones, and those that went farthest: a search that gave up on some rows left these far away.
    own = part.result.distortion(part.norm)
    few = np.union1d(rows[:: max(1, len(rows) // 12)], part.found[np.argsort(-own[part.found], kind="stable")[:12]])
    apart = gradient_distances(context, few, part.norm) / own[few] if context.has_gradients else np.ones(len(few))
    ratio, detours = float(np.median(apart)), int((apart < 0.9).sum())
    evidence = {
        "tried": len(rows),
        "wrong_before_the_end": dict(zip(_FRACTIONS, early.mean(axis=1))),
        "reference_distance_over_own": ratio,
        "detours": detours,
    }
    if long > 0.25:
        return failed(f"{long:.0%} of {part.name}'s examples lie over 2 % behind the boundary", **evidence)
    if ratio < 0.9:
        message = f"a short search finds examples at {ratio:.0%} of {part.name}'s distances (median)"
        return (failed if part.white_box else warned)(message, **evidence)
    if detours > max(1, len(few) / 8):
        message = f"a short search finds examples 10 % nearer than {part.name}'s for {detours} of {len(few)} points"
        return (failed if part.white_box else warned)(message, **evidence)
    if long > 0.05:
        return warned(f"{long:.0%} of {part.name}'s examples lie over 2 % behind the boundary", **evidence)
    return passed(f"{part.name}'s examples lie at the boundary", **evidence)
