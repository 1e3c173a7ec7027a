"""Did the attack stay where it claims to, and did it do anything at all?"""

from __future__ import annotations

import numpy as np
import torch

from pipeline.checks.base import Verdict, failed, passed, skipped, warned, worst
from pipeline.checks.context import CheckContext
from pipeline.checks.parts import Part
from pipeline.checks.registry import check


@check("03_ball_and_box")
def ball_and_box_are_respected(context: CheckContext) -> Verdict:
    """Every example lies in the pixel box and in the ball, and is as far from its clean point as the result says."""
    result = context.attacked.result
    verdicts = [_inside(context, Part(str(context.cfg.attack.name), context.attack, result))]
    verdicts += [_inside(context, part) for part in context.parts if part.result is not result]
    return worst(verdicts)


def _inside(context: CheckContext, part: Part) -> Verdict:
    result = part.result
    low, high = getattr(part.attack, "box", (0.0, 1.0))
    # In torch, whose threads take a third of the time. NaN and infinity carry through to the distances.
    delta = torch.sub(torch.from_numpy(np.asarray(result.examples)).double(), torch.from_numpy(context.X))
    l2, linf = torch.linalg.vector_norm(delta, dim=1).numpy(), delta.abs_().amax(1).numpy()
    outside = float(max(low - result.examples.min(), result.examples.max() - high, 0.0))
    claimed = max(np.abs(l2 - result.distortion_l2).max(), np.abs(linf - result.distortion_linf).max())
    evidence = {f"{part.name}_beyond_box": outside, f"{part.name}_misstated_distortion": float(claimed)}
    problems = []
    if not np.isfinite(linf).all():
        problems.append("examples hold NaN or infinite values")
    if outside > 1e-6:
        problems.append(f"pixels lie {outside:.3g} outside [{low:g}, {high:g}]")
    if not claimed <= 1e-5 * max(1.0, float(l2.max(initial=0.0))):
        problems.append(f"distortions are misstated by up to {claimed:.3g}")
    if part.bounded:
        reached = float((linf if part.norm == "linf" else l2).max(initial=0.0))
        evidence |= {f"{part.name}_largest_{part.norm}": reached, f"{part.name}_epsilon": part.epsilon}
        if reached > part.epsilon * (1 + 1e-5) + 1e-7:
            problems.append(f"the ball of {part.norm} radius {part.epsilon:.4g} is left ({reached:.4g})")
    if problems:
        return failed(f"{part.name}: " + ", ".join(problems), **evidence)
    return passed("all examples lie in the ball and the box", **evidence)


@check("08_zero_epsilon")
def zero_epsilon_is_clean(context: CheckContext) -> Verdict:
    """With radius 0 the attack must leave clean accuracy."""
    if not context.parts:
        return skipped("nothing was attacked")
    return worst([_at_zero(context, part) for part in context.parts])


def _at_zero(context: CheckContext, part: Part) -> Verdict:
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
    evidence = {f"{part.name}_clean": clean, f"{part.name}_at_zero": attacked, f"{part.name}_moved": moved}
    # Both are counts over the same points; the two ways of dividing them may differ in the last bit.
    if not np.isclose(attacked, clean, rtol=0.0, atol=1e-9) or moved > 0:
        return failed(f"{part.name} with radius 0 gives {attacked:.2%}, clean is {clean:.2%}", **evidence)
    return passed("radius 0 gives clean accuracy", **evidence)


def _one_step(attack: object) -> dict[str, int | None]:
    short: dict[str, int | None] = {"step_size": None, "steps": 1, "restarts": 1}
    return {name: value for name, value in short.items() if hasattr(attack, name)}


@check("15_perturbation")
def perturbation_is_not_zero(context: CheckContext) -> Verdict:
    """An attack that returns its input unchanged reports the clean accuracy as robustness."""
    if not context.parts:
        return skipped("nothing was attacked: attack=none or radius 0")
    return worst([_moves(context, part) for part in context.parts])


def _moves(context: CheckContext, part: Part) -> Verdict:
    open_rows = ~context.attacked.clean_wrong
    if not open_rows.any():
        return skipped("every point was misclassified before the attack")
    # From the examples themselves: a result may claim a distortion it does not have.
    moved = (np.asarray(part.result.examples) != context.X).any(axis=1)
    still = int((open_rows & ~moved).sum())
    evidence = {f"{part.name}_unchanged": still, f"{part.name}_attacked": int(open_rows.sum())}
    if part.capped and still:
        return skipped(f"examples of {part.name} beyond the L2 cap were put back by attack.l2_cap", **evidence)
    if still == open_rows.sum():
        return failed(f"{part.name} changed no point at all", **evidence)
    if still > 0.1 * open_rows.sum():
        return warned(f"{part.name} left {still} of {int(open_rows.sum())} correct points unchanged", **evidence)
    return passed("the attack moves the points", **evidence)
