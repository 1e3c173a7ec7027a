"""Squared error over iterations on logarithmic axes, and the slopes fitted to it."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.figures.of_sweeps import Job
from pipeline.figures.registry import sweep_figure
from pipeline.figures.style import Drawing, legend_beside, panels_of, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OWN, _OTHER = "squared_error", "squared_error_step_"
# Per step: the iterations t, and per seed the squared errors there.
Ladder = dict[float, tuple[np.ndarray, np.ndarray]]


@sweep_figure
def convergence(dataset: str, jobs: list[Job]) -> Drawing | None:
    """Squared error against the optimum over t, log-log, one panel per step rule, beside the theorem's slope -1."""
    ladders = ladders_of(jobs)
    if not ladders:
        return None
    return Drawing(f"{dataset}: distance to the optimum", partial(_draw, ladders))


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


def _draw(ladders: dict[str, Ladder]) -> Figure:
    figure, row = panels_of(len(ladders), sharey=True, size=(4.2, 3.6))
    for axes, (rule, ladder) in zip(row, ladders.items()):
        for number, (step, (t, errors)) in enumerate(ladder.items()):
            label = f"step {step:.3g}" + (" / t" if rule == "diminishing" else "")
            axes.plot(t, errors.mean(axis=0), color=f"C{number}", linewidth=1.4, label=label)
            axes.fill_between(t, *np.quantile(errors, [0.1, 0.9], axis=0), color=f"C{number}", alpha=0.15, linewidth=0)
        t, best, _, name = best_curve(ladder)
        inside = t >= _start(t)
        slope, level = fitted_slope(t, best, _start(t))
        axes.plot(
            t[inside],
            np.exp(level) * t[inside] ** slope,
            "k--",
            linewidth=1.5,
            label=f"{rule}, {name}: slope {slope:.2f}",
        )
        guide = best[inside][0] * t[inside][0] / t[inside]
        axes.plot(t[inside], guide, color="0.5", linestyle=":", linewidth=1.5, label="theorem: slope -1")
        axes.set(xscale="log", yscale="log", xlabel="iteration t", title=f"{rule} step")
        tidy(axes)
    row[0].set_ylabel("mean squared error of $f_t$ against $f_*$")
    legend_beside(figure)
    return figure
