"""Squared error over iterations on logarithmic axes, and the slopes fitted to it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.figures import _pyplot, _save

_OWN, _OTHER = "squared_error", "squared_error_step_"


def draw_convergence(dataset: str, jobs: list[Any], path: Path) -> Path:
    """One panel per step rule; writes the slopes beside the figure as CSV."""
    curves: dict[str, dict[float, list[np.ndarray]]] = {"diminishing": defaultdict(list), "constant": defaultdict(list)}
    steps: dict[str, np.ndarray] = {}
    for job in jobs:
        rule = "diminishing" if str(job.labels["model"]).startswith("adv_svm_d") else "constant"
        for name, points in job.curves.items():
            if not name.startswith(_OWN) or not points:
                continue
            step = job.metrics.get("step", np.inf) if name == _OWN else float(name.removeprefix(_OTHER))
            steps[rule] = np.array([t for t, _ in points], dtype=float)
            curves[rule][step].append(np.array([value for _, value in points]))
    plt = _pyplot()
    figure, row = plt.subplots(1, 2, figsize=(10.5, 4.4), sharey=True)
    table = ["rule,curve,seeds,from_t,to_t,slope,slope_std_over_seeds"]
    for axes, (rule, by_step) in zip(row, curves.items()):
        if by_step:
            table += _panel(axes, rule, steps[rule], by_step)
        axes.set(xscale="log", yscale="log", xlabel="iteration t", title=f"{rule} step")
    row[0].set_ylabel("mean squared error of $f_t$ against $f_*$")
    figure.suptitle(f"{dataset}: distance to the optimum")
    path.with_suffix(".csv").write_text("\n".join(table) + "\n")
    return _save(figure, path)


def _panel(axes: Any, rule: str, t: np.ndarray, by_step: dict[float, list[np.ndarray]]) -> list[str]:
    rows = []
    tables = {step: np.array(series) for step, series in sorted(by_step.items(), reverse=True)}
    for number, (step, table) in enumerate(tables.items()):
        mean = table.mean(axis=0)
        label = f"step {step:.3g}" if rule == "constant" else f"step {step:.3g} / t"
        axes.plot(t, mean, color=f"C{number}", linewidth=1.4, label=label)
        low, high = np.quantile(table, [0.1, 0.9], axis=0)
        axes.fill_between(t, low, high, color=f"C{number}", alpha=0.15, linewidth=0)
    if rule == "constant":
        # At each t the best of the ladder: what choosing the step for the horizon achieves.
        seeds = min(len(table) for table in tables.values())
        envelope = np.min([table[:seeds] for table in tables.values()], axis=0)
        best = np.min([table.mean(axis=0) for table in tables.values()], axis=0)
        name = "lower envelope"
    else:
        envelope = next(iter(tables.values()))
        best, name = envelope.mean(axis=0), "mean"
    start = max(10.0, t[-1] / 50)
    slope, level = fitted_slope(t, best, start)
    spread = float(np.std([fitted_slope(t, series, start)[0] for series in envelope]))
    inside = t >= start
    axes.plot(t[inside], np.exp(level) * t[inside] ** slope, "k--", linewidth=1.5, label=f"{name}: slope {slope:.2f}")
    guide = best[inside][0] * (t[inside] / t[inside][0]) ** -1.0
    axes.plot(t[inside], guide, color="0.5", linestyle=":", linewidth=1.5, label="theorem: slope -1")
    axes.legend(fontsize=8)
    rows.append(f"{rule},{name},{len(envelope)},{start:.0f},{t[-1]:.0f},{slope:.4f},{spread:.4f}")
    for step, table in tables.items():
        one, _ = fitted_slope(t, table.mean(axis=0), start)
        rows.append(f"{rule},step {step:.4g},{len(table)},{start:.0f},{t[-1]:.0f},{one:.4f},")
    return rows


def fitted_slope(t: np.ndarray, values: np.ndarray, start: float) -> tuple[float, float]:
    """Slope and intercept of log(values) over log(t), by least squares from ``start`` on."""
    inside = (t >= start) & (values > 0)
    slope, level = np.polyfit(np.log(t[inside]), np.log(values[inside]), 1)
    return float(slope), float(level)
