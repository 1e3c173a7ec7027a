"""What a check sees: a model on its data, with an attack's result a whole run, and each attack of that run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from pipeline.data.windows import row_digests
from pipeline.fitted import is_fitted

if TYPE_CHECKING:
    from attacks import Threat
    from pipeline.data import Dataset
    from pipeline.stages.attack import Attacked
    from pipeline.stages.bracket import Verdicts
    from pipeline.stages.train import Trained
    from pipeline.stages.tune import Tuned

_SAMPLE = 16


class NotApplicable(Exception):
    """Raised inside a check that cannot be evaluated; the message says why."""


@dataclass(frozen=True, eq=False)
class Part:
    """One attack of a run and what it found; ``cap`` is the L2 distance up to which an unbounded attack counts."""

    name: str
    attack: Any
    result: Any
    cap: float

    @property
    def bounded(self) -> bool:
        """Whether it looks inside a ball; the others look for the nearest adversarial point, however far."""
        return bool(self.attack.bounded)

    @property
    def capped(self) -> bool:
        """Whether an unbounded attack's examples outside a ball were dropped from its result: that of its suite."""
        return not self.bounded and self.result.epsilon is not None

    @property
    def white_box(self) -> bool:
        """Whether it uses gradients."""
        return bool(self.attack.needs_gradients)

    @property
    def iterates(self) -> bool:
        """Whether it takes more than one step inside its ball; if it does not say, by the gradients it asked for."""
        steps = getattr(self.attack, "steps", None)
        return self.bounded and (self.result.gradient_evaluations.max(initial=0) if steps is None else steps) > 1

    @property
    def norm(self) -> str:
        """In which it looks for what is near."""
        return str(getattr(self.attack, "norm", "l2"))

    @property
    def foreign(self) -> bool:
        """Whether its examples count in a ball of another norm: it did not look for what would stand there."""
        return self.capped and self.norm != self.result.threat.norm

    @cached_property
    def threat(self) -> Threat:
        """Where its examples count: its own ball, its suite's, or the L2 cap; of a search in L∞ half of what it found.

        What is near in L∞ is far in L2 by nature, so that the cap would judge such a search by what it does not do.
        """
        if self.capped:
            return self.result.threat
        found = self.result.distortion_linf[self.result.found]
        if self.bounded or self.norm == "l2" or len(found) == 0:
            return self.attack.threat(self.cap)
        # A little less, so that what lies at the very edge is not called missed.
        return dataclasses.replace(self.attack.threat(), epsilon=0.95 * float(np.median(found)))

    def changed(self, **settings: Any) -> Any:
        """The same attack with other settings."""
        if not dataclasses.is_dataclass(self.attack) or isinstance(self.attack, type):
            raise NotApplicable(f"{self.name} is not a dataclass: it cannot be built again with {', '.join(settings)}")
        return dataclasses.replace(self.attack, **settings)

    def scaled(self, factor: float) -> Any:
        """The same attack with a ball (and a step, where it has one) larger by ``factor``."""
        settings = {name: getattr(self.attack, name, None) for name in ("epsilon", "step_size")}
        return self.changed(**{name: factor * value for name, value in settings.items() if value is not None})

    def direction(self, slopes: np.ndarray) -> np.ndarray:
        """Slopes as steps of length 1 in the threat's norm."""
        if self.threat.norm == "linf":
            return np.sign(slopes)
        return slopes / np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), 1e-300)

    def projected(self, X: np.ndarray, points: np.ndarray, limits: tuple[Any, Any]) -> np.ndarray:
        """The points brought into the ball around X and into the limits."""
        delta, epsilon = points - X, self.threat.epsilon
        if self.threat.norm == "linf":
            delta = np.clip(delta, -epsilon, epsilon)
        else:
            delta = delta * np.minimum(1.0, epsilon / np.maximum(np.linalg.norm(delta, axis=1), 1e-300))[:, None]
        return np.clip(X + delta, *limits)

    def broken(self, result: Any = None) -> np.ndarray:
        """Which points it broke where that counts, (n,) bool; or those of another ``result`` of the same attack."""
        result = self.result if result is None else result
        near = result.distortion(self.threat.norm) <= self.threat.epsilon
        return result.success if self.bounded else result.success & near

    @property
    def standing(self) -> np.ndarray:
        """Positions of the points it did not break where that counts."""
        return np.flatnonzero(~self.broken())

    @property
    def found(self) -> np.ndarray:
        """Positions of the points it broke itself, at any distance."""
        return np.flatnonzero(self.result.success & (self.result.distortion_l2 > 0))


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
    def scale(self) -> float:
        """Median distance between points of the sample: the length by which small and large are judged."""
        X = self.sample.astype(np.float64)
        distances = np.linalg.norm(X[:, None] - X[None], axis=2)
        return float(np.median(distances[distances > 0])) if (distances > 0).any() else 1.0

    @cached_property
    def target(self) -> Any:
        """The model as attacks see it."""
        from attacks import as_target

        return as_target(self.model)

    @cached_property
    def precise(self) -> Any:
        """The same model in float64 arithmetic, or None where it has no such twin."""
        if not (hasattr(self.model, "get_state") and hasattr(type(self.model), "from_state")):
            return None
        meta, arrays = self.model.get_state()
        if meta.get("dtype") != "float32":
            return None
        return type(self.model).from_state(meta | {"dtype": "float64"}, arrays)

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
        from models.grid import with_settings
        from pipeline.stages.build import build_model

        if is_fitted(self.cfg):
            raise NotApplicable("the model was fitted elsewhere: nothing is trained here")
        model = with_settings(build_model(self.cfg.model, self.data, self.cfg.seed), self.tuned.best)
        return model.set_params(**settings)


@dataclass(frozen=True)
class CheckContext(ModelContext):
    """A whole run: the same with an attack's result. ``attack`` is built anew from the configuration if not given.

    ``verdicts`` are what the run says of every attacked row in its own threat: certified, broken or undecided.
    """

    attacked: Attacked
    attack: Any = None
    verdicts: Verdicts | None = None

    def __post_init__(self) -> None:
        if self.attack is None:
            from pipeline.stages.build import build_attack

            object.__setattr__(self, "attack", build_attack(self.cfg, self.data))

    @cached_property
    def X(self) -> np.ndarray:
        """Clean points that were attacked, (n, d)."""
        return np.ascontiguousarray(self.data.X_test[self.attacked.rows])

    @cached_property
    def y(self) -> np.ndarray:
        """Their labels."""
        return self.data.y_test[self.attacked.rows]

    @property
    def many(self) -> bool:
        """Whether there are more than two classes: what attacks call scores are then margins of the label."""
        return self.data.n_classes > 2

    @cached_property
    def signs(self) -> np.ndarray:
        """Their labels as -1 and +1: a margin is sign · score."""
        return np.ones(len(self.y)) if self.many else np.where(self.y == self.model.classes_[1], 1.0, -1.0)

    def margins_of(self, points: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Margins of labels at points, (k,): negative where another class is predicted."""
        points = np.ascontiguousarray(points, dtype=self.data.X_test.dtype)
        if self.many:
            return np.asarray(self.target.margins(points, self.target.codes(labels, "y")))
        return np.asarray(np.where(labels == self.model.classes_[1], 1.0, -1.0) * np.asarray(self.model.scores(points)))

    def slopes_at(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Gradients of the margins of some attacked rows at points that stand for them, (k, d)."""
        points = np.ascontiguousarray(points, dtype=self.X.dtype)
        if not self.many:
            found = np.asarray(self.target.scores_and_gradients(points)[1], dtype=np.float64)
            return np.asarray(self.signs[rows][:, None] * found)
        slopes, codes = np.empty(points.shape), self.target.codes(self.y[rows], "y")
        for code in np.unique(codes):
            slopes[codes == code] = self.target.against(int(code)).scores_and_gradients(points[codes == code])[1]
        return slopes

    @property
    def has_gradients(self) -> bool:
        """Whether the model gives any."""
        from attacks.targets import has_gradients

        return has_gradients(self.target)

    @cached_property
    def constraints(self) -> Any:
        """What limits the attacker beyond ball and box, or None."""
        from pipeline.stages.build import attack_constraints

        return attack_constraints(self.cfg, self.data)

    def limits(self, part: Part, rows: np.ndarray) -> tuple[Any, Any]:
        """Smallest and largest values that an attacker may give the features of these rows."""
        if self.constraints is None:
            return part.threat.box
        lower, upper = self.constraints.region(self.X[rows], part.threat.box)
        return lower, upper

    @cached_property
    def margins(self) -> np.ndarray:
        """Margins of the clean points, as the attack saw them."""
        return self.signs * self.attacked.result.clean_scores

    @cached_property
    def results(self) -> list[Part]:
        """Every result of the run: of its attacks one by one, and for a suite that of them all together."""
        result, cap = self.attacked.result, float(self.cfg.evaluation.l2_cap)
        members = self.attack.members() if getattr(result, "results", None) else {}
        parts = [Part(name, attack, result.results[name], cap) for name, attack in members.items()]
        return [*parts, Part(str(result.attack), self.attack, result, cap)]

    @cached_property
    def parts(self) -> list[Part]:
        """The attacks of the run one by one, without those that attack nothing."""
        from attacks import NoAttack

        single = self.results[:-1] or self.results
        moving = [part for part in single if not isinstance(part.attack, NoAttack)]
        return [part for part in moving if not part.bounded or part.threat.epsilon > 0]

    @cached_property
    def training_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Some training rows, (m, d), and their labels, (m,)."""
        rows = evenly(np.arange(len(self.data.X_train)), 256)
        return np.asarray(self.data.X_train[rows], dtype=np.float64), self.data.y_train[rows]

    @cached_property
    def plain_model(self) -> Any:
        """An undefended SVC on at most 1,000 training rows."""
        from sklearn.svm import SVC

        rows = evenly(np.arange(len(self.data.X_train)), 1000)
        return SVC(C=10.0).fit(self.data.X_train[rows], self.data.y_train[rows])

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
