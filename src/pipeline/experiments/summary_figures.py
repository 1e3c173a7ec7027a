"""The figures of the named experiments, drawn from the outcomes of a sweep's jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.experiments.panels import Line, Panel, draw_panels

_MODELS = {
    "natural": "Natural",
    "adv_linear_svm": "adv-linear-SVM",
    "adv_svm_d": "adv-SVM(D)",
    "adv_svm_c": "adv-SVM(C)",
    "svc": "SVC",
}


@dataclass(frozen=True)
class Job:
    """A finished job: its labels, the settings its command line gave, its metrics and curves."""

    labels: Mapping[str, Any]
    settings: Mapping[str, str]
    metrics: Mapping[str, float]
    curves: Mapping[str, list[tuple[int, float]]]

    @property
    def model(self) -> str:
        """Name in the paper's words."""
        return _MODELS.get(self.labels["model"], str(self.labels["model"]))


def draw(experiment: str, jobs: list[list[str]], results: list[Any], folder: Path) -> list[Path]:
    """Draw the figures of ``experiment`` (nothing for others), one set per dataset.

    Parameters
    ----------
    experiment : str
    jobs : list of override lists, one per job
    results : list of Outcome, in the same order
    folder : Path
    """
    figure = FIGURES.get(experiment)
    if figure is None:
        return []
    done: dict[str, list[Job]] = defaultdict(list)
    for overrides, outcome in zip(jobs, results):
        if outcome.ok:
            settings = dict(override.lstrip("+").split("=", 1) for override in overrides if "=" in override)
            done[outcome.labels["dataset"]].append(Job(outcome.labels, settings, outcome.metrics, outcome.curves))
    folder.mkdir(parents=True, exist_ok=True)
    return [figure(dataset, jobs, folder / f"{experiment}_{dataset}.png") for dataset, jobs in done.items()]


def attack_strength(dataset: str, jobs: list[Job], path: Path) -> Path:
    """The paper's first figure: accuracy over PGD's steps K at ε = 8/255, and over ε at K = 10.

    Small images hardly change at 8/255: where no model loses 2 points there, K is shown at the next ε where one does.
    """
    paper = 8 / 255
    by_step: dict[float, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    by_epsilon: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for job in jobs:
        accuracy = np.array([value for _, value in job.curves.get("robust_accuracy_by_step", [])])
        if not accuracy.size:
            continue
        epsilon = float(job.settings.get("attack.epsilon", paper))
        by_epsilon[job.model][0.0].append(accuracy[0])
        by_epsilon[job.model][epsilon].append(accuracy[min(10, len(accuracy) - 1)])
        by_step[epsilon][job.model].append(accuracy)
    shown = next(
        (e for e in sorted(by_step) if e >= paper * (1 - 1e-6) and _fall(by_step[e]) >= 0.02),
        max(by_step, default=paper),
    )
    steps = [Line.of_series(name, range(len(series[0])), series, scale=100) for name, series in by_step[shown].items()]
    epsilons = [Line.of_groups(name, groups, scale=100) for name, groups in by_epsilon.items()]
    return draw_panels(
        [
            Panel(f"PGD, ε = {255 * shown:.3g}/255", "attack steps K", "accuracy [%]", steps),
            Panel("PGD, K = 10", "ε (L∞)", "accuracy [%]", epsilons),
        ],
        path,
        title=dataset,
    )


def _fall(by_model: Mapping[str, list[np.ndarray]]) -> float:
    """Largest loss of accuracy of any model from the first to the last step."""
    return max(float(np.mean([series[0] - series[-1] for series in many])) for many in by_model.values())


def iterations(dataset: str, jobs: list[Job], path: Path) -> Path:
    """The paper's second figure: test error over training iterations, one panel per attack."""
    curves: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for job in jobs:
        curve = job.curves.get("adversarial_test_error")
        if curve:
            curves[str(job.labels["attack"])][job.model].append(curve)
    panels = []
    for attack, by_model in curves.items():
        lines = []
        for name, series in by_model.items():
            values = [np.array([value for _, value in curve]) for curve in series]
            lines.append(Line.of_series(name, [step for step, _ in series[0]], values, scale=100))
        panels.append(Panel(attack, "training iteration", "test error [%]", lines))
    title = f"{dataset}: error on examples made against the final model"
    return draw_panels(panels, path, title=title, same_scale=False)


def convergence(dataset: str, jobs: list[Job], path: Path) -> Path:
    """Squared error against the optimum over t, log-log, with fitted slopes beside the theorem's -1."""
    from pipeline.experiments.convergence_figure import draw_convergence

    return draw_convergence(dataset, jobs, path)


FIGURES: dict[str, Callable[[str, list[Job], Path], Path]] = {
    "attack_strength": attack_strength,
    "iterations": iterations,
    "convergence": convergence,
}
