"""Figures over PGD steps K, the perturbation ε, training iterations and the training radius; ours and the paper's."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.report.certified import Point
from pipeline.report.claims import attacked_metric
from pipeline.report.content import PAPER_COLUMNS, UNBOUNDED, Cell, Row, Section, stat
from pipeline.report.drawing import COLOURS, CYCLE, Figure, draw, tidy
from pipeline.report.paper import ATTACKS
from pipeline.report.tracked import Reader
from pipeline.report.variants import PAPER_EPSILON

_PAPER_STEPS = 10
Band = tuple[np.ndarray, np.ndarray, np.ndarray]


def against_paper(section: Section, folder: Path) -> Figure | None:
    """Our accuracy and the paper's, per attack and model."""
    points: list[tuple[int, Row, float, float, float | None]] = []
    for place, attack in enumerate(PAPER_COLUMNS):
        for row in section.paper_rows:
            cell = row.cell(attack)
            value = cell.stat(attacked_metric(attack)) if cell else None
            if attack == "none":
                value = stat(row.shared("clean_accuracy").values())
            paper = row.published(section.dataset, attack)
            if value is not None:
                points.append((place, row, 100 * value.mean, 100 * value.std, paper.mean if paper else None))
    if not points:
        return None

    def paint(plt: Any) -> Any:
        figure, axes = plt.subplots(figsize=(7.2, 3.7))
        rows = section.paper_rows
        for place, row, mean, std, paper in points:
            x = place + 0.16 * (rows.index(row) - (len(rows) - 1) / 2)
            colour = COLOURS.get(row.key.model, CYCLE[-1])
            axes.errorbar(x, mean, yerr=std, fmt="o", color=colour, markersize=6, capsize=2)
            if paper is not None:
                axes.plot(x, paper, marker="D", color=colour, fillstyle="none", markersize=6, linestyle="none")
        for row in rows:
            axes.plot([], [], "o", color=COLOURS.get(row.key.model, CYCLE[-1]), label=row.label)
        if any(paper is not None for *_, paper in points):
            axes.plot([], [], "D", fillstyle="none", color="gray", label="the paper")
        labels = [ATTACKS[a] + (f"\nL2 ≤ {section.l2_cap:g}" if a in UNBOUNDED else "") for a in PAPER_COLUMNS]
        axes.set(ylabel="accuracy [%]", xlim=(-0.5, len(PAPER_COLUMNS) - 0.5))
        axes.set_xticks(range(len(PAPER_COLUMNS)), labels)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        tidy(axes)
        return figure

    caption = (
        "Filled: ours, mean ± standard deviation over seeds. Hollow: the paper's numbers. C&W and ZOO: ours count only "
        f"examples within L2 {section.l2_cap:g}; the paper states no budget."
    )
    return draw(folder, f"{section.slug}-against-paper", "Accuracy under attack, ours and the paper's", caption, paint)


def over_steps(section: Section, folder: Path, reader: Reader) -> Figure | None:
    """Accuracy over the number of PGD steps K at ε = 8/255."""
    lines = {}
    for row in section.paper_rows:
        cells = [c for c in _pgd_cells(row) if abs((c.setting.number("epsilon") or 0) - PAPER_EPSILON) < 1e-9]
        longest = max(cells, key=lambda c: c.setting.number("steps") or 0, default=None)
        band = _mean_curve(longest, "robust_accuracy_by_step", reader) if longest else None
        if band is not None and len(band[0]) > 1:
            lines[row.label] = (row.key.model, band)
    caption = "White-box PGD, L∞ ≤ 8/255, step ε/4; mean over seeds, band: ± one standard deviation. K = 0 is clean."
    id = f"{section.slug}-over-steps"
    return _lines(folder, id, "Accuracy over PGD steps K", caption, lines, "PGD steps K", "accuracy [%]")


def over_epsilon(section: Section, folder: Path, reader: Reader) -> Figure | None:
    """Accuracy over PGD's L∞ radius at K = 10 steps; longer runs are read off at their tenth step."""
    lines = {}
    for row in section.paper_rows:
        by_epsilon: dict[float, list[float]] = defaultdict(list)
        for cell in _pgd_cells(row):
            for run in cell.runs.values():
                curve = dict(reader.curve(run, "robust_accuracy_by_step"))
                steps = int(cell.setting.number("steps") or 0)
                if _PAPER_STEPS in curve or steps == _PAPER_STEPS:
                    value = curve.get(_PAPER_STEPS, run.metrics["robust_accuracy"])
                    by_epsilon[round(cell.setting.number("epsilon") or 0.0, 9)].append(value)
        clean = list(row.shared("clean_accuracy").values())
        if len(by_epsilon) > 1:
            by_epsilon[0.0] = clean
            x = np.array(sorted(by_epsilon))
            mean = np.array([np.mean(by_epsilon[e]) for e in x])
            lines[row.label] = (row.key.model, (255 * x, mean, np.array([np.std(by_epsilon[e]) for e in x])))
    caption = "White-box PGD, 10 steps of ε/4, all test points; mean over seeds, band: ± one standard deviation."
    id = f"{section.slug}-over-epsilon"
    label = "L∞ perturbation ε [1/255]"
    return _lines(folder, id, "Accuracy over the perturbation ε", caption, lines, label, "accuracy [%]")


def over_iterations(section: Section, folder: Path, reader: Reader) -> Figure | None:
    """Test error over training iterations under each attack."""
    panels: dict[str, dict[str, tuple[str, Band]]] = {}
    for attack in PAPER_COLUMNS[1:]:
        lines = {}
        for row in section.paper_rows:
            cell = row.cell(attack)
            band = _mean_curve(cell, "adversarial_test_error", reader) if cell else None
            if band is not None and len(band[0]) > 1:
                lines[row.label] = (row.key.model, band)
        if lines:
            panels[attack] = lines
    if not panels:
        return None

    def paint(plt: Any) -> Any:
        columns = min(2, len(panels))
        height = (len(panels) + columns - 1) // columns
        figure, grid = plt.subplots(height, columns, figsize=(3.7 * columns, 2.7 * height), squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (attack, lines) in zip(grid.flat, panels.items()):
            _paint_lines(axes, lines)
            axes.set(title=ATTACKS[attack], xlabel="iteration", ylabel="test error [%]", ylim=(0, None))
        grid.flat[0].legend(fontsize=8)
        return figure

    caption = (
        "Error of every iterate f_t on the examples that the attack made for the final model; mean over seeds, band: ± "
        "one standard deviation. C&W and ZOO are unbounded here: their error ends near 100 %."
    )
    title = "Test error over training iterations under attack"
    return draw(folder, f"{section.slug}-over-iterations", title, caption, paint)


def over_training_radius(dataset: str, points: list[Point], folder: Path) -> Figure | None:
    """Certified and attacked accuracy over ε for both ways of tuning, one panel per evaluation radius."""
    radii = sorted({p.radius for p in points})
    if not points or len({p.epsilon for p in points}) < 2:
        return None
    tunings = sorted({(p.model, p.tuning) for p in points})

    def paint(plt: Any) -> Any:
        figure, grid = plt.subplots(
            1, len(radii), figsize=(max(5.8, 3.9 * len(radii) + 0.4), 3.6), squeeze=False, sharey=True
        )
        for axes, radius in zip(grid.flat, radii):
            for colour, key in zip(CYCLE * 3, tunings):
                own = sorted(
                    (p for p in points if (p.model, p.tuning) == key and p.radius == radius), key=lambda p: p.epsilon
                )
                x = [p.epsilon for p in own]
                label = key[1] if len({m for m, _ in tunings}) == 1 else f"{key[0]}, {key[1]}"
                axes.plot(x, [100 * p.attacked.mean for p in own], "o-", color=colour, label=label)
                certified = [100 * p.certified.mean if p.certified else np.nan for p in own]
                axes.plot(x, certified, "s--", color=colour, fillstyle="none")
            axes.set(title=f"at L2 radius {radius:g}", xlabel="training radius ε (L2)")
            tidy(axes)
        grid.flat[0].plot([], [], "o-", color="gray", label="under PGD-L2")
        grid.flat[0].plot([], [], "s--", color="gray", fillstyle="none", label="certified")
        grid.flat[0].set_ylabel("accuracy [%]")
        grid.flat[0].legend(fontsize=8)
        return figure

    caption = "Solid: accuracy under PGD in the L2 ball (upper bound). Dashed: certified accuracy (lower bound)."
    title = "Certified and attacked accuracy over the training radius"
    return draw(folder, f"{dataset}-certified-tuning", title, caption, paint)


def _pgd_cells(row: Row) -> list[Cell]:
    """PGD in the L∞ ball with the paper's kind of step, whatever its length and radius."""
    return [
        cell
        for cell in row.cells
        if cell.setting.attack == "pgd"
        and cell.setting.get("norm", "linf") == "linf"
        and cell.setting.get("step_size", "None") == "None"
        and cell.setting.get("random_start", "False") == "False"
        and cell.setting.get("restarts", "1") == "1"
    ]


def _mean_curve(cell: Cell, name: str, reader: Reader) -> Band | None:
    """Mean and deviation over seeds at the steps that all seeds have."""
    curves = [dict(curve) for run in cell.runs.values() if (curve := reader.curve(run, name))]
    steps = sorted(set.intersection(*(set(c) for c in curves))) if curves else []
    if not steps:
        return None
    values = np.array([[curve[step] for step in steps] for curve in curves])
    return np.array(steps), values.mean(0), values.std(0)


def _lines(
    folder: Path, id: str, title: str, caption: str, lines: dict[str, tuple[str, Band]], xlabel: str, ylabel: str
) -> Figure | None:
    if not lines:
        return None

    def paint(plt: Any) -> Any:
        figure, axes = plt.subplots(figsize=(6.0, 3.6))
        _paint_lines(axes, lines)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.set_ylim(top=min(axes.get_ylim()[1], 100.5))
        axes.legend()
        return figure

    return draw(folder, id, title, caption, paint)


def _paint_lines(axes: Any, lines: dict[str, tuple[str, Band]]) -> None:
    for label, (model, (x, mean, std)) in lines.items():
        colour = COLOURS.get(model, CYCLE[-1])
        axes.plot(x, 100 * mean, marker="o" if len(x) <= 12 else None, markersize=4, color=colour, label=label)
        axes.fill_between(x, 100 * (mean - std), 100 * (mean + std), color=colour, alpha=0.18, linewidth=0)
    tidy(axes)
