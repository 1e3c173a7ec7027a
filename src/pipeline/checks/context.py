"""What a check sees: a model on its data, and with an attack's result a whole run."""

from __future__ import annotations

from dataclasses import dataclass
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

_SAMPLE = 16


@dataclass(frozen=True)
class ModelContext:
    """The configuration and the stages up to the trained model, whatever the attack.

    Of all test points: whether the model gets them right (``correct``) and their certified radii.
    """

    cfg: DictConfig
    data: Dataset
    tuned: Tuned
    trained: Trained
    correct: np.ndarray
    radii: np.ndarray

    @property
    def model(self) -> Any:
        """The model that is judged."""
        return self.trained.model

    @cached_property
    def sample(self) -> np.ndarray:
        """A few test points that the checks of a model share, evenly spaced."""
        return np.ascontiguousarray(self.data.X_test[evenly(np.arange(len(self.data.X_test)), _SAMPLE)])

    @cached_property
    def sample_scores(self) -> np.ndarray:
        """Their scores."""
        return np.asarray(self.model.scores(self.sample))

    @cached_property
    def sample_gradients(self) -> np.ndarray | None:
        """Their gradients; None if the model gives none."""
        target = self.target
        if not callable(getattr(target, "scores_and_gradients", None)):
            return None
        return np.asarray(target.scores_and_gradients(self.sample)[1], dtype=np.float64)

    @cached_property
    def target(self) -> Any:
        """The model as attacks see it."""
        from attacks import as_target

        return as_target(self.model)

    @cached_property
    def train_digests(self) -> np.ndarray:
        """Digests of the training rows, (n,) uint64."""
        return row_digests(self.data.X_train)

    @cached_property
    def test_digests(self) -> np.ndarray:
        """Digests of the test rows, (n,) uint64."""
        return row_digests(self.data.X_test)

    def fresh_model(self, **settings: Any) -> Any:
        """An unfitted model with the run's tuned settings; ``settings`` replace some of them."""
        from pipeline.stages.build import build, with_parameters

        model = with_parameters(build(self.cfg.model, random_state=self.cfg.seed), self.tuned.best)
        return model.set_params(**settings)


@dataclass(frozen=True)
class CheckContext(ModelContext):
    """A whole run: the same with an attack's result. ``attack`` is built anew from the configuration if not given."""

    attacked: Attacked
    attack: Any = None

    def __post_init__(self) -> None:
        if self.attack is None:
            from pipeline.stages.build import build

            object.__setattr__(self, "attack", build(self.cfg.attack, random_state=self.cfg.seed))

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

    @property
    def cap(self) -> float:
        """L2 distance up to which an example of an unbounded attack counts."""
        return float(self.cfg.evaluation.l2_cap)

    def spread(self, count: int, among: np.ndarray | None = None) -> np.ndarray:
        """At most ``count`` positions among the attacked rows, evenly spaced."""
        return evenly(np.arange(len(self.y)) if among is None else among, count)

    def promising(self, among: np.ndarray, count: int) -> np.ndarray:
        """At most ``count`` positions of ``among``: those with the smallest clean margin, and as many evenly spaced.

        Small margins break first, unless the slope is small there too; a masked gradient shows at the large ones.
        """
        closest = among[np.argsort(self.margins[among], kind="stable")[: count // 2]]
        others = np.setdiff1d(among, closest)
        return np.union1d(closest, self.spread(count - count // 2, others))


def evenly(among: np.ndarray, count: int) -> np.ndarray:
    """At most ``count`` of the given positions, evenly spaced."""
    return among if len(among) <= count else among[np.linspace(0, len(among) - 1, count).astype(int)]
