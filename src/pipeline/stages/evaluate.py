"""Evaluate: the numbers of a run, bracketed by the certificate from below and by the attack from above."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from omegaconf import DictConfig

from pipeline.cache import Entry
from pipeline.checks import Check, CheckContext, run_checks
from pipeline.data import Dataset
from pipeline.stages.attack import Attacked
from pipeline.stages.bracket import Bracket, bracket
from pipeline.stages.certify import Certified
from pipeline.stages.plan import checks_level
from pipeline.stages.train import Trained
from pipeline.stages.tune import Tuned


@dataclass(frozen=True)
class Evaluated:
    """Metrics (accuracies are fractions), stepped curves, certified L2 radii of all test points, bracket and checks."""

    metrics: dict[str, float]
    curves: dict[str, list[tuple[int, float]]]
    radii: np.ndarray
    bracket: Bracket
    checks: list[Check] = field(default_factory=list)

    def to_entry(self) -> Entry:
        """As a cache entry."""
        checks = [asdict(check) for check in self.checks]
        arrays = {"radii": self.radii, "bracket.rows": self.bracket.rows, "bracket.nearest": self.bracket.nearest}
        return Entry({"metrics": self.metrics, "curves": self.curves, "checks": checks}, arrays)

    @classmethod
    def from_entry(cls, entry: Entry) -> Evaluated:
        """From a cache entry."""
        curves = {name: [(int(s), float(v)) for s, v in points] for name, points in entry.values["curves"].items()}
        checks = [Check(**check) for check in entry.values["checks"]]
        rows, radii = entry.arrays["bracket.rows"], entry.arrays["radii"]
        around = Bracket(rows, entry.arrays["bracket.nearest"], radii[rows])
        return cls(entry.values["metrics"], curves, radii, around, checks)


def evaluate(
    cfg: DictConfig, data: Dataset, tuned: Tuned, trained: Trained, certified: Certified, attacked: Attacked
) -> Evaluated:
    """Compute the contract's metrics and curves and let the evaluation check itself."""
    radii = certified.radii
    around = bracket(data, trained, attacked, radii)
    metrics = _clean_metrics(cfg, data, certified.correct, radii) | _attack_metrics(cfg, attacked)
    metrics |= _bracket_metrics(around, cfg.evaluation.l2_cap)
    metrics |= {
        "tune_seconds": tuned.seconds,
        "train_seconds": trained.seconds,
        "certify_seconds": certified.seconds,
        "attack_seconds": attacked.seconds,
    }
    if tuned.cv_accuracy is not None:
        metrics["cv_accuracy"] = tuned.cv_accuracy
    context = CheckContext(cfg, data, tuned, trained, certified.correct, radii, attacked)
    started = time.perf_counter()
    checks = run_checks(context, checks_level(cfg), certified.checks)
    # Of all checks in the run's list, also of those that an earlier run of the same model has paid for.
    metrics["checks_seconds"] = certified.checks_seconds + time.perf_counter() - started
    metrics["checks_failed"] = float(sum(check.status == "fail" for check in checks))
    curves = _curves(data, trained, attacked)
    if cfg.evaluation.convergence:
        from pipeline.experiments.convergence import convergence_curves

        found, more = convergence_curves(cfg, data, trained.model)
        curves, metrics = curves | found, metrics | more
    return Evaluated(metrics, curves, radii, around, checks)


def _clean_metrics(cfg: DictConfig, data: Dataset, correct: np.ndarray, radii: np.ndarray) -> dict[str, float]:
    return {
        "clean_accuracy": float(np.mean(correct)),
        "certified_accuracy": float(np.mean(correct & (radii >= cfg.evaluation.certified_radius))),
        "certified_radius_median": float(np.median(radii)),
        "n_test": float(len(data.y_test)),
    }


def _bracket_metrics(around: Bracket, cap: float) -> dict[str, float]:
    """Both bounds at the L2 cap and the gap between them, on the same points."""
    lower, upper = around.lower(cap), around.upper(cap)
    return {
        "certified_accuracy_at_l2_cap": lower,
        "bracket_upper_at_l2_cap": upper,
        "bracket_gap_at_l2_cap": upper - lower,
        "bracket_points": float(len(around.rows)),
    }


def _attack_metrics(cfg: DictConfig, attacked: Attacked) -> dict[str, float]:
    result, cap = attacked.result, cfg.evaluation.l2_cap
    correct_before = ~attacked.clean_wrong
    broken = result.success & correct_before
    metrics = {
        "robust_accuracy": float(np.mean(~result.success)),
        "attack_success_rate": float(broken.sum() / correct_before.sum()) if correct_before.any() else 0.0,
        "accuracy_at_l2_cap": float(np.mean(~(result.success & (result.distortion_l2 <= cap)))),
        "distortion_linf_max": float(result.distortion_linf.max(initial=0.0)),
        "queries_mean": float(result.queries.mean()),
        "gradient_evaluations_mean": float(result.gradient_evaluations.mean()),
        "n_attacked": float(len(result.success)),
    }
    # Over the examples the attack changed: zeros of the points that were wrong already would hide the distortion.
    distances = result.distortion_l2[broken]
    metrics["distortion_l2_median"] = float(np.median(distances)) if broken.any() else 0.0
    metrics["distortion_l2_mean"] = float(distances.mean()) if broken.any() else 0.0
    return metrics


def _curves(data: Dataset, trained: Trained, attacked: Attacked) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    if "test_error" in trained.curve:
        curves["test_error"] = _points(trained.curve["iteration"], trained.curve["test_error"])
    if hasattr(trained.model, "staged_scores") and len(attacked.rows):
        signs = np.where(data.y_test[attacked.rows] == trained.model.classes_[1], 1.0, -1.0)
        staged = np.asarray(trained.model.staged_scores(attacked.result.examples))
        errors = np.mean(np.where(staged > 0, 1.0, -1.0) != signs, axis=1)
        iterations = trained.curve.get("iteration", np.arange(1, len(errors) + 1))
        if len(iterations) == len(errors):
            curves["adversarial_test_error"] = _points(iterations, errors)
    by_step = attacked.result.history.get("robust_accuracy_by_step")
    if by_step is not None:
        curves["robust_accuracy_by_step"] = _points(np.arange(len(by_step)), by_step)
    return curves


def _points(steps: Any, values: Any) -> list[tuple[int, float]]:
    return [(int(step), round(float(value), 6)) for step, value in zip(steps, values)]
