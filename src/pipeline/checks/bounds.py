"""Did the attack stay where it claims to, and did it do anything at all?"""

from __future__ import annotations

import numpy as np

from attacks.geometry import distortions
from pipeline.checks.context import CheckContext, Part
from pipeline.checks.registry import Among, Check, failed, of_attack, passed, skipped, warned


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
    if part.bounded and part in context.parts:
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
        return skipped(f"examples of {part.name} beyond the L2 cap were put back by attack.l2_cap", **evidence)
    if still == open_rows.sum():
        return failed(f"{part.name} changed no point at all", **evidence)
    if still > 0.1 * open_rows.sum():
        return warned(f"{part.name} left {still} of {int(open_rows.sum())} correct points unchanged", **evidence)
    return passed("the attack moves the points", **evidence)
