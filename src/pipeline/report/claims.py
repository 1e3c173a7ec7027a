"""The paper's ordering claims, judged by a stated test.

Every comparison is paired: by seed (Student's t over the differences of the seeds that both sides have) or, where the
models are deterministic and seeds are no replicates, by test point (exact binomial test over the points on which the
two sides differ). The p-values of a claim's comparisons are corrected by Holm's method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pipeline.labels import attack_name, model_name
from pipeline.report.content import PAPER_EPSILON, Cell, Row, Section
from pipeline.report.tracked import Reader, TrackedRun
from pipeline.tables import Entry, Table, name, seeds_text

HOLDS, FAILS, NOISE, PARTLY, EQUAL = "holds", "does not hold", "within noise", "holds in part", "no difference"
ONE_SEED, MISSING = "one seed: no verdict", "not measured"
BADGES = {HOLDS: "good", FAILS: "bad", NOISE: "open", PARTLY: "open"}  # the others decide nothing
LEVEL = 0.05
# Of the paper's attacks, those that it states no budget for.
_WITHOUT_BUDGET = ("cw", "zoo")
TEST = (
    "Differences are paired by seed and tested by a two-sided t-test; where all seeds agree (deterministic models), "
    "by test point (exact binomial test), because equal runs are no replicates. The p-values of one claim are "
    "corrected for their number (Holm, 5 %); the 95 % intervals are of each difference by itself. A comparison holds "
    "or does not hold if its difference is significant, else it is within noise; one without any difference decides "
    "nothing. A claim holds if all its other comparisons do, holds in part if some do and none speaks against it, and "
    "does not hold if any does not. One seed gives no verdict. Seeds say nothing about other test points."
)


@dataclass(frozen=True)
class Comparison:
    """One difference: positive speaks for the claim. ``paper`` is the same difference of the paper's means.

    ``over`` says what was drawn n times (``seeds`` or ``points``); ``p`` is the two-sided p-value, not corrected;
    ``ratio`` is an effect that is better said as a factor.
    """

    label: str
    verdict: str = MISSING
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    p: float = math.nan
    over: str = "seeds"
    paper: float | None = None
    unit: str = "points"
    ratio: float | None = None

    @property
    def text(self) -> str:
        """``+0.32 [+0.10, +0.54] points``."""
        if self.n == 0:
            return "–"
        # Adding 0.0 after rounding turns -0.00 into +0.00.
        mean, low, high = (round(value, 2) + 0.0 for value in (self.mean, self.low, self.high))
        interval = "" if math.isnan(low) else f" [{low:+.2f}, {high:+.2f}]"
        factor = f" ({self.ratio:.2g} times)" if self.ratio is not None else ""
        return f"{mean:+.2f}{interval} {self.unit}{factor}"

    @property
    def basis(self) -> str:
        """``10 seeds``; for deterministic models how many points decide, or that all seeds are the same."""
        if self.over == "points":
            return f"deterministic, {self.n} points"
        return f"deterministic: the same in all {self.n} seeds" if self.without_replicates else seeds_text(self.n)

    @property
    def without_replicates(self) -> bool:
        """Whether all seeds gave the same difference: then they say nothing about chance."""
        return self.over == "seeds" and self.n > 1 and math.isnan(self.p)

    @property
    def measured(self) -> bool:
        """Whether there is a difference to judge."""
        return self.verdict != MISSING

    @property
    def paper_text(self) -> str:
        """The paper's difference, or a dash."""
        digits = 0 if self.unit == "s" else 2
        return "–" if self.paper is None else f"{self.paper:+.{digits}f} {self.unit}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper with its comparisons, corrected for their number, and the verdict over all of them."""

    id: str
    text: str
    comparisons: tuple[Comparison, ...]
    remark: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "comparisons", corrected(self.comparisons))

    @property
    def verdict(self) -> str:
        """Over all measured comparisons; those without a difference decide nothing."""
        seen = [c.verdict for c in self.comparisons if c.measured]
        deciding = [verdict for verdict in seen if verdict != EQUAL]
        if not deciding:
            return EQUAL if seen else MISSING
        if FAILS in deciding:
            return FAILS
        if HOLDS in deciding:
            return HOLDS if set(deciding) == {HOLDS} else PARTLY
        return ONE_SEED if ONE_SEED in deciding else NOISE

    @property
    def effect(self) -> str:
        """How large, not only which way: ``3 of 4: +0.18 to +0.30 points``."""
        told = [c for c in self.comparisons if c.measured]
        speaking = [c for c in told if c.verdict in (HOLDS, FAILS)] or [c for c in told if c.verdict != EQUAL] or told
        if not told:
            return ""
        low, high = (round(f(c.mean for c in speaking), 2) + 0.0 for f in (min, max))
        sizes = f"{low:+.2f}" if low == high else f"{low:+.2f} to {high:+.2f}"
        factors = {f"{c.ratio:.2g} times" for c in speaking if c.ratio is not None}
        holding = sum(c.verdict == HOLDS for c in told)
        count = f"{holding} of {len(told)}: " if len(told) > 1 else ""
        return f"{count}{sizes} {told[0].unit}" + (f" ({', '.join(sorted(factors))})" if factors else "")


def corrected(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Verdicts at Holm's levels: the k-th smallest of m p-values is compared with 5 % / (m - k + 1)."""
    order = sorted(
        (place for place, c in enumerate(comparisons) if not math.isnan(c.p)), key=lambda i: comparisons[i].p
    )
    found, rejecting = list(comparisons), True
    for k, place in enumerate(order):
        c = comparisons[place]
        rejecting = rejecting and c.p <= LEVEL / (len(order) - k)
        found[place] = replace(c, verdict=(HOLDS if c.mean > 0 else FAILS) if rejecting else NOISE)
    return tuple(found)


def claims_table(claims: list[Claim]) -> Table:
    """Verdicts with every comparison."""
    table = Table("The paper's claims", ["claim", "verdict", "comparison", "ours", "paper's means"])
    for claim in claims:
        for number, c in enumerate(claim.comparisons):
            first = [name(claim.text), name(claim.verdict)] if number == 0 else [name(""), name("")]
            ours = Entry(f"{c.text}, {c.verdict}", c.basis if c.measured else "")
            table.rows.append([*first, name(c.label), ours, Entry(c.paper_text, kind="paper")])
    return table


def compare(label: str, differences: Sequence[float], **more: Any) -> Comparison:
    """Paired differences, one per seed: their mean, its 95 % t-interval and two-sided p-value."""
    from scipy.stats import ttest_1samp

    n = len(differences)
    mean = float(np.mean(differences)) if n else math.nan
    if n < 2 or np.std(differences, ddof=1) < 1e-9:
        return Comparison(label, untested(n, mean), mean, n=n, **more)
    test = ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval(1 - LEVEL)
    return Comparison(label, NOISE, mean, float(low), float(high), n, float(test.pvalue), **more)


def untested(n: int, mean: float) -> str:
    """The verdict where nothing was drawn at random: no seed, one seed, or the same difference in every seed."""
    if n < 2:
        return ONE_SEED if n else MISSING
    return EQUAL if abs(mean) < 1e-9 else HOLDS if mean > 0 else FAILS


def compare_points(label: str, better: np.ndarray, worse: np.ndarray, **more: Any) -> Comparison:
    """Two deterministic sides on the same test points: which are right (or broken) on the one and not on the other.

    Only points on which they differ decide: under no difference each falls to either side by an even chance. The
    interval is the exact one of that chance, in percentage points of all points.
    """
    from scipy.stats import binomtest

    wins, losses, n = int(np.sum(better & ~worse)), int(np.sum(worse & ~better)), len(better)
    if wins + losses == 0:
        return Comparison(label, EQUAL, 0.0, n=n, over="points", **more)
    test = binomtest(wins, wins + losses)
    interval = test.proportion_ci(1 - LEVEL)
    low, mean, high = (
        100 * (2 * share - 1) * (wins + losses) / n for share in (interval.low, wins / (wins + losses), interval.high)
    )
    return Comparison(label, NOISE, mean, low, high, n, float(test.pvalue), "points", **more)


def claims_of(section: Section, reader: Reader) -> list[Claim]:
    """All claims of the paper for one section."""
    others = ("adv_linear_svm", "adv_svm_d", "adv_svm_c")
    clean = tuple(_clean(section, reader, "natural", model) for model in others)
    attacked = partial(_attacked, section, reader)
    cap = f"C&W and ZOO at the L2 cap {section.l2_cap:g}."
    return [
        Claim("natural_clean", "Natural is best on clean data", clean),
        Claim("c_over_d", "adv-SVM (C) ≥ adv-SVM (D) under attack", attacked("adv_svm_c", "adv_svm_d"), cap),
        Claim("d_over_natural", "adv-SVM (D) ≥ Natural under attack", attacked("adv_svm_d", "natural"), cap),
        Claim("c_over_natural", "adv-SVM (C) ≥ Natural under attack", attacked("adv_svm_c", "natural"), cap),
        Claim("pgd_over_fgsm", "PGD is stronger than FGSM", _pgd_over_fgsm(section, reader)),
        Claim("strongest", "C&W and ZOO are the strongest attacks", *_strongest(section, reader)),
        Claim("linear_slow", "adv-linear-SVM takes longer to train than adv-SVM (C)", _slow(section)),
        Claim(
            "linear_weak",
            "adv-linear-SVM is weaker than Natural under C&W and ZOO",
            attacked("natural", "adv_linear_svm", _WITHOUT_BUDGET),
            cap,
        ),
    ]


def _clean(section: Section, reader: Reader, better: str, worse: str) -> Comparison:
    rows = section.row(better), section.row(worse)
    first, second = (row.shared("clean_accuracy") if row else {} for row in rows)
    label, paper = f"over {model_name(worse)}", _paper_difference(section, (better, "none"), (worse, "none"))
    by_seed = compare(label, _differences(first, second), paper=paper)
    cells = [row.cell("none") if row else None for row in rows]
    if by_seed.without_replicates and cells[0] and cells[1]:
        return _compare_cells(label, cells[0], cells[1], "clean_accuracy", math.inf, reader, paper)
    return by_seed


def _attacked(
    section: Section,
    reader: Reader,
    better: str,
    worse: str,
    attacks: tuple[str, ...] = ("fgsm", "pgd", *_WITHOUT_BUDGET),
) -> tuple[Comparison, ...]:
    comparisons = []
    for attack in attacks:
        cells = [row.cell(attack) if row else None for row in (section.row(better), section.row(worse))]
        paper = _paper_difference(section, (better, attack), (worse, attack))
        setting = next((cell.setting for cell in cells if cell), None)
        radius = math.inf if setting is None or setting.bounded else section.l2_cap
        metric = "robust_accuracy" if setting is None else setting.metric
        label = f"under {attack_name(attack)}"
        comparisons.append(_compare_cells(label, cells[0], cells[1], metric, radius, reader, paper))
    return tuple(comparisons)


def _compare_cells(
    label: str, better: Cell | None, worse: Cell | None, metric: str, radius: float, reader: Reader, paper: float | None
) -> Comparison:
    """Over seeds; over points where the difference is the same in every seed."""
    # The same number of points means the same points (the choice of rows depends on nothing else).
    if better is None or worse is None or better.setting.n_attacked != worse.setting.n_attacked:
        return Comparison(label, paper=paper)
    first, second = better.values(metric), worse.values(metric)
    by_seed = compare(label, _differences(first, second), paper=paper)
    if not by_seed.without_replicates:
        return by_seed
    stood = [_standing(cell.first, radius, reader) for cell in (better, worse)]
    return compare_points(label, *_common(stood[0], stood[1]), paper=paper) if all(stood) else by_seed


def _standing(run: TrackedRun, radius: float, reader: Reader) -> dict[int, bool]:
    """By test row: whether the point stood within the L2 radius; empty without the run's files."""
    arrays = reader.arrays(run, "adversarial/examples.npz", ("success", "distortion_l2", "test_rows"))
    if arrays is None:
        return {}
    stood = ~(arrays["success"] & (arrays["distortion_l2"] <= radius))
    return dict(zip(map(int, arrays["test_rows"]), map(bool, stood)))


def _common(first: dict[int, bool], second: dict[int, bool]) -> np.ndarray:
    """Both sides on the test rows they share, (2, n)."""
    rows = sorted(set(first) & set(second))
    return np.array([[side[row] for row in rows] for side in (first, second)], dtype=bool)


def _pgd_over_fgsm(section: Section, reader: Reader) -> tuple[Comparison, ...]:
    def of_row(row: Row) -> Comparison:
        paper = _paper_difference(section, (row.key.model, "fgsm"), (row.key.model, "pgd"))
        cells = row.cell("fgsm"), row.cell("pgd")
        return _compare_cells(f"on {row.label}", *cells, "robust_accuracy", math.inf, reader, paper)

    return _per_model(section, of_row)


def _strongest(section: Section, reader: Reader) -> tuple[tuple[Comparison, ...], str]:
    """PGD against the unbounded attacks on the same test points, inside the L2 ball that PGD's L∞ ball reaches."""
    radius = PAPER_EPSILON * math.sqrt(section.pixels or 0)
    comparisons: list[Comparison] = []
    for attack in _WITHOUT_BUDGET:

        def of_row(row: Row, attack: str = attack) -> Comparison:
            label = f"{attack_name(attack)} against PGD on {row.label}"
            paper = _paper_difference(section, (row.key.model, "pgd"), (row.key.model, attack))
            return _on_common_points(label, row.cell("pgd"), row.cell(attack), radius, reader, paper)

        comparisons += _per_model(section, of_row)
    remark = (
        f"Ours inside the L2 ball of radius {radius:.3f} = ε√d, on the test points both attacks got. Without a bound "
        "C&W and ZOO always win: they stop only when the label changes."
    )
    return tuple(comparisons), remark


def _on_common_points(
    label: str, pgd: Cell | None, other: Cell | None, radius: float, reader: Reader, paper: float | None
) -> Comparison:
    if pgd is None or other is None:
        return Comparison(label, paper=paper)
    pairs = []
    for seed in sorted(set(pgd.runs) & set(other.runs)):
        first, second = _standing(pgd.runs[seed], math.inf, reader), _standing(other.runs[seed], radius, reader)
        if first and second:
            pairs.append(_common(first, second))
    by_seed = compare(label, [100 * float(np.mean(pair[0]) - np.mean(pair[1])) for pair in pairs], paper=paper)
    return compare_points(label, *pairs[0], paper=paper) if by_seed.without_replicates else by_seed


def _slow(section: Section) -> tuple[Comparison, ...]:
    linear, fast = section.row("adv_linear_svm"), section.row("adv_svm_c")
    slow_seconds, fast_seconds = (row.shared("train_seconds") if row else {} for row in (linear, fast))
    minutes = [row.published(section.dataset, "none") if row else None for row in (linear, fast)]
    paper = 60 * (minutes[0].minutes - minutes[1].minutes) if minutes[0] and minutes[1] else None
    ratio = None
    if slow_seconds and fast_seconds:
        ratio = float(np.mean(list(slow_seconds.values())) / np.mean(list(fast_seconds.values())))
    seconds = _differences(slow_seconds, fast_seconds, scale=1)
    return (compare("longer than adv-SVM (C)", seconds, paper=paper, unit="s", ratio=ratio),)


def _per_model(section: Section, of_row: Callable[[Row], Comparison]) -> tuple[Comparison, ...]:
    return tuple(of_row(row) for row in section.paper_rows if row.key.model != "svc")


def _differences(better: dict[int, float], worse: dict[int, float], scale: float = 100) -> list[float]:
    return [scale * (better[seed] - worse[seed]) for seed in sorted(set(better) & set(worse))]


def _paper_difference(section: Section, better: tuple[str, str], worse: tuple[str, str]) -> float | None:
    cells = []
    for model, attack in (better, worse):
        row = section.row(model)
        cells.append(row.published(section.dataset, attack) if row else None)
    return cells[0].mean - cells[1].mean if cells[0] and cells[1] else None
