"""Figures of one model each: certified-versus-attacked brackets, C × γ heat maps, adversarial images."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.figures import as_image
from pipeline.report.certified import certified_curve
from pipeline.report.content import UNBOUNDED, Row, Section
from pipeline.report.distortions import breaking_distances
from pipeline.report.drawing import Figure, draw, tidy
from pipeline.report.paper import ATTACKS
from pipeline.report.tracked import Reader, TrackedRun

_IMAGES = 6


def brackets(section: Section, folder: Path, reader: Reader) -> Figure | None:
    """Certified accuracy (proved) and attacked accuracy (found) over the L2 radius, one panel per model."""
    panels = [(row, *found) for row in section.paper_rows if (found := _bracket(row, reader)) is not None]
    if not panels:
        return None
    edge = max(0.2, max(float(np.quantile(d[np.isfinite(d)], 0.9)) for *_, ds in panels for d in ds.values()))

    def paint(plt: Any) -> Any:
        columns = min(2, len(panels))
        height = (len(panels) + columns - 1) // columns
        figure, grid = plt.subplots(height, columns, figsize=(3.8 * columns, 2.8 * height), squeeze=False, sharey=True)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        at = np.linspace(0, edge, 240)
        for axes, (row, radii, distances) in zip(grid.flat, panels):
            proved = 100 * certified_curve(radii, at)
            axes.plot(at, proved, color="#009e73", label="certified")
            lowest = np.full_like(at, 100.0)
            for colour, (attack, values) in zip(("#d55e00", "#0a84c6", "#e69f00"), distances.items()):
                found = 100 * np.array([np.mean(values > r) for r in at])
                axes.plot(at, found, "--", color=colour, label=f"under {ATTACKS.get(attack, attack)}")
                lowest = np.minimum(lowest, found)
            axes.fill_between(at, proved, np.maximum(lowest, proved), color="gray", alpha=0.18, linewidth=0)
            axes.set(title=row.label, xlabel="L2 radius", ylim=(0, 101), xlim=(0, edge))
            tidy(axes)
        for axes in grid[:, 0]:
            axes.set_ylabel("accuracy [%]")
        grid.flat[0].legend(fontsize=8, loc="lower left")
        return figure

    caption = (
        "The truth lies in the grey area: no perturbation within the radius breaks a certified point, "
        "and an attack did break as many as the dashed lines say. First seed; certified on all test points, attacks on "
        "the points they got."
    )
    return draw(folder, f"{section.slug}-brackets", "Certified against attacked accuracy", caption, paint)


def _bracket(row: Row, reader: Reader) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
    """Certified radii of the first seed, and the distances of the attacks that look for the shortest way out."""
    distances, radii = {}, None
    for attack in UNBOUNDED:
        cell = row.cell(attack)
        found = breaking_distances(cell.first, reader) if cell else None
        if cell is None or found is None or not np.isfinite(found).any():
            continue
        distances[attack] = found
        arrays = reader.arrays(cell.first, "certificates/radii.npz", ("radii",))
        radii = arrays["radii"] if arrays else radii
    return (radii, distances) if radii is not None and distances else None


def heat_maps(section: Section, folder: Path, reader: Reader) -> Figure | None:
    """The grid's cross-validated score over C × γ, one panel per model."""
    panels = [(row, *grid) for row in section.paper_rows if (grid := _grid(row, reader)) is not None]
    if not panels:
        return None

    def paint(plt: Any) -> Any:
        columns = min(2, len(panels))
        height = (len(panels) + columns - 1) // columns
        figure, axis = plt.subplots(height, columns, figsize=(4.3 * columns, 3.3 * height), squeeze=False)
        for axes in axis.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (row, Cs, steps, scores, metric) in zip(axis.flat, panels):
            image = axes.imshow(scores, cmap="viridis", origin="lower", aspect="auto")
            best = np.unravel_index(np.nanargmax(scores), scores.shape)
            axes.add_patch(
                plt.Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, fill=False, edgecolor="#d55e00", linewidth=2.5)
            )
            middle = (np.nanmin(scores) + np.nanmax(scores)) / 2
            for i, j in np.ndindex(*scores.shape):
                if not np.isnan(scores[i, j]):
                    colour = "black" if scores[i, j] > middle else "white"
                    axes.text(j, i, f"{scores[i, j]:.1f}", ha="center", va="center", fontsize=6.5, color=colour)
            axes.set_xticks(range(len(Cs)), [_power(C) for C in Cs])
            axes.set_yticks(range(len(steps)), [_power(s) if s else "" for s in steps])
            axes.set(title=f"{row.label}\n{metric} [%]", xlabel="C", ylabel="γ (step size)" if any(steps) else "")
            figure.colorbar(image, ax=axes, fraction=0.046)
        return figure

    caption = "5-fold cross-validation on the training rows; the frame marks the chosen setting."
    return draw(folder, f"{section.slug}-grid", "The grid over C and γ", caption, paint)


def _grid(row: Row, reader: Reader) -> tuple[list[float], list[float], np.ndarray, str] | None:
    run = min(row.runs, key=lambda r: r.seed)
    file = reader.file(run, "tuning/cv_results.csv")
    if file is None:
        return None
    with file.open() as stream:
        table = list(csv.DictReader(stream))
    metric = f"mean_{run.params.get('tune.metric', 'accuracy')}"
    if not table or "C" not in table[0]:
        return None
    metric = metric if metric in table[0] else "mean_accuracy"
    Cs = sorted({float(r["C"]) for r in table})
    steps = sorted({float(r.get("step") or 0.0) for r in table})
    scores = np.full((len(steps), len(Cs)), np.nan)
    for r in table:
        value = float(r[metric]) if r[metric] else math.nan
        cell = steps.index(float(r.get("step") or 0.0)), Cs.index(float(r["C"]))
        # With several widths a cell shows the best of them.
        scores[cell] = np.fmax(scores[cell], 100 * value)
    if np.isnan(scores).all():
        return None
    return Cs, steps, scores, metric.removeprefix("mean_").replace("_", " ")


def _power(value: float) -> str:
    exponent = math.log2(value)
    return f"$2^{{{exponent:.0f}}}$" if exponent.is_integer() else f"{value:.3g}"


def gallery(section: Section, folder: Path, reader: Reader) -> Figure | None:
    """Clean images and what each attack made of them, for the strongest of the paper's models at hand."""
    order = ("adv_svm_c", "adv_svm_d", "natural", "svc", "adv_linear_svm")
    rows = [row for model in order if (row := section.row(model)) is not None and _attacked_runs(row)]
    clean = _clean_images(section, reader)
    if not rows or clean is None:
        return None
    row = rows[0]
    lines = []
    for attack, run in _attacked_runs(row).items():
        names = ("examples", "success", "distortion_l2", "distortion_linf", "test_rows")
        arrays = reader.arrays(run, "adversarial/examples.npz", names)
        if arrays is not None:
            lines.append((attack, arrays))
    pixels = clean[1].shape[1]
    shape = _image_shape(pixels)
    common = set(clean[0]).intersection(*(set(arrays["test_rows"]) for _, arrays in lines)) if lines else set()
    chosen = _varied(sorted(common), lines)
    if not chosen or shape is None:
        return None

    def paint(plt: Any) -> Any:
        height = 1 + len(lines)
        figure, grid = plt.subplots(
            height, len(chosen), figsize=(1.2 * len(chosen) + 0.7, 1.42 * height), squeeze=False
        )
        for axes in grid.flat:
            axes.set(xticks=[], yticks=[])
        for column, test_row in enumerate(chosen):
            image = clean[1][list(clean[0]).index(test_row)]
            grid[0, column].imshow(as_image(image, shape), cmap="gray", vmin=0, vmax=1)
            for axes, (_, arrays) in zip(grid[1:, column], lines):
                place = int(np.flatnonzero(arrays["test_rows"] == test_row)[0])
                axes.imshow(as_image(arrays["examples"][place], shape), cmap="gray", vmin=0, vmax=1)
                broken = bool(arrays["success"][place])
                for spine in axes.spines.values():
                    spine.set(visible=True, color="#d55e00" if broken else "#009e73", linewidth=1.8)
                axes.set_xlabel(f"L2 {arrays['distortion_l2'][place]:.2f}", fontsize=7, labelpad=1)
        grid[0, 0].set_ylabel("clean")
        for axes, (attack, _) in zip(grid[1:, 0], lines):
            axes.set_ylabel(ATTACKS.get(attack, attack))
        return figure

    caption = f"{row.label}, first seed. Orange frame: the label changed; green: it did not. Below: L2 distortion."
    return draw(folder, f"{section.slug}-gallery", "Adversarial images", caption, paint)


def _attacked_runs(row: Row) -> dict[str, TrackedRun]:
    cells = {attack: row.cell(attack) for attack in ("fgsm", "pgd", *UNBOUNDED)}
    return {attack: cell.first for attack, cell in cells.items() if cell is not None}


def _clean_images(section: Section, reader: Reader) -> tuple[np.ndarray, np.ndarray] | None:
    """Test rows and their pixels: what a run without an attack keeps as its examples."""
    for row in section.rows:
        cell = row.cell("none")
        arrays = reader.arrays(cell.first, "adversarial/examples.npz", ("examples", "test_rows")) if cell else None
        if arrays is not None:
            return arrays["test_rows"], arrays["examples"]
    return None


def _varied(common: list[int], lines: list[tuple[str, dict[str, np.ndarray]]]) -> list[int]:
    """Test points spread over the set, those first that the last attack really had to move."""
    if not common or not lines:
        return []
    arrays = lines[-1][1]
    moved = {int(r) for r, d in zip(arrays["test_rows"], arrays["distortion_l2"]) if d > 0}
    preferred = [r for r in common if int(r) in moved] or common
    places = np.linspace(0, len(preferred) - 1, min(_IMAGES, len(preferred))).astype(int)
    return [int(preferred[p]) for p in places]


def _image_shape(pixels: int) -> tuple[int, ...] | None:
    """Grey or channel-first colour squares; other rows are no images."""
    for channels in (1, 3):
        side = math.isqrt(pixels // channels)
        if channels * side * side == pixels:
            return (side, side) if channels == 1 else (3, side, side)
    return None
