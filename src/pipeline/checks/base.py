"""What a check sees and what it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from pipeline.checks.parts import Part, parts_of
from pipeline.data.digests import row_digests

if TYPE_CHECKING:
    from pipeline.data import Dataset
    from pipeline.stages.attack import Attacked
    from pipeline.stages.train import Trained
    from pipeline.stages.tune import Tuned


@dataclass(frozen=True)
class Check:
    """The outcome of one check: ``pass``, ``warn``, ``fail``, or ``skipped`` with the reason in ``message``."""

    id: str
    status: str
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a check returns; the registry adds its id."""

    status: str
    message: str
    evidence: dict[str, Any]


def passed(message: str, **evidence: Any) -> Verdict:
    """The promise was tested and held."""
    return Verdict("pass", message, evidence)


def warned(message: str, **evidence: Any) -> Verdict:
    """Nothing is proved wrong, but a reader must know."""
    return Verdict("warn", message, evidence)


def failed(message: str, **evidence: Any) -> Verdict:
    """The promise is broken: the run's numbers cannot be trusted."""
    return Verdict("fail", message, evidence)


def skipped(reason: str, **evidence: Any) -> Verdict:
    """The check could not be evaluated, and why."""
    return Verdict("skipped", reason, evidence)


def worst(verdicts: list[Verdict]) -> Verdict:
    """The gravest of several verdicts with the messages of all that are as grave; evidence of all."""
    order = ("skipped", "pass", "warn", "fail")
    status = max((v.status for v in verdicts), key=order.index)
    evidence: dict[str, Any] = {}
    for verdict in verdicts:
        evidence |= verdict.evidence
    return Verdict(status, "; ".join(dict.fromkeys(v.message for v in verdicts if v.status == status)), evidence)


@dataclass(frozen=True)
class CheckContext:
    """Everything a check may look at: the configuration and the results of all stages.

    ``attack`` is the attack of the run, built anew from the configuration.
    """

    cfg: DictConfig
    data: Dataset
    tuned: Tuned
    trained: Trained
    attacked: Attacked
    radii: np.ndarray
    attack: Any = None

    def __post_init__(self) -> None:
        if self.attack is None:
            from pipeline.stages.build import build

            object.__setattr__(self, "attack", build(self.cfg.attack, random_state=self.cfg.seed))

    @property
    def model(self) -> Any:
        """The model that was attacked."""
        return self.trained.model

    @cached_property
    def X(self) -> np.ndarray:
        """Clean points that were attacked, (n, d)."""
        return np.ascontiguousarray(self.data.X_test[self.attacked.rows])

    @cached_property
    def y(self) -> np.ndarray:
        """Their labels."""
        return self.data.y_test[self.attacked.rows]

    @cached_property
    def signs(self) -> np.ndarray:
        """Their labels as -1 and +1: a margin is sign · score."""
        return np.where(self.y == self.model.classes_[1], 1.0, -1.0)

    @cached_property
    def margins(self) -> np.ndarray:
        """Margins of the clean points, as the attack saw them."""
        return self.signs * self.attacked.result.clean_scores

    @cached_property
    def parts(self) -> list[Part]:
        """The attacks of the run one by one (a suite has several), without those that attack nothing."""
        return parts_of(self.attack, self.attacked.result)

    @cached_property
    def train_digests(self) -> np.ndarray:
        """Digests of the training rows, (n,) uint64."""
        return row_digests(self.data.X_train)

    @cached_property
    def test_digests(self) -> np.ndarray:
        """Digests of the test rows, (n,) uint64."""
        return row_digests(self.data.X_test)

    @property
    def cap(self) -> float:
        """L2 distance up to which an example of an unbounded attack counts."""
        return float(self.cfg.evaluation.l2_cap)

    def spread(self, count: int, among: np.ndarray | None = None) -> np.ndarray:
        """At most ``count`` positions among the attacked rows, evenly spaced."""
        among = np.arange(len(self.y)) if among is None else among
        return among if len(among) <= count else among[np.linspace(0, len(among) - 1, count).astype(int)]

    def promising(self, among: np.ndarray, count: int) -> np.ndarray:
        """At most ``count`` positions of ``among``: those with the smallest clean margin, and as many evenly spaced.

        Small margins break first, unless the slope is small there too; a masked gradient shows at the large ones.
        """
        closest = among[np.argsort(self.margins[among], kind="stable")[: count // 2]]
        others = np.setdiff1d(among, closest)
        return np.union1d(closest, self.spread(count - count // 2, others))

    def fresh_model(self, **settings: Any) -> Any:
        """An unfitted model with the run's tuned settings; ``settings`` replace some of them."""
        from pipeline.stages.build import build, with_parameters

        model = with_parameters(build(self.cfg.model, random_state=self.cfg.seed), self.tuned.best)
        return model.set_params(**settings)
