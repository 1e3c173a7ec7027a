"""Tune: the k-fold grid over C and the step size on the training rows alone."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from pipeline.cache import Entry
from pipeline.data import Dataset
from pipeline.data.digests import row_digests
from pipeline.progress import Observer
from pipeline.stages.build import build


@dataclass(frozen=True)
class Tuned:
    """What the grid chose and everything it saw; ``best`` is empty when tuning is off.

    ``seen`` holds a digest of the content of every row the grid was given, for the check that none was a test row.
    """

    best: dict[str, float] = field(default_factory=dict)
    table: dict[str, list[Any]] = field(default_factory=dict)
    cv_accuracy: float | None = None
    on_edge: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    seconds: float = 0.0
    seen: np.ndarray | None = None

    def to_entry(self) -> Entry:
        """As a cache entry."""
        values = asdict(self)
        seen = values.pop("seen")
        # The stored dtypes are the common ones, so the digests are kept as signed numbers of the same bits.
        return Entry(values, {} if seen is None else {"seen": seen.view(np.int64)})

    @classmethod
    def from_entry(cls, entry: Entry) -> Tuned:
        """From a cache entry."""
        seen = entry.arrays.get("seen")
        return cls(**entry.values, seen=None if seen is None else seen.view(np.uint64))


def tune(cfg: DictConfig, data: Dataset, observer: Observer | None = None) -> Tuned:
    """Run the grid of ``cfg.tune`` for ``cfg.model``; only training rows are passed on."""
    from models import grid_search

    settings = cfg.tune
    model = build(cfg.model, random_state=settings.seed)
    X, y = data.X_train, data.y_train
    started = time.perf_counter()
    result = grid_search(
        model,
        X,
        y,
        C=list(settings.C),
        step=list(settings.step),
        widths=None if settings.width_scale is None else list(settings.width_scale),
        folds=settings.folds,
        metric=settings.metric,
        radius=settings.radius,
        random_state=settings.seed,
        observer=observer,
    )
    seconds = time.perf_counter() - started
    best = {name: float(value) for name, value in result.best.items()}
    table = {name: [_plain(value) for value in column] for name, column in result.table.items()}
    return Tuned(
        best=best,
        table=table,
        cv_accuracy=_at_best(table, best, "mean_accuracy"),
        on_edge=list(result.on_edge),
        messages=list(result.messages),
        seconds=seconds,
        seen=row_digests(X),
    )


def _at_best(table: dict[str, list[Any]], best: dict[str, float], column: str) -> float | None:
    if column not in table:
        return None
    for row, value in enumerate(table[column]):
        if all(table[name][row] == wanted for name, wanted in best.items() if name in table):
            return float(value)
    return None


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def describe(settings: DictConfig) -> str:
    """One line on the grid, for the run's description."""
    if not settings.enabled:
        return "not tuned"
    grid = OmegaConf.to_container(settings)
    assert isinstance(grid, dict)
    return f"{settings.folds}-fold grid, {len(grid['C'])} × {len(grid['step'])} settings, by {settings.metric}"
