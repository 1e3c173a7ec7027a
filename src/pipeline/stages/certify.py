"""Certify: what is true of a trained model whatever the attack, found once for all of them.

Certified radii of the test points cost as much as a short attack, and half of the checks ask about the model alone.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field

import numpy as np
from omegaconf import DictConfig

from pipeline.cache import Entry
from pipeline.checks import Check, ModelContext, check_model
from pipeline.data import Dataset
from pipeline.stages.plan import checks_level
from pipeline.stages.train import Trained
from pipeline.stages.tune import Tuned


@dataclass(frozen=True)
class Certified:
    """Which test points the model gets right, their certified L2 radii, and the answers to the model's checks."""

    correct: np.ndarray
    radii: np.ndarray
    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def checks_seconds(self) -> float:
        """Time that the checks took."""
        return float(sum(check.evidence["seconds"] for check in self.checks))

    def to_entry(self) -> Entry:
        """As a cache entry, without the checks that an exception stopped: they will be asked again."""
        values = {"checks": [asdict(check) for check in self.checks if not check.stopped], "seconds": self.seconds}
        return Entry(values, {"correct": self.correct, "radii": self.radii})

    @classmethod
    def from_entry(cls, entry: Entry) -> Certified:
        """From a cache entry."""
        checks = [Check(**check) for check in entry.values["checks"]]
        return cls(entry.arrays["correct"], entry.arrays["radii"], checks, entry.values["seconds"])


def certify(cfg: DictConfig, data: Dataset, tuned: Tuned, trained: Trained) -> Certified:
    """Certified radii of all test points, and the checks that need no attack."""
    started = time.perf_counter()
    correct = np.asarray(trained.model.predict(data.X_test) == data.y_test)
    radii = np.asarray(trained.model.certified_radius(data.X_test, data.y_test), dtype=np.float64)
    checks = check_model(ModelContext(cfg, data, tuned, trained, correct, radii), checks_level(cfg))
    return Certified(correct, radii, checks, time.perf_counter() - started)
