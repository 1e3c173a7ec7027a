"""The figures of one run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pipeline.figures.charts import Grid, Known, Line, Panel, at_least, bracket, heat_map, lines
from pipeline.figures.gallery import FeatureChanges, Tile, feature_changes, picture_shape
from pipeline.figures.gallery import gallery as draw_gallery
from pipeline.figures.registry import run_figure
from pipeline.figures.style import BROKEN, Drawing, panels_of
from pipeline.identity import run_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from omegaconf import DictConfig

    from pipeline.stages.experiment import Results
    from pipeline.stages.tune import Tuned

_IMAGES, _ROWS = 8, 6


def _curves(cfg: DictConfig, results: Results, names: dict[str, str], xlabel: str, ylabel: str) -> Drawing | None:
    curves = results.evaluated.curves
    drawn = [line for key, name in names.items() if (line := Line.of_curves(name, [curves.get(key, [])]))]
    if not any(len(line.x) > 1 for line in drawn):
        return None
    return Drawing(run_name(cfg), partial(lines, [Panel("", xlabel, ylabel, drawn, from_zero=True)]))


@run_figure
def training_curve(cfg: DictConfig, results: Results) -> Drawing | None:
    """Error of every iterate on the clean test points and on the examples made for the final model."""
    names = {"test_error": "clean test points", "adversarial_test_error": "attacked examples"}
    return _curves(cfg, results, names, "training iteration", "error [%]")


@run_figure
def attack_curve(cfg: DictConfig, results: Results) -> Drawing | None:
    """Accuracy over the attack's steps."""
    return _curves(cfg, results, {"robust_accuracy_by_step": "under attack"}, "attack step", "accuracy [%]")


@run_figure
def tuning(cfg: DictConfig, results: Results) -> Drawing | None:
    """Cross-validated score over the grid."""
    grid = Grid.of_table(results.tuned.table or {}, cfg.tune.metric, "", results.tuned.best)
    return Drawing(f"{run_name(cfg)}: {cfg.tune.folds}-fold grid", partial(heat_map, [grid])) if grid else None


@run_figure
def tuning_front(cfg: DictConfig, results: Results) -> Drawing | None:
    """Every setting by held-out accuracy and the metric of the grid; the front, and what was chosen of it."""
    tuned = results.tuned
    if len(tuned.table.get("C", ())) < 2 or not tuned.front or tuned.best_row is None:
        return None
    return Drawing(f"{run_name(cfg)}: {cfg.tune.folds}-fold grid", partial(front, tuned))


def changes_of(results: Results) -> FeatureChanges | None:
    """What the attack changed in some rows that are no images, those first that it broke; None of images."""
    result, data = results.attacked.result, results.data
    if picture_shape(data.image_shape) is not None:
        return None
    changed = result.distortion_l2 > 0
    chosen = _some(np.flatnonzero(changed & result.success), _ROWS)
    chosen = chosen if chosen.size else _some(np.flatnonzero(changed), _ROWS)
    if not chosen.size:
        return None
    clean, adversarial = _before_and_after(results, chosen)
    names = data.feature_names or [f"feature {number}" for number in range(clean.shape[1])]
    labels = dict(zip((-1, 1) if data.n_classes == 2 else range(data.n_classes), data.class_names))
    said = zip(
        results.attacked.rows[chosen], result.success[chosen], result.clean_scores[chosen], result.scores[chosen]
    )
    titles = [
        f"row {data.test_ids[row]} ({labels[int(data.y_test[row])]}), {'broken' if broken else 'kept'}: "
        f"score {clean_score:+.2f} → {score:+.2f}"
        for row, broken, clean_score, score in said
    ]
    return FeatureChanges.of(clean, adversarial, names, titles, data.scaler)


def _some(places: np.ndarray, count: int) -> np.ndarray:
    return places[:: max(1, places.size // count)][:count]


def _before_and_after(results: Results, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    clean, adversarial = results.data.X_test[results.attacked.rows[chosen]], results.attacked.result.examples[chosen]
    return np.asarray(clean).reshape(len(chosen), -1), np.asarray(adversarial).reshape(len(chosen), -1)


@run_figure
def gallery(cfg: DictConfig, results: Results) -> Drawing | None:
    """Clean image, adversarial image and their difference; features by name where rows are no images."""
    result, data = results.attacked.result, results.data
    shape = picture_shape(data.image_shape)
    if shape is None:
        changes = changes_of(results)
        return None if changes is None else Drawing(run_name(cfg), partial(feature_changes, changes))
    chosen = _some(np.flatnonzero(result.distortion_l2 > 0), _IMAGES)
    if not chosen.size:
        return None
    clean, adversarial = _before_and_after(results, chosen)
    scores = [f"{c:+.2f} → {s:+.2f}" for c, s in zip(result.clean_scores[chosen], result.scores[chosen])]
    low, high = data.box
    clean, adversarial = ((images - low) / np.subtract(high, low) for images in (clean, adversarial))
    difference = adversarial - clean
    scale = np.abs(difference).max(axis=1, keepdims=True)
    relative = 0.5 + 0.5 * difference / np.where(scale > 0, scale, 1.0)
    rows = {
        "clean": [Tile(image) for image in clean],
        "adversarial": [Tile(image, broken=bool(b)) for image, b in zip(adversarial, result.success[chosen])],
        "difference": [Tile(image, f"max {s:.3f}", signed=True) for image, s in zip(relative, scale[:, 0])],
    }
    return Drawing(f"{run_name(cfg)} (scores above)", partial(draw_gallery, rows, shape, scores))


@run_figure
def known(cfg: DictConfig, results: Results) -> Drawing | None:
    """Certified, undecided and broken over the radius, on the same points."""
    around, result = results.evaluated.bracket, results.attacked.result
    attacks = {}
    if len(around.rows) < len(results.attacked.rows) and result.success.any():
        distances = np.where(result.success, result.distortion_l2, np.inf)
        attacks[f"{cfg.attack.name}, {len(distances)} points"] = distances
    verdicts = results.evaluated.verdicts
    radii = at_least(results.evaluated.radii, results.attacked.rows, verdicts.certified, verdicts.l2_inside)
    panel = Known("", radii[around.rows], around.nearest, mark=cfg.evaluation.l2_cap, attacks=attacks)
    return Drawing(f"{run_name(cfg)}: what is known", partial(bracket, [panel]))


def front(tuned: Tuned) -> Figure:
    """Every setting by accuracy and metric; the front as a line, the chosen setting circled."""
    accuracy, robust = (100 * np.asarray(tuned.table[f"mean_{name}"], float) for name in ("accuracy", tuned.metric))
    measured = np.asarray(tuned.table.get("attacked", [True] * len(accuracy)), dtype=bool)
    figure, (axes,) = panels_of(1, size=(5.2, 3.8), legend=False)
    for label, rows, alpha in (("to first order", ~measured, 0.3), ("measured", measured, 0.9)):
        if rows.any():
            axes.scatter(accuracy[rows], robust[rows], s=14, alpha=alpha, label=label, linewidths=0)
    axes.plot(accuracy[tuned.front], robust[tuned.front], linewidth=1.2, label="front")
    at = accuracy[tuned.best_row], robust[tuned.best_row]
    axes.scatter(*at, s=110, facecolors="none", edgecolors=BROKEN, linewidths=1.6, label="chosen")
    # Settings that learned nothing would squeeze the others into a corner.
    low = max(accuracy.min(), accuracy[tuned.front].min() - 15.0)
    axes.set_xlim(low - 1.0, min(100.5, accuracy.max() + 1.0))
    axes.set_xlabel("held-out accuracy [%]")
    axes.set_ylabel(f"held-out {tuned.metric.replace('_', ' ')} within {tuned.threat} [%]")
    axes.legend(loc="best", fontsize="small")
    return figure
