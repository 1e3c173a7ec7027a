"""Stronger attacks must not do worse than weaker ones, example by example where that is meaningful."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.checks.base import Verdict, failed, passed, skipped, warned, worst
from pipeline.checks.challenges import broken_by, broken_by_noise, broken_by_queries, judge, wrong
from pipeline.checks.context import CheckContext
from pipeline.checks.parts import Part
from pipeline.checks.registry import check

# Accuracy a check forgives, as a fraction of the attacked points.
_POINTS = 0.002
_CAP_TOLERANCE = 0.01


@check("04_attacked_below_clean")
def no_example_is_repaired(context: CheckContext) -> Verdict:
    """A point that was wrong stays wrong, and what counts as broken is misclassified when scored again."""
    result, wrong_before = context.attacked.result, context.attacked.clean_wrong
    repaired = int((wrong_before & ~result.success).sum())
    rows = context.spread(32)
    again = wrong(context, np.asarray(result.examples)[rows], rows)
    # Within rounding of the boundary another batch shape may decide otherwise.
    clear = np.abs(result.scores[rows]) > 1e-5 * max(1e-300, float(np.abs(result.scores).max(initial=0.0)))
    misjudged = int(((again != result.success[rows]) & clear).sum())
    clean, attacked = float(np.mean(~wrong_before)), float(np.mean(~result.success))
    evidence = {
        "clean": clean,
        "attacked": attacked,
        "repaired": repaired,
        "rescored": len(rows),
        "misjudged": misjudged,
    }
    if repaired or attacked > clean:
        return failed(f"{repaired} misclassified points count as correct after the attack", **evidence)
    if misjudged:
        return failed(f"{misjudged} of {len(rows)} examples are not what the result says they are", **evidence)
    return passed("attacked accuracy is at most clean accuracy, per example", **evidence)


@check("05_pgd_below_fgsm")
def pgd_is_not_weaker_than_fgsm(context: CheckContext) -> Verdict:
    """Points that PGD leaves standing and FGSM, one step in the same ball, breaks."""
    pgd = [part for part in context.parts if part.name.startswith("pgd")]
    if not pgd:
        return skipped("there is no PGD in this run")
    return worst([_against_fgsm(context, part) for part in pgd])


def _against_fgsm(context: CheckContext, part: Part) -> Verdict:
    from attacks import FGSM

    standing = part.standing(context.cap)
    beside = [
        p for p in context.parts if p.name.startswith("fgsm") and (p.epsilon, p.norm) == (part.epsilon, part.norm)
    ]
    if beside:
        rows, broken = standing, beside[0].result.success[standing]
    else:
        rows = context.promising(standing, 32)
        broken = broken_by(FGSM(epsilon=part.epsilon, norm=part.norm), context, rows)
    return judge("FGSM", int(broken.sum()), len(rows), len(context.y), tolerance=_POINTS)


@check("10_white_box_below_black_box")
def white_box_is_not_weaker_than_black_box(context: CheckContext) -> Verdict:
    """Points that gradients did not break and score queries alone do: a masked gradient."""
    white = [part for part in context.parts if part.white_box]
    black = [part for part in context.parts if not part.white_box]
    if white and black:
        return worst([_accuracies_at_cap(context, white, part) for part in black])
    if white:
        return worst([_against_queries(context, part) for part in white])
    if black:
        return worst([_against_gradients(context, part) for part in black])
    return skipped("nothing was attacked")


def _accuracies_at_cap(context: CheckContext, white: list[Part], black: Part) -> Verdict:
    def at_cap(part: Part) -> np.ndarray:
        return part.result.success & (part.result.distortion_l2 <= context.cap)

    by_white = float(np.mean(~np.any([at_cap(part) for part in white], axis=0)))
    by_black = float(np.mean(~at_cap(black)))
    evidence = {"white_box": by_white, f"{black.name}": by_black, "l2_cap": context.cap, "tolerance": _POINTS}
    if by_white > by_black + _POINTS:
        return failed(f"white-box attacks leave {by_white:.2%} at the L2 cap, {black.name} {by_black:.2%}", **evidence)
    return passed(f"white-box attacks are at least as strong as {black.name} at the L2 cap", **evidence)


def _against_queries(context: CheckContext, part: Part) -> Verdict:
    rows = context.promising(part.standing(context.cap), 24)
    size = part.epsilon if part.bounded else context.cap
    # Two steps with estimated slopes rightly beat one step with exact ones.
    steps = 2 if getattr(part.attack, "steps", 1) > 1 else 1
    broken = broken_by_queries(context, rows, size, part.norm, steps)
    label = f"a descent on score queries ({part.norm} {size:.3g})"
    return judge(label, int(broken.sum()), len(rows), len(context.y), tolerance=_POINTS)


def _against_gradients(context: CheckContext, part: Part) -> Verdict:
    """The run has a black-box attack only: what it broke within the cap, gradients must break there too."""
    near = np.flatnonzero(part.result.success & (part.result.distortion_l2 <= context.cap))
    rows = context.spread(16, near[part.result.distortion_l2[near] > 0])
    left = rows[~broken_by(_pgd_at(context.cap), context, rows)]
    # PGD goes for the largest margin, not for the nearest point: what it misses gets a second opinion.
    missed = int((~_reached_by_gradients(context, left)).sum())
    evidence = {"tried": len(rows), "missed_by_pgd": len(left), "missed_by_white_box": missed, "l2_cap": context.cap}
    label = f"gradients miss {missed} of {len(rows)} points that {part.name} broke within the cap"
    if missed > max(1, 0.1 * len(rows)):
        return failed(label, **evidence)
    if missed:
        return warned(label, **evidence)
    return passed(f"gradients break what {part.name} broke within the cap ({len(rows)} points tried)", **evidence)


def _reached_by_gradients(context: CheckContext, rows: np.ndarray) -> np.ndarray:
    """Which rows steps along exact gradients bring to the boundary within the cap, without a look at other points."""
    from attacks import CarliniWagner

    if len(rows) == 0:
        return np.zeros(0, dtype=bool)
    search = CarliniWagner(binary_search_steps=1, steps=1, restarts=0)
    found = search(context.model, context.X[rows], context.y[rows])
    return np.asarray(found.success & (found.distortion_l2 <= context.cap))


def _pgd_at(cap: float) -> Any:
    from attacks import PGD

    return PGD(epsilon=cap, norm="l2", steps=20, step_size=cap / 5)


@check("11_noise")
def noise_is_weaker_than_the_attack(context: CheckContext) -> Verdict:
    """Random noise of the same size must not break what the attack could not."""
    parts = [part for part in context.parts if part.white_box] or context.parts
    if not parts:
        return skipped("nothing was attacked")
    return worst([_against_noise(context, part) for part in parts])


def _against_noise(context: CheckContext, part: Part) -> Verdict:
    rows = context.promising(part.standing(context.cap), 32)
    size = part.epsilon if part.bounded else context.cap
    broken = broken_by_noise(context, rows, np.full(len(rows), size), part.norm)
    label = f"random noise ({part.norm} {size:.3g})"
    verdict = judge(label, int(broken.sum()), len(rows), len(context.y), tolerance=_POINTS)
    # The reverse: where noise of the very size of each example does as well, the search found nothing noise would not.
    found = context.spread(32, part.found)
    if len(found) >= 8:
        noise = broken_by_noise(context, found, part.result.distortion_l2[found], "l2")
        share = float(np.mean(noise))
        verdict.evidence[f"{part.name}_examples_matched_by_noise"] = share
        if share > 0.9:
            return failed(f"noise of the same size breaks {share:.0%} of what {part.name} broke", **verdict.evidence)
    return verdict


@check("12_minimum_norm")
def minimum_norm_attacks_are_near(context: CheckContext) -> Verdict:
    """Failures are reported, and points beyond the L2 cap are not broken within it by PGD-L2."""
    parts = [part for part in context.parts if not part.bounded]
    if not parts:
        return skipped("there is no minimum-norm attack in this run")
    return worst([_near(context, part) for part in parts])


def _near(context: CheckContext, part: Part) -> Verdict:
    failures = 0 if part.capped else int((~part.result.success).sum())
    told = any("no adversarial example" in note for note in part.result.notes)
    rows = context.promising(part.standing(context.cap), 16)
    missed = int(broken_by(_pgd_at(context.cap), context, rows).sum())
    evidence: dict[str, Any] = {f"{part.name}_unsuccessful": failures, "l2_cap": context.cap}
    if failures and not told:
        return failed(f"{part.name} found nothing for {failures} points and does not say so", **evidence)
    verdict = judge("PGD-L2 at the cap", missed, len(rows), len(context.y), tolerance=_CAP_TOLERANCE, **evidence)
    if failures:
        return worst([verdict, warned(f"{part.name} found no adversarial example for {failures} points", **evidence)])
    return verdict


@check("17_suite")
def worst_case_is_the_worst(context: CheckContext) -> Verdict:
    """A point is broken by the suite exactly when one of its attacks breaks it."""
    result = context.attacked.result
    members = getattr(result, "results", None)
    if not members:
        return skipped("one attack, no suite")
    accuracies = {name: float(np.mean(~member.success)) for name, member in members.items()}
    worst_case = float(np.mean(~result.success))
    union = np.any([member.success for member in members.values()], axis=0)
    evidence = {"suite": worst_case, "attacks": accuracies, "disagreeing": int((union != result.success).sum())}
    if worst_case > min(accuracies.values()) or not np.array_equal(union, result.success):
        return failed("the suite's worst case is not the union of its attacks", **evidence)
    return passed("the suite is at most each of its attacks, per example", **evidence)
