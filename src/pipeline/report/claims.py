"""The paper's ordering claims, judged by a stated test over seeds.

Every comparison is paired by seed: the differences over the seeds that both sides have, and their two-sided 95 %
t-interval. The claim *holds* when the interval lies on the claimed side of zero, *does not hold* when it lies on the
other side, and is *within noise* when it contains zero. One seed gives no verdict. Each comparison is judged by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.report.content import UNBOUNDED, Cell, Row, Section
from pipeline.report.paper import ATTACKS, MODELS
from pipeline.report.tracked import Reader
from pipeline.report.variants import PAPER_EPSILON

HOLDS, FAILS, NOISE = "holds", "does not hold", "within noise"
ONE_SEED, MISSING = "one seed: no verdict", "not measured"
CONFIDENCE = 0.95
TEST = (
    "Differences are paired by seed; a claim holds when the two-sided 95 % t-interval of their mean lies on the "
    "claimed side of zero, does not hold when it lies on the other side, and is within noise when it contains zero. "
    "A claim with several comparisons holds if all of them do and does not hold if any does not. "
    "One seed gives no verdict. No correction for the number of comparisons; the "
    "interval covers seeds, not the choice of the test points."
)


@dataclass(frozen=True)
class Comparison:
    """One difference: positive speaks for the claim. ``paper`` is the same difference of the paper's means."""

    label: str
    verdict: str
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    paper: float | None = None
    unit: str = "points"

    @property
    def text(self) -> str:
        """``+0.32 [+0.10, +0.54] points``."""
        if self.n == 0:
            return "–"
        # Adding 0.0 after rounding turns -0.00 into +0.00.
        mean, low, high = (round(value, 2) + 0.0 for value in (self.mean, self.low, self.high))
        interval = f" [{low:+.2f}, {high:+.2f}]" if self.n > 1 else ""
        return f"{mean:+.2f}{interval} {self.unit}"

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
    """A claim of the paper with its comparisons and the verdict over all of them."""

    id: str
    text: str
    comparisons: tuple[Comparison, ...]
    remark: str = ""

    @property
    def verdict(self) -> str:
        """Over all measured comparisons."""
        seen = [c.verdict for c in self.comparisons if c.verdict != MISSING]
        if not seen:
            return MISSING
        if FAILS in seen:
            return FAILS
        for verdict in (ONE_SEED, NOISE):
            if verdict in seen:
                return verdict
        return HOLDS


def judge(label: str, differences: list[float], paper: float | None = None, unit: str = "points") -> Comparison:
    """Verdict over paired differences by the t-interval of their mean."""
    from scipy.stats import t

    n = len(differences)
    if n == 0:
        return Comparison(label, MISSING, paper=paper, unit=unit)
    mean = float(np.mean(differences))
    if n == 1:
        return Comparison(label, ONE_SEED, mean, n=1, paper=paper, unit=unit)
    half = float(t.ppf(0.5 + CONFIDENCE / 2, n - 1) * np.std(differences, ddof=1) / math.sqrt(n))
    low, high = mean - half, mean + half
    verdict = HOLDS if low > 1e-9 else FAILS if high < -1e-9 else NOISE
    return Comparison(label, verdict, mean, low, high, n, paper, unit)


def claims_of(section: Section, reader: Reader) -> list[Claim]:
    """All claims of the paper for one section."""
    others = ("adv_linear_svm", "adv_svm_d", "adv_svm_c")
    clean = tuple(_clean(section, "natural", model) for model in others)
    cap = f"C&W and ZOO at the L2 cap {section.l2_cap:g}."
    return [
        Claim("natural_clean", "Natural is best on clean data", clean),
        Claim("c_over_d", "adv-SVM (C) ≥ adv-SVM (D) under attack", _attacked(section, "adv_svm_c", "adv_svm_d"), cap),
        Claim("d_over_natural", "adv-SVM (D) ≥ Natural under attack", _attacked(section, "adv_svm_d", "natural"), cap),
        Claim("c_over_natural", "adv-SVM (C) ≥ Natural under attack", _attacked(section, "adv_svm_c", "natural"), cap),
        Claim("pgd_over_fgsm", "PGD is stronger than FGSM", _pgd_over_fgsm(section)),
        Claim("strongest", "C&W and ZOO are the strongest attacks", *_strongest(section, reader)),
        Claim("linear_slow", "adv-linear-SVM is slow to train", _slow(section), "Seconds of training, ours."),
        Claim(
            "linear_weak",
            "adv-linear-SVM is weaker than Natural under C&W and ZOO",
            _attacked(section, "natural", "adv_linear_svm", UNBOUNDED),
            cap,
        ),
    ]


def attacked_metric(attack: str) -> str:
    """The accuracy that can be compared: unbounded attacks count only up to the L2 cap."""
    return "accuracy_at_l2_cap" if attack in UNBOUNDED else "robust_accuracy"


def _clean(section: Section, better: str, worse: str) -> Comparison:
    rows = section.row(better), section.row(worse)
    first, second = (row.shared("clean_accuracy") if row else {} for row in rows)
    paper = _paper_difference(section, (better, "none"), (worse, "none"))
    return judge(f"over {MODELS[worse]}", _differences(first, second), paper)


def _attacked(
    section: Section, better: str, worse: str, attacks: tuple[str, ...] = ("fgsm", "pgd", *UNBOUNDED)
) -> tuple[Comparison, ...]:
    comparisons = []
    for attack in attacks:
        cells = [row.cell(attack) if row else None for row in (section.row(better), section.row(worse))]
        # The same number of points means the same points (the choice of rows depends on nothing else).
        comparable = len({cell.setting.n_attacked for cell in cells if cell}) == 1
        metric = attacked_metric(attack)
        first, second = (cell.values(metric) if cell and comparable else {} for cell in cells)
        paper = _paper_difference(section, (better, attack), (worse, attack))
        comparisons.append(judge(f"under {ATTACKS[attack]}", _differences(first, second), paper))
    return tuple(comparisons)


def _pgd_over_fgsm(section: Section) -> tuple[Comparison, ...]:
    def compare(row: Row) -> Comparison:
        cells = row.cell("fgsm"), row.cell("pgd")
        first, second = (cell.values("robust_accuracy") if cell else {} for cell in cells)
        paper = _paper_difference(section, (row.key.model, "fgsm"), (row.key.model, "pgd"))
        return judge(f"on {row.label}", _differences(first, second), paper)

    return _per_model(section, compare)


def _strongest(section: Section, reader: Reader) -> tuple[tuple[Comparison, ...], str]:
    """PGD against the unbounded attacks on the same test points, inside the L2 ball that PGD's L∞ ball reaches."""
    radius = PAPER_EPSILON * math.sqrt(section.pixels or 0)
    comparisons: list[Comparison] = []
    for attack in UNBOUNDED:

        def compare(row: Row, attack: str = attack) -> Comparison:
            pgd, other = row.cell("pgd"), row.cell(attack)
            differences = _on_common_points(pgd, other, radius, reader) if pgd and other else []
            paper = _paper_difference(section, (row.key.model, "pgd"), (row.key.model, attack))
            return judge(f"{ATTACKS[attack]} against PGD on {row.label}", differences, paper)

        comparisons += _per_model(section, compare)
    remark = (
        f"Ours inside the L2 ball of radius {radius:.3f} = ε√d, on the test points both attacks got. Without a bound "
        "C&W and ZOO always win: they stop only when the label changes."
    )
    return tuple(comparisons), remark


def _on_common_points(pgd: Cell, other: Cell, radius: float, reader: Reader) -> list[float]:
    names = ("success", "distortion_l2", "test_rows")
    differences = []
    for seed in sorted(set(pgd.runs) & set(other.runs)):
        first = reader.arrays(pgd.runs[seed], "adversarial/examples.npz", names)
        second = reader.arrays(other.runs[seed], "adversarial/examples.npz", names)
        if first is None or second is None:
            continue
        _, left, right = np.intersect1d(first["test_rows"], second["test_rows"], return_indices=True)
        broken = second["success"] & (second["distortion_l2"] <= radius)
        differences.append(100 * float(np.mean(broken[right]) - np.mean(first["success"][left])))
    return differences


def _slow(section: Section) -> tuple[Comparison, ...]:
    linear, fast = section.row("adv_linear_svm"), section.row("adv_svm_c")
    slow_seconds, fast_seconds = (row.shared("train_seconds") if row else {} for row in (linear, fast))
    minutes = [row.published(section.dataset, "none") if row else None for row in (linear, fast)]
    paper = 60 * (minutes[0].minutes - minutes[1].minutes) if minutes[0] and minutes[1] else None
    seconds = _differences(slow_seconds, fast_seconds, scale=1)
    return (judge("longer than adv-SVM (C)", seconds, paper, unit="s"),)


def _per_model(section: Section, compare: Callable[[Row], Comparison]) -> tuple[Comparison, ...]:
    return tuple(compare(row) for row in section.paper_rows if row.key.model != "svc")


def _differences(better: dict[int, float], worse: dict[int, float], scale: float = 100) -> list[float]:
    return [scale * (better[seed] - worse[seed]) for seed in sorted(set(better) & set(worse))]


def _paper_difference(section: Section, better: tuple[str, str], worse: tuple[str, str]) -> float | None:
    cells = []
    for model, attack in (better, worse):
        row = section.row(model)
        cells.append(row.published(section.dataset, attack) if row else None)
    return cells[0].mean - cells[1].mean if cells[0] and cells[1] else None
