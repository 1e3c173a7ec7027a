"""The figures of a report: ours beside the paper's, over steps, radii and iterations, what is known, and examples."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.figures.charts import Grid, Known, Line, Panel, at_least, bracket, heat_map, lines
from pipeline.figures.gallery import FeatureChanges, Tile, feature_changes, picture_shape
from pipeline.figures.gallery import gallery as draw_gallery
from pipeline.figures.registry import dataset_figure, report_figure
from pipeline.figures.style import COLOURS, CYCLE, GREY, Drawing, legend_beside, panels_of, tidy
from pipeline.labels import attack_name
from pipeline.report.content import PAPER_COLUMNS, PAPER_EPSILON, Cell, Row, Section
from pipeline.report.tables import certified_points
from pipeline.report.tracked import Reader
from pipeline.tables import Stat

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAPER_STEPS, _IMAGES, _ROWS = 10, 6, 4
_BAND = "mean over seeds, band: ± one standard deviation."


@report_figure
def against_paper(section: Section, reader: Reader) -> Drawing | None:
    """Our accuracy and the paper's, per attack and model."""
    ours: dict[Row, list[tuple[int, float, float]]] = defaultdict(list)
    theirs: dict[Row, list[tuple[int, float]]] = defaultdict(list)
    for place, attack in enumerate(PAPER_COLUMNS):
        for row in section.paper_rows:
            cell = row.cell(attack)
            value = cell.stat(cell.setting.metric) if cell else None
            if attack == "none":
                value = Stat.of(row.shared("clean_accuracy").values())
            if value is not None:
                ours[row].append((place, 100 * value.mean, 100 * value.std))
                if paper := row.published(section.dataset, attack):
                    theirs[row].append((place, paper.mean))
    if not theirs:
        return None
    cells = [(attack, row.cell(attack)) for attack in PAPER_COLUMNS for row in section.paper_rows]
    capped = {attack for attack, cell in cells if cell and not cell.setting.bounded}
    labels = [attack_name(a) + (f"\nL2 ≤ {section.l2_cap:g}" if a in capped else "") for a in PAPER_COLUMNS]

    def paint() -> Figure:
        figure, (axes,) = panels_of(1, size=(5.4, 3.3))
        for number, (row, points) in enumerate(ours.items()):
            shift = 0.16 * (number - (len(ours) - 1) / 2)
            colour = COLOURS.get(row.key.model, CYCLE[-1])
            place, mean, std = np.array(points).T
            band = [np.minimum(std, mean), np.minimum(std, 100 - mean)]
            axes.errorbar(place + shift, mean, band, fmt="o", color=colour, markersize=6, capsize=2, label=row.label)
            for at, value in theirs[row]:
                axes.plot(at + shift, value, "D", color=colour, fillstyle="none", markersize=6)
        axes.plot([], [], "D", fillstyle="none", color="gray", label="the paper")
        axes.set(ylabel="accuracy [%]", xlim=(-0.5, len(PAPER_COLUMNS) - 0.5))
        axes.set_ylim(max(0.0, axes.get_ylim()[0]), 100)
        axes.set_xticks(range(len(PAPER_COLUMNS)), labels)
        tidy(axes)
        legend_beside(figure)
        return figure

    caption = (
        "Filled: ours, mean ± standard deviation over seeds. Hollow: the paper's numbers. C&W and ZOO: ours count only "
        f"examples within L2 {section.l2_cap:g}; the paper states no budget."
    )
    return Drawing("Accuracy under attack, ours and the paper's", paint, caption)


@report_figure
def over_steps(section: Section, reader: Reader) -> Drawing | None:
    """Accuracy over the number of PGD steps K at ε = 8/255."""
    drawn = []
    for row in section.shown_rows:
        cells = [c for c in _pgd_cells(row) if abs((c.setting.number("epsilon") or 0) - PAPER_EPSILON) < 1e-9]
        longest = max(cells, key=lambda c: c.setting.number("steps") or 0, default=None)
        drawn += _mean_curve(row, longest, "robust_accuracy_by_step", reader)
    caption = f"White-box PGD, L∞ ≤ 8/255, step ε/4; {_BAND} K = 0 is clean."
    return _single("Accuracy over PGD steps K", caption, drawn, "PGD steps K")


@report_figure
def over_epsilon(section: Section, reader: Reader) -> Drawing | None:
    """Accuracy over PGD's L∞ radius at K = 10 steps; longer runs are read off at their tenth step."""
    drawn = []
    for row in section.shown_rows:
        by_epsilon: dict[float, list[float]] = defaultdict(list)
        for cell in _pgd_cells(row):
            for run in cell.runs.values():
                curve = dict(reader.curve(run, "robust_accuracy_by_step"))
                if _PAPER_STEPS in curve or cell.setting.number("steps") == _PAPER_STEPS:
                    value = curve.get(_PAPER_STEPS, run.metrics["robust_accuracy"])
                    by_epsilon[round(255 * (cell.setting.number("epsilon") or 0.0), 6)].append(value)
        if len(by_epsilon) > 1:
            by_epsilon[0.0] = list(row.shared("clean_accuracy").values())
            drawn.append(Line.of_groups(row.label, by_epsilon, colour=COLOURS.get(row.key.model)))
    caption = f"White-box PGD, 10 steps of ε/4, all test points; {_BAND}"
    return _single("Accuracy over the perturbation ε", caption, drawn, "L∞ perturbation ε [1/255]")


@report_figure
def over_iterations(section: Section, reader: Reader) -> Drawing | None:
    """Test error over training iterations under each attack."""
    panels = []
    for attack, cells in section.columns().items():
        rows = [_mean_curve(row, cell, "adversarial_test_error", reader) for row, cell in cells.items()]
        if any(rows):
            setting = next(iter(cells.values())).setting
            title = attack if setting.bounded else f"{attack_name(setting.attack)}, no bound"
            panels.append(Panel(title, "iteration", "test error [%]", [*chain(*rows)], from_zero=True))
    caption = (
        f"Error of every iterate f_t on the examples that the attack made for the final model; {_BAND} C&W and ZOO are "
        "unbounded here: their error ends near 100 %."
    )
    title = "Test error over training iterations under attack"
    return Drawing(title, partial(lines, panels), caption) if panels else None


@report_figure
def brackets(section: Section, reader: Reader) -> Drawing | None:
    """Certified, undecided and broken over the L2 radius, one panel per model."""
    panels = [panel for row in section.shown_rows if (panel := _known(row, section.l2_cap, reader)) is not None]
    caption = (
        "No perturbation within the radius breaks a certified point; an attack did break the points above the orange "
        "line; the truth about the grey ones is not known. First seed, the same points for both; a step of the green "
        "area is a radius at which the table's own certificate was computed, which is stronger than the general one."
    )
    return Drawing("What is known over the radius", partial(bracket, panels), caption) if panels else None


@report_figure
def grid(section: Section, reader: Reader) -> Drawing | None:
    """The grid's cross-validated score over C × step, one panel per model."""
    panels = [panel for row in section.shown_rows if (panel := _grid(row, reader)) is not None]
    caption = "Cross-validation on the training rows; the frame marks the chosen setting."
    return Drawing("The grid over C and the step size", partial(heat_map, panels), caption) if panels else None


@report_figure
def gallery(section: Section, reader: Reader) -> Drawing | None:
    """Clean images and what each attack made of them, for the strongest of the paper's models; features by name."""
    order = ("adv_svm_c", "adv_svm_d", "natural", "svc", "adv_linear_svm")
    rows = sorted(section.shown_rows, key=lambda r: order.index(r.key.model) if r.key.model in order else len(order))
    cells = {label: cells[rows[0]] for label, cells in section.columns().items() if rows and rows[0] in cells}
    names = ("examples", "success", "distortion_l2", "test_rows")
    stored = {a: reader.arrays(cell.first, "adversarial/examples.npz", names) for a, cell in cells.items()}
    found = {a: arrays for a, arrays in stored.items() if arrays is not None}
    shape = _image_shape(rows[0].runs[0].profile if rows else {}, section.pixels or 0)
    if found and shape is None:
        return _feature_gallery(rows[0].label, cells, reader)
    if not found or shape is None:
        return None
    clean = _clean_images(section, reader)
    common = set.intersection(*(set(map(int, arrays["test_rows"])) for arrays in found.values()))
    chosen = _varied(sorted(common & set(clean) if clean else common), list(found.values())[-1])
    if not chosen:
        return None
    shown = {"clean": [Tile(clean[row]) for row in chosen]} if clean else {}
    for attack, arrays in found.items():
        places = [int(np.flatnonzero(arrays["test_rows"] == row)[0]) for row in chosen]
        shown[attack.split(",")[0].replace(" ", "\n", 1)] = [
            Tile(arrays["examples"][p], f"L2 {arrays['distortion_l2'][p]:.2f}", bool(arrays["success"][p]))
            for p in places
        ]
    caption = f"{rows[0].label}, first seed. Orange frame: the label changed; green: it did not. Below: L2 distortion."
    return Drawing("Adversarial images", partial(draw_gallery, shown, shape), caption)


def _feature_gallery(model: str, cells: Mapping[str, Cell], reader: Reader) -> Drawing | None:
    """Of rows that are no images: the features that the first attack with a record of them changed most."""
    names = [field.name for field in dataclasses.fields(FeatureChanges)]
    for attack, cell in cells.items():
        arrays = reader.arrays(cell.first, "adversarial/changes.npz", names)
        if arrays is not None:
            caption = (
                f"{model} under {attack}, first seed: grey the value of the file, orange the attacker's; largest first."
            )
            changes = FeatureChanges(**arrays).some(_ROWS)
            return Drawing("What the attacker changed", partial(feature_changes, changes), caption)
    return None


@dataset_figure
def certified_tuning(sections: list[Section], reader: Reader) -> Drawing | None:
    """Certified and attacked accuracy over ε for both ways of tuning, one panel per evaluation radius."""
    points = certified_points(sections, reader)
    if len({p.epsilon for p in points}) < 2:
        return None
    tunings = sorted({(p.model, p.tuning) for p in points})
    one_model = len({model for model, _ in tunings}) == 1
    panels = []
    for radius in sorted({p.radius for p in points}):
        drawn = []
        for colour, key in zip(CYCLE * 3, tunings):
            own = [p for p in points if (p.model, p.tuning) == key and p.radius == radius]
            label = key[1] if one_model else ", ".join(key)
            attacked = {p.epsilon: [p.attacked.mean] for p in own}
            certified = {p.epsilon: [p.certified.mean] for p in own if p.certified}
            drawn.append(Line.of_groups(f"{label}: under PGD-L2", attacked, colour=colour))
            drawn.append(Line.of_groups(f"{label}: certified", certified, colour=colour, style="--"))
        drawn = [line for line in drawn if len(line.x)]
        panels.append(Panel(f"at L2 radius {radius:g}", "training radius ε (L2)", "accuracy [%]", drawn))
    caption = "Solid: accuracy under PGD in the L2 ball (upper bound). Dashed: certified accuracy (lower bound)."
    title = "Certified and attacked accuracy over the training radius"
    return Drawing(title, partial(lines, panels, same_scale=True), caption)


def _single(title: str, caption: str, drawn: list[Line], xlabel: str) -> Drawing | None:
    return Drawing(title, partial(lines, [Panel("", xlabel, "accuracy [%]", drawn)]), caption) if drawn else None


def _pgd_cells(row: Row) -> list[Cell]:
    """PGD in the L∞ ball with the paper's kind of step, whatever its length and radius."""
    return [cell for cell in row.cells if cell.setting.attack == "pgd" and cell.setting.steps_like_the_papers]


def _mean_curve(row: Row, cell: Cell | None, name: str, reader: Reader) -> list[Line]:
    """The line over seeds of one row, or nothing."""
    curves = [reader.curve(run, name) for run in cell.runs.values()] if cell else []
    line = Line.of_curves(row.label, curves, colour=COLOURS.get(row.key.model, GREY))
    return [line] if line is not None and len(line.x) > 1 else []


def _known(row: Row, cap: float, reader: Reader) -> Known | None:
    """Certificates and nearest adversarial points of the first seed, from all attacks it met, on the same points."""
    radii = np.zeros(0)
    nearest: dict[int, float] = {}
    for cell in row.cells:
        path, names = "certificates/radii.npz", ("radii", "bracket_rows", "bracket_nearest")
        stored = reader.arrays(cell.first, path, names)
        if stored is None:
            continue
        radii = np.fmax(radii, stored["radii"]) if radii.size else stored["radii"]
        for place, distance in zip(stored["bracket_rows"], stored["bracket_nearest"]):
            nearest[int(place)] = min(float(distance), nearest.get(int(place), np.inf))
        for size in ("l2_inside", "epsilon"):  # the second of runs from before features had limits of their own
            points = reader.arrays(cell.first, "certificates/points.npz", ("test_rows", "state", size))
            if points is not None:
                radii = at_least(radii, points["test_rows"], points["state"] == "certified", float(points[size]))
                break
    rows = np.array(sorted(nearest), dtype=int)
    found = np.array([nearest[place] for place in rows])
    return Known(row.label, radii[rows], found, mark=cap) if np.isfinite(found).any() else None


def _grid(row: Row, reader: Reader) -> Grid | None:
    run = min(row.runs, key=lambda r: r.seed)
    file = reader.file(run, "tuning/cv_results.csv")
    if file is None:
        return None
    with file.open() as stream:
        records = list(csv.DictReader(stream))
    table = {column: [record[column] for record in records] for column in (records[0] if records else ())}
    best = {name: run.params[f"model.{name}"] for name in table if f"model.{name}" in run.params}
    return Grid.of_table(table, run.params.get("tune.metric", "accuracy"), row.label, best)


def _clean_images(section: Section, reader: Reader) -> dict[int, np.ndarray] | None:
    """Pixels by test row: what a run without an attack keeps as its examples."""
    for row in section.rows:
        cell = row.cell("none")
        arrays = reader.arrays(cell.first, "adversarial/examples.npz", ("examples", "test_rows")) if cell else None
        if arrays is not None:
            return {int(row): image for row, image in zip(arrays["test_rows"], arrays["examples"])}
    return None


def _varied(common: list[int], arrays: dict[str, np.ndarray]) -> list[int]:
    """Test points spread over the set, those first that the attack really had to move."""
    moved = {int(r) for r, d in zip(arrays["test_rows"], arrays["distortion_l2"]) if d > 0}
    preferred = [r for r in common if r in moved] or common
    places = np.linspace(0, len(preferred) - 1, min(_IMAGES, len(preferred))).astype(int)
    return [preferred[p] for p in places]


def _image_shape(profile: Mapping[str, Any], pixels: int) -> tuple[int, ...] | None:
    """What the run says of its rows; of older runs grey or channel-first colour squares. Other rows are no images."""
    if "image_shape" in profile:
        return picture_shape(profile["image_shape"])
    for channels in (1, 3):
        side = math.isqrt(pixels // channels)
        if side > 1 and channels * side * side == pixels:
            return (side, side) if channels == 1 else (3, side, side)
    return None
