"""The figures of a sweep's summary, per dataset: what its jobs have curves or settings for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.figures.charts import Line, Panel, Points, bars, lines
from pipeline.figures.registry import sweep_figure
from pipeline.figures.style import COLOURS, Drawing, legend_beside, panels_of, tidy
from pipeline.job import Outcome
from pipeline.labels import attack_name, model_name
from pipeline.tables import bracket_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAPER_EPSILON = 8 / 255


@dataclass
class Job(Outcome):
    """How a job ended, and its place in the table: a row (a model) and a column (an attack in its threat), in words."""

    row: str = ""
    column: str = ""

    @property
    def bracket(self) -> tuple[float | None, float]:
        """Certified and attacked accuracy in the threat of the column."""
        return bracket_of(self.metrics, self.bounded)

    @property
    def model(self) -> str:
        """Name in the paper's words, with what tells it from other models of the sweep."""
        own = str(self.labels["model"])
        return model_name(own) + self.row.removeprefix(own)

    @property
    def colour(self) -> str | None:
        """The model's own colour, as long as its name alone says which it is."""
        return COLOURS.get(self.row)


def _lines(jobs: Iterable[Job], curve: str) -> list[Line]:
    """Mean over seeds of a stepped metric, one line per model."""
    series: dict[tuple[str, str | None], list[Points]] = defaultdict(list)
    for job in jobs:
        if job.curves.get(curve):
            series[job.model, job.colour].append(job.curves[curve])
    found = [Line.of_curves(name, curves, colour=colour) for (name, colour), curves in series.items()]
    return [line for line in found if line is not None and len(line.x) > 1]


@sweep_figure
def test_error(dataset: str, jobs: list[Job]) -> Drawing | None:
    """Clean test error over training iterations."""
    # Every attack of a model and seed brings the same clean curve.
    once = {(job.model, job.labels["seed"]): job for job in jobs if job.curves.get("test_error")}
    drawn = _lines(once.values(), "test_error")
    panel = Panel("", "training iteration", "test error [%]", drawn, from_zero=True)
    return Drawing(f"{dataset}: clean test error", partial(lines, [panel])) if drawn else None


@sweep_figure
def adversarial_test_error(dataset: str, jobs: list[Job]) -> Drawing | None:
    """The paper's second figure: error over training iterations, one panel per attack."""
    attacks: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        # The examples are all that the attack made, also those beyond the cap of its column.
        attacks[job.column if job.bounded else f"{attack_name(str(job.labels['attack']))}, no bound"].append(job)
    panels = [
        Panel(attack, "training iteration", "test error [%]", drawn, from_zero=True)
        for attack, own in attacks.items()
        if own[0].labels["attack"] != "none" and (drawn := _lines(own, "adversarial_test_error"))
    ]
    title = f"{dataset}: error on examples made against the final model"
    return Drawing(title, partial(lines, panels)) if panels else None


@sweep_figure
def attack_strength(dataset: str, jobs: list[Job]) -> Drawing | None:
    """The paper's first figure: accuracy over PGD's steps K at ε = 8/255, and over ε at K = 10.

    Small images hardly change at 8/255: where no model loses 2 points there, K is shown at the next ε where one does.
    """
    by_epsilon: dict[float, list[Job]] = defaultdict(list)
    for job in jobs:
        if len(job.curves.get("robust_accuracy_by_step", ())) > 1:
            by_epsilon[float(job.settings.get("attack.epsilon", _PAPER_EPSILON))].append(job)
    if len(by_epsilon) < 2:
        return None
    by_step = {epsilon: _lines(own, "robust_accuracy_by_step") for epsilon, own in sorted(by_epsilon.items())}
    worth = [e for e in by_step if e >= _PAPER_EPSILON * (1 - 1e-6) and any(np.ptp(l.mean) >= 2 for l in by_step[e])]
    shown = worth[0] if worth else max(by_step)
    accuracy: dict[tuple[str, str | None], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for epsilon, own in by_epsilon.items():
        for job in own:
            values = [value for _, value in job.curves["robust_accuracy_by_step"]]
            accuracy[job.model, job.colour][0.0].append(values[0])
            accuracy[job.model, job.colour][epsilon].append(values[min(10, len(values) - 1)])
    over_epsilon = [Line.of_groups(name, groups, colour=colour) for (name, colour), groups in accuracy.items()]
    panels = [
        Panel(f"PGD, L∞ {255 * shown:.3g}/255", "attack steps K", "accuracy [%]", by_step[shown]),
        Panel("PGD, K = 10", "ε (L∞)", "accuracy [%]", over_epsilon),
    ]
    return Drawing(dataset, partial(lines, panels, same_scale=True))


@sweep_figure
def accuracy_over_seconds(dataset: str, jobs: list[Job]) -> Drawing | None:
    """What a model keeps under attack against the seconds of its training (tuning left out), mean over seeds."""
    attacks: dict[str, dict[tuple[str, str | None], list[tuple[float, float]]]] = {}
    for job in jobs:
        if job.labels["attack"] != "none" and job.metrics.get("train_seconds", 0) > 0:
            point = job.metrics["train_seconds"], job.bracket[1]
            attacks.setdefault(job.column, defaultdict(list))[job.model, job.colour].append(point)
    panels = [
        Panel(attack, "training [s]", "attacked accuracy [%]", _points(own), log_x=True)
        for attack, own in attacks.items()
        if len(own) > 2
    ]
    return Drawing(f"{dataset}: accuracy under attack and its price", partial(lines, panels)) if panels else None


def _points(models: Mapping[tuple[str, str | None], list[tuple[float, float]]]) -> list[Line]:
    """A single point each: mean seconds, mean and spread of the accuracy."""
    return [
        Line.of_groups(name, {float(np.mean([s for s, _ in points])): [a for _, a in points]}, colour=colour)
        for (name, colour), points in models.items()
    ]


@sweep_figure
def accuracy(dataset: str, jobs: list[Job]) -> Drawing | None:
    """Certified and attacked accuracy of every model under every attack, mean over seeds."""
    values: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for job in jobs:
        low, high = job.bracket
        values[job.model][job.column].append((100 * (high if low is None else low), 100 * high))
    rows = {m: {a: tuple(np.mean(v, axis=0)) for a, v in cells.items()} for m, cells in values.items()}
    return Drawing(f"{dataset}: accuracy under attack", partial(bars, rows)) if rows else None


# -- squared error over iterations on logarithmic axes, and the slopes fitted to it ------------------------------------
_OWN, _OTHER = "squared_error", "squared_error_step_"
# Per step: the iterations t, and per seed the squared errors there.
Ladder = dict[float, tuple[np.ndarray, np.ndarray]]


@sweep_figure
def convergence(dataset: str, jobs: list[Job]) -> Drawing | None:
    """Squared error against the optimum over t, log-log, one panel per step rule, beside the theorem's slope -1."""
    ladders = ladders_of(jobs)
    return Drawing(f"{dataset}: distance to the optimum", partial(_draw_ladders, ladders)) if ladders else None


def ladders_of(jobs: list[Job]) -> dict[str, Ladder]:
    """The curves of every step rule, largest step first."""
    found: dict[str, dict[float, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for job in jobs:
        # Runs with a constant step bring the curves of a ladder of smaller ones.
        rule = "constant" if any(name.startswith(_OTHER) for name in job.curves) else "diminishing"
        for name, points in job.curves.items():
            if name.startswith(_OWN) and points:
                step = job.metrics.get("step", np.inf) if name == _OWN else float(name.removeprefix(_OTHER))
                found[rule][step].append(np.array(points, dtype=float))
    return {
        rule: {
            step: (many[0][:, 0], np.array([one[:, 1] for one in many])) for step, many in sorted(ladder.items())[::-1]
        }
        for rule, ladder in found.items()
    }


def fitted_slope(t: np.ndarray, values: np.ndarray, start: float) -> tuple[float, float]:
    """Slope and intercept of log(values) over log(t), by least squares from ``start`` on."""
    inside = (t >= start) & (values > 0)
    slope, level = np.polyfit(np.log(t[inside]), np.log(values[inside]), 1)
    return float(slope), float(level)


def best_curve(ladder: Ladder) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """t, the mean over seeds and the seeds of what the rule achieves, and its name.

    With several steps that is at each t the best of them: what choosing the step for the horizon achieves.
    """
    t, _ = next(iter(ladder.values()))
    seeds = min(len(errors) for _, errors in ladder.values())
    envelope = np.min([errors[:seeds] for _, errors in ladder.values()], axis=0)
    best = np.min([errors.mean(axis=0) for _, errors in ladder.values()], axis=0)
    return t, best, envelope, "lower envelope" if len(ladder) > 1 else "mean"


def slopes_csv(jobs: list[Job]) -> str:
    """The slopes of all curves as CSV; empty without curves."""
    rows = []
    for rule, ladder in ladders_of(jobs).items():
        t, best, seeds, name = best_curve(ladder)
        start = _start(t)
        spread = float(np.std([fitted_slope(t, one, start)[0] for one in seeds]))
        own = [(name, len(seeds), best, f"{spread:.4f}")]
        own += [(f"step {step:.4g}", len(errors), errors.mean(axis=0), "") for step, (_, errors) in ladder.items()]
        for curve, count, errors, deviation in own:
            slope, _ = fitted_slope(t, errors, start)
            rows.append(f"{rule},{curve},{count},{start:.0f},{t[-1]:.0f},{slope:.4f},{deviation}")
    return "\n".join(["rule,curve,seeds,from_t,to_t,slope,slope_std_over_seeds", *rows, ""]) if rows else ""


def _start(t: np.ndarray) -> float:
    return max(10.0, t[-1] / 50)


def _draw_ladders(ladders: dict[str, Ladder]) -> Figure:
    figure, row = panels_of(len(ladders), sharey=True, size=(4.2, 3.6))
    for axes, (rule, ladder) in zip(row, ladders.items()):
        for number, (step, (t, errors)) in enumerate(ladder.items()):
            label = f"step {step:.3g}" + (" / t" if rule == "diminishing" else "")
            axes.plot(t, errors.mean(axis=0), color=f"C{number}", linewidth=1.4, label=label)
            axes.fill_between(t, *np.quantile(errors, [0.1, 0.9], axis=0), color=f"C{number}", alpha=0.15, linewidth=0)
        t, best, _, name = best_curve(ladder)
        inside = t >= _start(t)
        slope, level = fitted_slope(t, best, _start(t))
        fitted, label = np.exp(level) * t[inside] ** slope, f"{rule}, {name}: slope {slope:.2f}"
        axes.plot(t[inside], fitted, "k--", linewidth=1.5, label=label)
        guide = best[inside][0] * t[inside][0] / t[inside]
        axes.plot(t[inside], guide, color="0.5", linestyle=":", linewidth=1.5, label="theorem: slope -1")
        axes.set(xscale="log", yscale="log", xlabel="iteration t", title=f"{rule} step")
        tidy(axes)
    row[0].set_ylabel("mean squared error of $f_t$ against $f_*$")
    legend_beside(figure)
    return figure
