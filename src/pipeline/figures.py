"""The figures of one run and of a sweep, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Points = Sequence[tuple[int, float]]

_LABELS = {
    "test_error": "clean test error",
    "adversarial_test_error": "error on the attacked examples",
    "robust_accuracy_by_step": "robust accuracy",
}


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(context="notebook", style="whitegrid", palette="colorblind")
    return plt


def _save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    _pyplot().close(figure)
    return path


def curves(series: Mapping[str, Points], path: Path, *, title: str, xlabel: str, ylabel: str) -> Path:
    """Lines over an integer axis, one per named series."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    for name, points in series.items():
        steps, values = zip(*points)
        axes.plot(
            steps, values, marker="o" if len(points) <= 40 else None, markersize=3.5, label=_LABELS.get(name, name)
        )
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.set_ylim(bottom=0)
    axes.legend()
    return _save(figure, path)


def heat_map(table: Mapping[str, Sequence[Any]], path: Path, *, metric: str, title: str) -> Path:
    """Cross-validated score over C × γ (the step size); the best cell is framed."""
    import seaborn as sns

    plt = _pyplot()
    Cs, steps = sorted(set(table["C"])), sorted(set(table.get("step", [0.0])))
    grid = np.full((len(steps), len(Cs)), np.nan)
    for C, step, value in zip(table["C"], table.get("step", [0.0] * len(table["C"])), table[metric]):
        cell = steps.index(step), Cs.index(C)
        # With several widths a cell shows the best of them.
        grid[cell] = np.nanmax([grid[cell], value]) if not np.isnan(grid[cell]) else value
    figure, axes = plt.subplots(figsize=(1.6 + 0.8 * len(Cs), 1.7 + 0.55 * len(steps)))
    sns.heatmap(
        100 * grid,
        annot=True,
        fmt=".1f",
        cmap="viridis",
        ax=axes,
        xticklabels=[_power(C) for C in Cs],
        yticklabels=[_power(step) for step in steps],
        cbar_kws={"label": f"{metric.replace('_', ' ')} [%]"},
    )
    row, column = np.unravel_index(np.nanargmax(grid), grid.shape)
    axes.add_patch(plt.Rectangle((column, row), 1, 1, fill=False, edgecolor="red", linewidth=2.5))
    axes.set(title=title, xlabel="C", ylabel="γ (step size)" if "step" in table else "")
    axes.invert_yaxis()
    return _save(figure, path)


def _power(value: float) -> str:
    exponent = np.log2(value) if value > 0 else np.nan
    return f"$2^{{{exponent:.0f}}}$" if float(exponent).is_integer() else f"{value:.3g}"


def gallery(
    clean: np.ndarray,
    adversarial: np.ndarray,
    captions: Sequence[str],
    image_shape: Sequence[int],
    path: Path,
    *,
    title: str,
) -> Path:
    """Rows of clean image, adversarial image and their difference (scaled to its own largest value)."""
    plt = _pyplot()
    count = len(clean)
    figure, axes = plt.subplots(3, count, figsize=(1.35 * count + 0.6, 4.9), squeeze=False)
    for column in range(count):
        difference = adversarial[column] - clean[column]
        scale = float(np.abs(difference).max()) or 1.0
        for row, image in enumerate((clean[column], adversarial[column], 0.5 + 0.5 * difference / scale)):
            axes[row, column].imshow(as_image(image, image_shape), cmap="gray" if row < 2 else "RdBu", vmin=0, vmax=1)
            axes[row, column].set(xticks=[], yticks=[])
            axes[row, column].grid(False)
        axes[0, column].set_title(captions[column], fontsize=8)
        axes[2, column].set_xlabel(f"max {scale:.3f}", fontsize=8)
    for row, name in enumerate(("clean", "adversarial", "difference")):
        axes[row, 0].set_ylabel(name)
    figure.suptitle(title)
    return _save(figure, path)


def as_image(row: np.ndarray, image_shape: Sequence[int]) -> np.ndarray:
    """A row of pixels as something ``imshow`` takes; channel-first colour images are turned around."""
    image = np.clip(np.asarray(row, dtype=float), 0, 1)
    if len(image_shape) == 1:
        return image.reshape(1, -1)
    image = image.reshape(image_shape)
    return np.moveaxis(image, 0, -1) if image.ndim == 3 and image.shape[0] == 3 else image


def bracket(
    radii: np.ndarray, distances: Mapping[str, np.ndarray], path: Path, *, title: str, mark: float | None = None
) -> Path:
    """Certified accuracy (a lower bound) and attacked accuracy (an upper bound) over the L2 radius.

    ``radii`` are certified radii (0 for misclassified points); each array of ``distances`` holds, per example, the L2
    distance of the nearest adversarial point known (0 if it was wrong before, infinity if it stood). ``mark`` is a
    radius worth a line.
    """
    plt = _pyplot()
    known = np.concatenate([d[np.isfinite(d)] for d in distances.values()] + [radii[np.isfinite(radii)]])
    edge = max(0.1, 1.05 * float(known.max(initial=0.0)), 1.05 * (mark or 0.0))
    grid = np.linspace(0, edge, 400)
    certified = np.array([np.mean((radii > 0) & (radii >= r)) for r in grid])
    accuracy = {name: np.array([np.mean(values > r) for r in grid]) for name, values in distances.items()}
    upper = np.min([np.ones_like(grid), *accuracy.values()], axis=0)
    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    unknown = 100 * np.maximum(upper, certified)
    axes.fill_between(grid, 100 * certified, unknown, alpha=0.15, color="tab:gray", linewidth=0, label="unknown")
    for (name, values), style in zip(accuracy.items(), ("-", "--", ":", "-.") * len(accuracy)):
        axes.plot(grid, 100 * values, color="tab:red", linestyle=style, linewidth=1.6, label=f"attacked: {name}")
    label = f"certified ({len(radii)} points)"
    axes.plot(grid, 100 * certified, color="tab:green", linewidth=2, label=label)
    if mark is not None:
        axes.axvline(mark, color="0.4", linewidth=0.8, linestyle=":")
        axes.annotate(
            "L2 cap",
            (mark, 0),
            xycoords=("data", "axes fraction"),
            xytext=(3, 4),
            textcoords="offset points",
            fontsize=8,
            color="0.4",
        )
    axes.set(title=title, xlabel="L2 radius", ylabel="accuracy [%]", ylim=(0, 101), xlim=(0, edge))
    axes.legend(fontsize=8)
    return _save(figure, path)


def bars(rows: Mapping[str, Mapping[str, float]], path: Path, *, title: str, ylabel: str) -> Path:
    """Grouped bars: one group per row (model), one bar per column (attack)."""
    import pandas as pd
    import seaborn as sns

    plt = _pyplot()
    frame = pd.DataFrame(
        [
            {"model": row, "attack": column, "value": value}
            for row, cells in rows.items()
            for column, value in cells.items()
        ]
    )
    figure, axes = plt.subplots(figsize=(max(5.0, 1.6 * len(rows) + 2.5), 4.2))
    sns.barplot(frame, x="model", y="value", hue="attack", ax=axes)
    axes.set(title=title, xlabel="", ylabel=ylabel, ylim=(0, 101))
    sns.move_legend(axes, "center left", bbox_to_anchor=(1, 0.5), title="")
    return _save(figure, path)
