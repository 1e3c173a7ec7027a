"""Train: fit the (tuned) model and keep its curve over iterations."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from pipeline import fitted
from pipeline.cache import Entry
from pipeline.data.rows import choose_rows
from pipeline.data.windows import training_rows
from pipeline.stages.base import Stage
from pipeline.stages.build import build_model, takes
from pipeline.stages.protocol import fit_options
from pipeline.stages.tune import Tuned, untuned

if TYPE_CHECKING:
    from pipeline.data import Dataset
    from pipeline.progress import Observer


@dataclass(frozen=True)
class Trained:
    """A fitted model, its curve (arrays of equal length, ``iteration`` among them) and what it had to say."""

    model: Any
    curve: dict[str, np.ndarray] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_entry(self) -> Entry:
        """As a cache entry. Its arrays are those of ``models.save``: one file on disk for both, see pipeline.cache."""
        meta, arrays = self.model.get_state()
        values = {"class": _path(self.model), "model": meta, "messages": self.messages, "seconds": self.seconds}
        return Entry(values | {"curve": {name: array.tolist() for name, array in self.curve.items()}}, arrays)

    @classmethod
    def from_entry(cls, entry: Entry, model_class: Any) -> Trained:
        """From a cache entry; ``model_class`` is the one the configuration names."""
        values = entry.values
        curve = {name: np.asarray(points) for name, points in values["curve"].items()}
        return cls(model_class.from_state(values["model"], entry.arrays), curve, values["messages"], values["seconds"])


def _path(model: Any) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


class Train(Stage):
    """Fit on the training rows; the test rows only feed the error curve, never the weights."""

    name = "train"
    result = Trained

    def __init__(self, cfg: DictConfig, *needs: Stage):
        super().__init__(cfg, *needs)
        self.stored = not fitted.is_fitted(cfg)  # a file is kept by its owner

    def settings(self) -> dict[str, Any]:
        # A model without randomness is trained once for all seeds.
        seed = self.cfg.seed if takes(self.cfg.model, "random_state") else None
        return {"model": untuned(self.cfg), "seed": seed}

    def line(self, trained: Trained) -> str:
        return f"nothing: fitted before, {self.cfg.model.path}" if fitted.is_fitted(self.cfg) else ""

    def restore(self, entry: Entry, *inputs: Any) -> Trained:
        from hydra.utils import get_class

        return Trained.from_entry(entry, get_class(entry.values["class"]))

    def run(self, data: Dataset, tuned: Tuned, observer: Observer | None = None) -> Trained:
        """Fit the (tuned) model, or take the one that is fitted already."""
        if fitted.is_fitted(self.cfg):
            return Trained(fitted.adopt(self.cfg, data))
        from models.grid import with_settings

        model = with_settings(build_model(self.cfg.model, data, self.cfg.seed), tuned.best)
        started = time.perf_counter()
        watched = choose_rows(data.y_test, None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            options = fit_options(model, eval_set=(data.X_test[watched], data.y_test[watched]), observer=observer)
            model.fit(training_rows(data), data.y_train, **options)
        seconds = time.perf_counter() - started
        messages = list(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning)))
        curve = {name: np.asarray(values) for name, values in getattr(model, "curve_", {}).items()}
        if "test_error" in curve and len(watched) < len(data.y_test):
            messages.append(
                f"The curve of the test error is over {len(watched):,} of the {len(data.y_test):,} test rows."
            )
        return Trained(model, curve, messages, seconds)
