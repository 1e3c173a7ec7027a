"""Tuning by cross-validation, with the fastest method each estimator allows, and one kind of result."""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import clone

from models.adv_svm import AdvSVM
from models.grid_columns import CERTIFIED_ROWS, FoldScores, assign_folds, cross_validate_columns
from models.training import Observer

METRICS = ("accuracy", "certified_accuracy")


@dataclass(frozen=True)
class GridResult:
    """What tuning found.

    Attributes
    ----------
    best : dict
        The chosen settings, e.g. {"C": 8.0, "step": 0.125}; with widths also "width_scale".
    best_score : float
        Mean of the metric over the folds at `best`.
    table : dict of equally long lists
        One row per setting: the settings, "mean_accuracy" (held-out; for `AdvSVM` over its last five iterates),
        "std_accuracy", "mean_certified_accuracy" and "std_certified_accuracy" if tuned by it, "diverged". Never NaN.
    on_edge : list of str
        Settings whose best value is the smallest or largest on offer.
    messages : list of str
        What a user should know about this tuning, in full sentences.
    """

    best: dict[str, float]
    best_score: float
    table: dict[str, list]
    on_edge: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def grid_search(
    model: Any,
    X,
    y,
    *,
    C,
    step=None,
    folds: int = 5,
    metric: str = "accuracy",
    radius: float = 0.5,
    widths=None,
    random_state: int = 0,
    observer: Observer | None = None,
) -> GridResult:
    """Choose C (and step, and the kernel's width_scale) by k-fold cross-validation.

    Parameters
    ----------
    model : estimator
        `AdvSVM` trains the whole grid in one pass, `AdvLinearSVM` solves all columns together, `KernelSVC` shares one
        kernel matrix; any other is fitted once per C and fold.
        Its other settings stay as they are. It is not changed.
    X : array of shape (n, d)
    y : array of shape (n,)
    C : list of float
    step : list of float
        For `AdvSVM` only; None keeps its step.
    folds : int
    metric : {"accuracy", "certified_accuracy"}
        What to maximise. Equal settings are decided by accuracy, then the smaller C, then the smaller step.
    radius : float
        L2 radius of "certified_accuracy".
    widths : list of float, optional
        Values of the kernel's width_scale, for `AdvSVM` only.
    random_state : int
        Seed of folds, batches and random features.
    observer : callable, optional
        ``observer("tune", done, total)``.
    """
    if metric not in METRICS:
        raise ValueError(f"metric={metric!r} is not one of {', '.join(METRICS)}")
    if folds < 2:
        raise ValueError(f"folds={folds} must be at least 2")
    offered = {"C": _axis("C", C)}
    certify_at = radius if metric == "certified_accuracy" else None
    messages = []
    if isinstance(model, AdvSVM):
        offered["step"] = _axis("step", [model.step] if step is None else step)
        if widths is not None:
            offered["width_scale"] = _axis("widths", widths)
        scores = cross_validate_columns(
            model,
            X,
            y,
            C=offered["C"],
            step=offered["step"],
            widths=offered.get("width_scale"),
            folds=folds,
            radius=certify_at,
            seed=random_state,
            observer=observer,
        )
        if certify_at is not None:
            messages.append(_how_certified(model))
    else:
        scores = _cross_validate_fits(model, X, y, offered["C"], folds, certify_at, random_state, observer)
    return _choose(scores, offered, metric, radius, messages)


def _axis(name: str, values) -> list[float]:
    axis = sorted({float(value) for value in values})
    if not axis or not axis[0] > 0 or not np.isfinite(axis[-1]):
        raise ValueError(f"{name} must be one or more positive numbers, got {list(values)!r}")
    return axis


def _how_certified(model: AdvSVM) -> str:
    text = f"Certified accuracy was measured on at most {CERTIFIED_ROWS} held-out rows"
    expansion = model.expansion if isinstance(model.expansion, str) else model.expansion.name
    if expansion == "support_vectors":
        return f"{text}."
    return f"{text}, with the curvature estimated by power iteration; the fitted model's own certificate is rigorous."


def _cross_validate_fits(
    model: Any, X, y, C: list[float], folds: int, radius: float | None, seed: int, observer: Observer | None
) -> FoldScores:
    """Over C alone: by the fast path of the model's own module (``cv_scores``) or one fit per C and fold."""
    diverged = np.zeros(len(C), dtype=bool)
    fast = getattr(import_module(type(model).__module__), "cv_scores", None)
    if fast is not None:
        accuracy, certified = fast(model, X, y, C, folds, seed, radius, observer)
        return FoldScores([{"C": value} for value in C], accuracy, certified, diverged)
    X, y = np.asarray(X), np.asarray(y)
    numbers = assign_folds(np.unique(y, return_inverse=True)[1], folds, seed)
    accuracy = np.zeros((len(C), folds))
    certified = None if radius is None else np.zeros((len(C), folds))
    for fold in range(folds):
        held_out = numbers == fold
        for place, value in enumerate(C):
            fitted = clone(model).set_params(C=value).fit(X[~held_out], y[~held_out])
            accuracy[place, fold] = np.mean(fitted.predict(X[held_out]) == y[held_out])
            if certified is not None:
                certified[place, fold] = np.mean(fitted.certified_radius(X[held_out], y[held_out]) >= radius)
            if observer is not None:
                observer("tune", fold * len(C) + place + 1, folds * len(C))
    return FoldScores([{"C": value} for value in C], accuracy, certified, diverged)


def _choose(
    scores: FoldScores, offered: dict[str, list[float]], metric: str, radius: float, messages: list[str]
) -> GridResult:
    accuracy = scores.accuracy.mean(1)
    certified = None if scores.certified is None else scores.certified.mean(1)
    goal = accuracy if certified is None else certified

    def preference(row: int) -> tuple:
        setting = scores.settings[row]
        # Sums over folds differ in the last place; a tie should be one.
        return (-round(goal[row], 12), -round(accuracy[row], 12), setting["C"], setting.get("step", 0.0))

    best_row = min(range(len(goal)), key=preference)
    best = scores.settings[best_row]
    if certified is not None and not certified.any():
        messages = [*messages, f"No setting certifies any row at radius {radius:g}: chosen by accuracy instead."]
    on_edge = [name for name, values in offered.items() if len(values) > 1 and best[name] in (min(values), max(values))]
    for name in on_edge:
        end = "smallest" if best[name] == min(offered[name]) else "largest"
        messages = [
            *messages,
            f"The best {name}, {best[name]:g}, is the {end} on offer: a wider grid may find a better one.",
        ]
    if scores.diverged.any():
        lost = int(scores.diverged.sum())
        messages = [*messages, f"{lost} of {len(goal)} settings diverged and count as accuracy 0."]
    return GridResult(dict(best), float(goal[best_row]), _table(scores), on_edge, messages)


def _table(scores: FoldScores) -> dict[str, list]:
    table: dict[str, list] = {name: [s[name] for s in scores.settings] for name in scores.settings[0]}
    table["mean_accuracy"] = scores.accuracy.mean(1).tolist()
    table["std_accuracy"] = scores.accuracy.std(1).tolist()
    if scores.certified is not None:
        table["mean_certified_accuracy"] = scores.certified.mean(1).tolist()
        table["std_certified_accuracy"] = scores.certified.std(1).tolist()
    table["diverged"] = scores.diverged.tolist()
    return table
