"""Train: fit the (tuned) model and keep its curve over iterations."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from omegaconf import DictConfig

from pipeline.cache import Entry
from pipeline.data import Dataset
from pipeline.progress import Observer
from pipeline.stages.build import build, with_parameters
from pipeline.stages.tune import Tuned


@dataclass(frozen=True)
class Trained:
    """A fitted model, its curve (arrays of equal length, ``iteration`` among them) and what it had to say."""

    model: Any
    curve: dict[str, np.ndarray] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_entry(self) -> Entry:
        """As a cache entry: the model's own state beside the curve."""
        meta, arrays = self.model.get_state()
        stored = {f"model.{name}": array for name, array in arrays.items()}
        stored |= {f"curve.{name}": array for name, array in self.curve.items()}
        return Entry({"model": meta, "messages": self.messages, "seconds": self.seconds}, stored)

    @classmethod
    def from_entry(cls, entry: Entry, model_class: Any) -> Trained:
        """From a cache entry; ``model_class`` is the one the configuration names."""
        parts: dict[str, dict[str, np.ndarray]] = {"model": {}, "curve": {}}
        for name, array in entry.arrays.items():
            group, rest = name.split(".", 1)
            parts[group][rest] = array
        model = model_class.from_state(entry.values["model"], parts["model"])
        return cls(model, parts["curve"], entry.values["messages"], entry.values["seconds"])


def train(cfg: DictConfig, data: Dataset, tuned: Tuned, observer: Observer | None = None) -> Trained:
    """Fit on the training rows; the test rows only feed the error curve, never the weights."""
    model = with_parameters(build(cfg.model, random_state=cfg.seed), tuned.best)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data.X_train, data.y_train, eval_set=(data.X_test, data.y_test), observer=observer)
    seconds = time.perf_counter() - started
    messages = list(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning)))
    curve = {name: np.asarray(values) for name, values in getattr(model, "curve_", {}).items()}
    return Trained(model, curve, messages, seconds)
