"""Attack: make adversarial examples for (a fixed choice of) the test rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from omegaconf import DictConfig

from pipeline.cache import Entry
from pipeline.cache.tree import pack, unpack
from pipeline.data import Dataset
from pipeline.errors import UserError
from pipeline.progress import Observer
from pipeline.stages.build import build
from pipeline.stages.plan import attack_limit
from pipeline.stages.train import Trained


@dataclass(frozen=True)
class Attacked:
    """The attack's result on ``rows`` of the test set; ``clean_wrong`` marks those misclassified beforehand."""

    result: Any
    rows: np.ndarray
    clean_wrong: np.ndarray
    seconds: float

    def to_entry(self) -> Entry:
        """As a cache entry."""
        arrays: dict[str, np.ndarray] = {}
        fields = {"result": self.result, "rows": self.rows, "clean_wrong": self.clean_wrong, "seconds": self.seconds}
        return Entry(pack(fields, arrays), arrays)

    @classmethod
    def from_entry(cls, entry: Entry) -> Attacked:
        """From a cache entry."""
        return cls(**unpack(entry.values, entry.arrays, _result_classes()))


def _result_classes() -> dict[str, type]:
    import attacks

    return {name: kind for name in dir(attacks) if isinstance(kind := getattr(attacks, name), type)}


def attack(
    cfg: DictConfig, data: Dataset, trained: Trained, observer: Observer | None = None, surrogate: Trained | None = None
) -> Attacked:
    """Attack the trained model on at most ``evaluation.max_attacked`` (``max_attacked_costly``) test rows."""
    rows = choose_rows(data.y_test, attack_limit(cfg))
    X, y = np.ascontiguousarray(data.X_test[rows]), data.y_test[rows]
    started = time.perf_counter()
    method = build(cfg.attack, random_state=cfg.seed)
    if surrogate is not None:
        method = transfer(method, surrogate.model)
    result = method(trained.model, X, y, observer=observer)
    seconds = time.perf_counter() - started
    return Attacked(result, rows, trained.model.predict(X) != y, seconds)


def transfer(method: Any, surrogate: Any) -> Any:
    """The attack carried out against ``surrogate`` instead of its victim."""
    from attacks import Suite, Transfer

    if isinstance(method, Suite):
        raise UserError("model@surrogate: a suite cannot be transferred; choose one attack")
    return Transfer(method, surrogate)


def choose_rows(y: np.ndarray, limit: int | None) -> np.ndarray:
    """At most ``limit`` rows, the same for every model and seed, with the classes in their proportion."""
    if limit is None or limit >= len(y):
        return np.arange(len(y))
    from sklearn.model_selection import train_test_split

    if limit < 2:
        return np.arange(limit)
    rows, _ = train_test_split(np.arange(len(y)), train_size=limit, stratify=y, random_state=0)
    return np.sort(rows)
