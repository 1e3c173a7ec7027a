"""Certify: what is true of a trained model whatever the attack, found once for all of them.

Certified radii of the test points cost as much as a short attack, and half of the checks ask about the model alone. Of
many test points a part gets a radius (`choose_rows`): with random features 145,253 of covtype would take an hour.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from omegaconf import DictConfig

from pipeline.arguments import arguments_of
from pipeline.cache import Entry, Stored
from pipeline.checks import Check, ModelContext, check_model
from pipeline.data.rows import choose_rows
from pipeline.stages.base import Stage

if TYPE_CHECKING:
    from pipeline.data import Dataset
    from pipeline.stages.train import Trained
    from pipeline.stages.tune import Tuned

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Certified(Stored):
    """Which test points the model gets right, certified L2 radii of ``rows``, and the answers to the model's checks."""

    correct: np.ndarray
    radii: np.ndarray  # one for each test point, NaN where none was asked for
    rows: np.ndarray
    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0
    parts: ClassVar[tuple[type, ...]] = (Check,)

    @property
    def checks_seconds(self) -> float:
        """Time that the checks took."""
        return float(sum(check.evidence.get("seconds", 0.0) for check in self.checks))

    def to_entry(self) -> Entry:
        """As a cache entry, without the checks that an exception stopped: they will be asked again."""
        return Stored.to_entry(replace(self, checks=[check for check in self.checks if not check.stopped]))


class Certify(Stage):
    """Certified radii of the test points, of many a part, and the checks that need no attack."""

    name = "certify"
    result = Certified

    def settings(self) -> dict[str, Any]:
        # Which attack it is decides nothing here but whether there are checks at all.
        return {"checks": checks_level(self.cfg) != "off" and list(self.cfg.evaluation.checks)}

    def targets(self) -> list[str]:
        return list(self.cfg.evaluation.checks)

    def line(self, certified: Certified) -> str:
        some, all_ = len(certified.rows), len(certified.correct)
        return f"L2 radii of {some:,} of {all_:,} test points, a stratified part" if some < all_ else ""

    def run(self, data: Dataset, tuned: Tuned, trained: Trained, observer: Any = None) -> Certified:
        """Certify, and ask the model's checks."""
        started = time.perf_counter()
        correct = np.asarray(trained.model.predict(data.X_test) == data.y_test)
        rows = choose_rows(data.y_test, None)
        radii = with_radii(np.full(len(correct), np.nan), rows, trained.model, data)
        checks = check_model(ModelContext(self.cfg, data, tuned, trained, correct, radii), checks_level(self.cfg))
        return Certified(correct, radii, rows, checks, time.perf_counter() - started)


def with_radii(radii: np.ndarray, rows: np.ndarray, model: Any, data: Dataset) -> np.ndarray:
    """The radii with those of ``rows`` that are missing."""
    missing = rows[np.isnan(radii[rows])]
    if len(missing):
        radii = radii.copy()
        radii[missing] = certified_radii(model, data.X_test[missing], data.y_test[missing])
    return radii


def certified_radii(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Certified L2 radii (n,), all 0 for a model about which nothing is proved: that is said, and the run goes on."""
    from models import NoCertificate

    try:
        if not callable(getattr(model, "certified_radius", None)):
            raise NoCertificate(f"{type(model).__name__} has no certified_radius")
        return np.asarray(model.certified_radius(X, y), dtype=np.float64)
    except NoCertificate as reason:
        log.warning("  note    nothing is certified: %s", reason)
        return np.zeros(len(X))


def checks_level(cfg: DictConfig) -> str:
    """``checks: auto`` resolved: everything for a suite of attacks, the cheap ones otherwise."""
    if cfg.checks != "auto":
        return cfg.checks
    # What the class declares, read from its text: a reused run is answered without importing it.
    return "full" if "attacks" in (arguments_of(cfg.attack._target_) or ()) else "cheap"
