"""The two kinds of attack, and the one final call they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from .anchors import Anchors
from .geometry import distortions, linf_limits, project_l2
from .problem import Found, Problem, misclassified
from .result import AttackResult, capped
from .scene import Observer, Progress, Scene, Search
from .targets import as_target, has_gradients
from .validation import check_box, check_count, check_epsilon, check_labels, check_points, check_scores


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Settings every attack has.

    Parameters
    ----------
    box : (float, float)
        Smallest and largest pixel value.
    chunk_size : int
        Rows attacked at once: bounds the memory of the attack's own state. Results do not depend on it.
    dtype : {"float32", "float64"}
        Of the examples and of the attack's arithmetic.
    random_state : int
    """

    box: tuple[float, float] = (0.0, 1.0)
    chunk_size: int = 512
    dtype: str = "float32"
    random_state: int = 0

    name: ClassVar[str] = "attack"
    needs_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_box(self.box)
        check_count(self.chunk_size, "chunk_size")
        check_count(self.random_state, "random_state", least=0)
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64', got {self.dtype!r}")

    @abstractmethod
    def run(self, problem: Problem) -> Found:
        """Attack the rows of one chunk, all of them correctly classified."""

    @abstractmethod
    def _evaluate(self, scene: Scene, epsilons: list[float] | None) -> list[AttackResult]:
        """Results for every epsilon, in the order given."""

    def __call__(
        self,
        model: Any,
        X: np.ndarray,
        y: np.ndarray,
        epsilons: float | Sequence[float] | None = None,
        observer: Observer | None = None,
        reference: np.ndarray | None = None,
    ) -> Any:
        """Attack every row of X.

        Parameters
        ----------
        model : object or callable
            See :func:`attacks.as_target`.
        X : ndarray (n, d), pixels inside `box`
        y : ndarray (n,)
            Labels out of ``model.classes_``; -1 and +1 for a plain function.
        epsilons : float or sequence of floats, optional
            Radii in the attack's norm, instead of its own. A sequence gives a list of results. For a minimum-norm
            attack these are L2 caps on one and the same search.
        observer : callable, optional
            ``observer("attack", step, total, robust_accuracy=...)``, at most about a hundred times per epsilon.
        reference : ndarray (m, d), optional
            More points (training rows, say) among which to look for points of the other class.

        Returns
        -------
        AttackResult, or a list of them when `epsilons` is a sequence
        """
        target = as_target(model)
        if self.needs_gradients and not has_gradients(target):
            raise ValueError(
                f"model {type(model).__name__} gives scores only, but {type(self).__name__} needs gradients: "
                "use a black-box attack (ZOO) or give the model scores_and_gradients"
            )
        points = check_points(X, self.dtype, self.box)
        signs = check_labels(y, len(points), getattr(target, "classes_", None))
        several = epsilons is not None and np.ndim(epsilons) > 0
        wanted = None if epsilons is None else [check_epsilon(e, "epsilons") for e in np.atleast_1d(epsilons)]
        if wanted == []:
            raise ValueError("epsilons must hold at least one radius, got an empty sequence")
        extra = None if reference is None else check_points(reference, self.dtype, self.box, "reference")
        if extra is not None and extra.shape[1] != points.shape[1]:
            raise ValueError(f"reference must have {points.shape[1]} columns like X, got {extra.shape[1]}")
        scene = Scene(target, points, signs, check_scores(target.scores(points), len(points)), observer, extra)
        if self.begins_at_clean:
            self._look_ahead(scene)
        results = self._evaluate(scene, wanted)
        return results if several else results[0]

    def _look_ahead(self, scene: Scene) -> None:
        """The gradients at the clean points, for every radius to come; and whether they come with the same scores."""
        gradients = np.empty_like(scene.X)
        for start in range(0, len(scene.X), self.chunk_size):
            rows = slice(start, start + self.chunk_size)
            found, gradients[rows] = scene.target.scores_and_gradients(scene.X[rows])
            doubt = np.abs(check_scores(found, len(scene.X[rows])) - scene.scores[rows])
            scene.doubt = max(scene.doubt, float(doubt.max()))
        scene.gradients = gradients

    @property
    def begins_at_clean(self) -> bool:
        """Whether it first asks for the gradients at the clean points."""
        return False

    def _attack(
        self, scene: Scene, open_rows: np.ndarray, epsilon: float | None
    ) -> tuple[np.ndarray, np.ndarray, Search]:
        """Run chunk by chunk over `open_rows`; best points and their margins (or NaN) for all rows, and the records."""
        points = scene.X.copy()
        margins = scene.signs * scene.scores
        search = Search(len(points))
        closed = len(points) - len(open_rows)
        report = Progress(scene.observer, len(points), closed)
        anchors = (
            scene.anchors(self.box, self.random_state) if self._uses_anchors else Anchors(scene.X[:0], scene.scores[:0])
        )
        for start in range(0, len(open_rows), self.chunk_size):
            rows = open_rows[start : start + self.chunk_size]
            problem = Problem(
                target=scene.target,
                X=scene.X[rows],
                signs=scene.signs[rows],
                margins=(scene.signs * scene.scores)[rows],
                gradients=None if scene.gradients is None else scene.gradients[rows],
                trusted=np.isfinite(scene.cushion_of_gradients),
                rows=rows,
                box=self.box,
                epsilon=epsilon,
                cushion=scene.cushion,
                anchors=anchors,
                progress=report.chunk(start / len(open_rows), len(rows) / len(open_rows)),
            )
            found = self.run(problem)
            points[rows] = found.points
            margins[rows] = np.nan if found.margins is None else found.margins
            search.record(rows, problem, found)
        report.finish()
        return points, margins, search

    _uses_anchors: ClassVar[bool] = False

    def _history(self, search: Search, already: np.ndarray) -> dict[str, Any]:
        """Turn the per-example records into the result's history."""
        return {}

    def _result(
        self, scene: Scene, points: np.ndarray, search: Search, epsilon: float | None, scores: np.ndarray
    ) -> AttackResult:
        l2, linf = distortions(points, scene.X)
        return AttackResult(
            attack=self.name,
            epsilon=epsilon,
            examples=points,
            success=misclassified(scores, scene.signs),
            distortion_l2=l2,
            distortion_linf=linf,
            queries=search.queries,
            gradient_evaluations=search.gradient_evaluations,
            clean_scores=scene.scores,
            scores=scores,
            already_misclassified=scene.already,
            history=self._history(search, scene.already),
            notes=tuple(scene.notes),
        )


@dataclass(frozen=True, kw_only=True)
class FixedEpsilonAttack(Attack):
    """Looks for a misclassified point inside a ball; a subclass has `epsilon`, `norm` and writes `run`."""

    epsilon: float
    norm: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.epsilon)
        if self.norm not in ("linf", "l2"):
            raise ValueError(f"norm must be 'linf' or 'l2', got {self.norm!r}")

    def _evaluate(self, scene: Scene, epsilons: list[float] | None) -> list[AttackResult]:
        radii = [float(self.epsilon)] if epsilons is None else epsilons
        results: dict[float, AttackResult] = {}
        smaller: AttackResult | None = None
        spent: Search | None = None
        # From the smallest ball to the largest: an example found in a ball lies in every larger one, so accuracy
        # can only fall with epsilon, and points once broken are not attacked again.
        for epsilon in sorted(set(radii)):
            broken = scene.already if smaller is None else smaller.success
            points, margins, search = self._attack(scene, np.flatnonzero(~broken), epsilon)
            if smaller is not None and spent is not None:
                points[broken] = smaller.examples[broken]
                margins[broken] = (scene.signs * smaller.scores)[broken]
                search.carry(spent, broken)
            points, scores = self._judge(scene, points, margins, broken, epsilon)
            spent = search
            smaller = results[epsilon] = self._result(scene, points, search, epsilon, scores)
        return [results[epsilon] for epsilon in radii]

    def _judge(
        self, scene: Scene, points: np.ndarray, margins: np.ndarray, judged: np.ndarray, epsilon: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The points brought into ball and box, and their scores.

        A row the attack itself saw standing by more than rounding is taken at its word, if its point was not moved and
        the scores that came with the gradients were the model's; whatever it claims to have broken is scored again.
        """
        inside = self._enforce(points, scene.X, epsilon)
        asked = ~(margins > scene.cushion_of_gradients) & ~judged
        asked |= (torch.from_numpy(inside) != torch.from_numpy(points)).any(1).numpy()
        scores = scene.signs * margins
        if asked.any():
            scores[asked] = check_scores(scene.target.scores(inside[asked]), int(asked.sum()))
        return inside, scores

    def _enforce(self, points: np.ndarray, X: np.ndarray, epsilon: float) -> np.ndarray:
        if self.norm == "linf":
            lower, upper = (torch.from_numpy(limit) for limit in linf_limits(X, epsilon, self.box))
            return torch.clamp(torch.from_numpy(points), lower, upper).numpy()
        return project_l2(points, X, epsilon, self.box)


@dataclass(frozen=True, kw_only=True)
class MinimumNormAttack(Attack):
    """Looks for the nearest misclassified point, however far, in L2."""

    _uses_anchors: ClassVar[bool] = True

    def _evaluate(self, scene: Scene, epsilons: list[float] | None) -> list[AttackResult]:
        open_rows = np.flatnonzero(~scene.already)
        points, _, search = self._attack(scene, open_rows, None)
        points = np.clip(points, *self.box)
        points, scores = self._settle(scene, points)
        failed = ~misclassified(scores, scene.signs)
        points[failed], scores[failed] = scene.X[failed], scene.scores[failed]
        if failed.any():
            scene.notes.append(f"no adversarial example found for {failed.sum()} of {len(failed)} points")
        result = self._result(scene, points, search, None, scores)
        return [result] if epsilons is None else [capped(result, scene.X, cap) for cap in epsilons]

    def _settle(self, scene: Scene, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Score the examples as the caller will see them; push those that rounding put back a little further."""
        moved = (points != scene.X).any(axis=1)
        stretch = 1e-4
        for _ in range(8):
            scores = check_scores(scene.target.scores(points), len(points))
            back = np.flatnonzero(moved & ~misclassified(scores, scene.signs))
            if len(back) == 0:
                break
            points[back] = np.clip(points[back] + stretch * (points[back] - scene.X[back]), *self.box)
            stretch *= 2.0
        return points, scores
