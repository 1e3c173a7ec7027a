"""Tune: the k-fold grid over C, step, width, … on the training rows alone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from pipeline import fitted
from pipeline.cache import Stored
from pipeline.data.dataset import is_sparse
from pipeline.data.windows import SparseRows, row_digests, training_rows
from pipeline.stages.base import AXES, Stage, plain, tuned_axes
from pipeline.stages.build import build, build_model

if TYPE_CHECKING:
    from pipeline.data import Dataset
    from pipeline.progress import Observer


@dataclass(frozen=True)
class Tuned(Stored):
    """What the grid chose and everything it saw; ``best`` is empty when tuning is off.

    ``front`` are the rows of the table that no other beats in both accuracy and the metric, ``best_row`` among them;
    there is none when accuracy is the metric. ``seen`` holds a digest of the content of every row the grid was given,
    for the check that none was a test row.
    """

    best: dict[str, float] = field(default_factory=dict)
    table: dict[str, list[Any]] = field(default_factory=dict)
    front: list[int] = field(default_factory=list)
    best_row: int | None = None
    metric: str = "accuracy"
    threat: str = ""
    on_edge: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    seconds: float = 0.0
    seen: np.ndarray | None = None
    by_machine: bool = False  # accuracies are means over machines of one class against the rest

    @property
    def cv_accuracy(self) -> float | None:
        """Held-out accuracy of the chosen setting; None where the folds scored the parts of the classifier only."""
        return None if self.best_row is None or self.by_machine else float(self.table["mean_accuracy"][self.best_row])

    @property
    def cv_score(self) -> float | None:
        """Held-out value of the metric that the grid chose by; folds of training rows only."""
        return None if self.best_row is None else float(self.table[f"mean_{self.metric}"][self.best_row])


class Tune(Stage):
    """The grid of ``tune`` for ``model``; nothing, under the key of the data, if there is nothing to tune."""

    name = "tune"
    result = Tuned

    def __init__(self, cfg: DictConfig, *needs: Stage):
        super().__init__(cfg, *needs)
        self.axes = tuned_axes(cfg)
        self.stored = bool(self.axes)
        if needs and not self.stored:
            self.key = needs[0].key

    def settings(self) -> dict[str, Any]:
        asked = {k: v for k, v in plain(self.cfg.tune).items() if k not in AXES or k in self.axes}
        if self.cfg.tune.metric != "accuracy":
            asked["norm"], asked["radius"] = tuning_threat(self.cfg)
        return {"model": untuned(self.cfg), "tune": asked}

    def line(self, tuned: Tuned) -> str | None:
        return ", ".join(f"{k} = {v:g}" for k, v in tuned.best.items()) if self.stored else None

    def run(self, data: Dataset, observer: Observer | None = None) -> Tuned:
        """Run the grid; only training rows are passed on."""
        settings = self.cfg.tune
        if not self.stored:
            return Tuned()
        from attacks import Threat
        from models import OneVsRest, grid_search

        model = build_model(self.cfg.model, data, settings.seed)
        axes = {"width" if name == "width_scale" else name: list(settings[name]) for name in self.axes}
        norm, radius = tuning_threat(self.cfg)
        # The very arrays that the grid gets are recorded below: what reached it, not what should have.
        given = training_rows(data), data.y_train
        started = time.perf_counter()
        result = grid_search(
            model,
            *given,
            **axes,
            folds=settings.folds,
            metric=settings.metric,
            norm=norm,
            radius=radius,
            box=data.box,
            select=settings.select or ("robust" if settings.within is None else "within"),
            within=settings.within or 0.0,
            max_rows=settings.max_rows,
            random_state=settings.seed,
            observer=observer,
        )
        return Tuned(
            best={name: float(value) for name, value in result.best.items()},
            table={name: [_plain(value) for value in column] for name, column in result.table.items()},
            front=[] if settings.metric == "accuracy" else result.front,
            best_row=result.best_row,
            metric=settings.metric,
            threat=str(Threat(norm, radius)) if settings.metric != "accuracy" else "",
            on_edge=list(result.on_edge),
            messages=list(result.messages),
            seconds=time.perf_counter() - started,
            seen=row_digests(SparseRows(given[0]) if is_sparse(given[0]) else given[0]),
            by_machine=isinstance(model, OneVsRest) and hasattr(model, "cv_scores"),
        )


def tuning_threat(cfg: DictConfig) -> tuple[str, float]:
    """Norm and radius that the grid is scored in: the attack's own, or L2 at the cap, unless ``tune`` names others."""
    own = build(cfg.attack).threat(cfg.evaluation.l2_cap)
    norm, radius = ("l2", cfg.evaluation.l2_cap) if own.epsilon == 0 else (own.norm, own.epsilon)
    norm, radius = cfg.tune.norm or norm, radius if cfg.tune.radius is None else cfg.tune.radius
    return str(norm), float(radius)


def untuned(cfg: DictConfig) -> dict[str, Any]:
    """The model's settings without those that the grid decides."""
    settings = plain(cfg.model)
    for path in tuned_axes(cfg).values():
        *homes, name = path.split(".")[1:]
        holder = settings
        for home in homes:
            holder = holder[home]
        holder.pop(name, None)
    return settings | {"path": fitted.digest(cfg)} if fitted.is_fitted(cfg) else settings


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def describe(cfg: DictConfig, tuned: Tuned) -> str:
    """One line on the grid, for the run's description."""
    axes = tuned_axes(cfg)
    if not axes:
        return "not tuned"
    sizes = " × ".join(f"{len(cfg.tune[name])} {name}" for name in axes)
    within = "" if cfg.tune.within is None else f", at most {cfg.tune.within:.1%} below the best accuracy"
    within += ", the most accurate within one standard error" if cfg.tune.select == "one_se" else ""
    metric = " within ".join(filter(None, (cfg.tune.metric.replace("_", " "), tuned.threat)))
    return f"{cfg.tune.folds}-fold grid, {sizes}, by {metric}{within}"
