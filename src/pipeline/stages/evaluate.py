"""Evaluate: the numbers of a run, bracketed by the certificate from below and by the attack from above."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pipeline.cache import Stored
from pipeline.checks import Check, CheckContext, run_checks
from pipeline.stages.base import Stage, plain
from pipeline.stages.bracket import Distances, Verdicts, known_distances, verdicts_on
from pipeline.stages.build import attack_constraints
from pipeline.stages.certify import Certified, checks_level, with_radii
from pipeline.stages.metrics import RunView, measure
from pipeline.stages.units import is_raw

if TYPE_CHECKING:
    from pipeline.data import Dataset
    from pipeline.stages.attack import Attacked
    from pipeline.stages.train import Trained
    from pipeline.stages.tune import Tuned


@dataclass(frozen=True)
class Evaluated(Stored):
    """Metrics, stepped curves, certified L2 radii of the test points, what is known of the attacked ones, checks.

    A radius that nobody asked for is NaN; every attacked point has one.
    """

    metrics: dict[str, float]
    curves: dict[str, list[tuple[int, float]]]
    radii: np.ndarray
    bracket: Distances
    verdicts: Verdicts
    checks: list[Check] = field(default_factory=list)
    parts: ClassVar[tuple[type, ...]] = (Distances, Verdicts, Check)


class Evaluate(Stage):
    """The contract's metrics and curves, and the checks of the whole run. Its key is the run's signature."""

    name = "evaluate"
    result = Evaluated

    def settings(self) -> dict[str, Any]:
        # The limits belong to the attack's key: one that does not apply to an attack must not repeat its run.
        judged = {k: v for k, v in plain(self.cfg.evaluation).items() if not k.startswith("max_attacked")}
        return {"evaluation": judged, "checks": checks_level(self.cfg), "strict": self.cfg.strict}

    def targets(self) -> list[str]:
        return [*self.cfg.evaluation.metrics, *self.cfg.evaluation.checks]

    def line(self, evaluated: Evaluated) -> None:
        return None

    def run(
        self,
        data: Dataset,
        tuned: Tuned,
        trained: Trained,
        certified: Certified,
        attacked: Attacked,
        observer: Any = None,
    ) -> Evaluated:
        """Measure, and let the evaluation check itself."""
        cfg, radii = self.cfg, with_radii(certified.radii, attacked.rows, trained.model, data)
        limits = cfg.evaluation
        verdicts = verdicts_on(
            data, trained, attacked, radii, limits.l2_cap, limits.certify_seconds, observer,
            constraints=attack_constraints(cfg, data), raw=float(cfg.attack.epsilon) if is_raw(cfg) else None,
        )  # fmt: skip
        around = known_distances(data, trained, attacked, radii)
        metrics = measure(RunView(cfg, data, tuned, trained, certified, attacked, verdicts, around))
        context = CheckContext(cfg, data, tuned, trained, certified.correct, radii, attacked, verdicts=verdicts)
        started = time.perf_counter()
        checks = run_checks(context, checks_level(cfg), certified.checks)
        # Of all checks in the run's list, also of those that an earlier run of the same model has paid for.
        metrics["checks_seconds"] = certified.checks_seconds + time.perf_counter() - started
        metrics["checks_failed"] = float(sum(check.status == "fail" for check in checks))
        curves = _curves(data, trained, attacked)
        if cfg.evaluation.convergence:
            from pipeline.stages.convergence import convergence_curves

            found, more = convergence_curves(cfg, data, trained.model)
            curves, metrics = curves | found, metrics | more
        return Evaluated(metrics, curves, radii, around, verdicts, checks)


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
