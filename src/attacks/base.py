"""The two kinds of attack, and the one final call they share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch

from attacks.anchors import Anchors
from attacks.geometry import Limit, distortions, linf_limits, project_l2, row_distances, rows_of
from attacks.problem import AttackState, Observer, Problem, Progress, Records, Request, RunResult, misclassified, shared
from attacks.result import AttackResult, capped, joined
from attacks.targets import ManyClasses, as_target, has_gradients
from attacks.validation import (
    Unattackable,
    check_epsilon,
    check_labels,
    check_points,
    check_scores,
    labels_to_leave,
)
from models.limits import SEED, at_least, check_limits, whole
from models.threat import NORM, Constraints, Threat, check_box, check_constraints


class Attacker(ABC):
    """Anything that is called as an attack is: one attack, several, or one on another model."""

    def __call__(
        self,
        model: Any,
        X: np.ndarray,
        y: np.ndarray,
        epsilons: float | Sequence[float] | None = None,
        observer: Observer | None = None,
        reference: np.ndarray | None = None,
        targets: np.ndarray | None = None,
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
        targets : ndarray (n,), optional
            Labels to reach: a row is broken when its target is predicted, not when any wrong label is. With more than
            two classes ``scores`` of the result are margins: of y against its strongest rival, or of the target.

        Returns
        -------
        AttackResult, or a list of them when `epsilons` is a sequence
        """
        wanted = None if epsilons is None else [check_epsilon(e, "epsilons") for e in np.atleast_1d(epsilons)]
        if wanted == []:
            raise ValueError("epsilons must hold at least one radius, got an empty sequence")
        results = self.results(model, Request(X, y, wanted, observer, reference, targets))
        return results if epsilons is not None and np.ndim(epsilons) > 0 else results[0]

    @abstractmethod
    def results(self, model: Any, asked: Request) -> list[AttackResult]:
        """One for every epsilon, in the order given; one at the own threat without them."""


@dataclass(frozen=True, kw_only=True)
class Attack(Attacker):
    """Settings every attack has.

    Parameters
    ----------
    box : (float, float), a pair of arrays (d,), or None
        Smallest and largest value of the features; None is everywhere.
    constraints : Constraints, optional
        What else the attacker cannot do.
    chunk_size : int
        Rows attacked at once: bounds the memory of the attack's own state. Results do not depend on it.
    dtype : {"float32", "float64"}
        Of the examples and of the attack's arithmetic.
    random_state : int
    """

    box: Any = (0.0, 1.0)
    constraints: Constraints | None = None
    chunk_size: Annotated[int, whole(1)] = 512
    dtype: str = "float32"
    random_state: Annotated[int, SEED] = 0

    name: ClassVar[str] = "attack"
    needs_gradients: ClassVar[bool] = True
    needs_scores: ClassVar[bool] = True
    costly: ClassVar[bool] = False  # searches long for every single example
    bounded: ClassVar[bool]

    @property
    def begins_at_clean(self) -> bool:
        """Whether it first asks for the gradients at the clean points."""
        return False

    @classmethod
    def of(cls, threat: Threat, **settings: Any) -> Self:
        """The attack in this threat: its box and constraints, and its norm and radius where the attack has them."""
        told = {"norm": threat.norm, "epsilon": threat.epsilon, "box": threat.box, "constraints": threat.constraints}
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in told.items() if name in known} | settings)

    def __post_init__(self) -> None:
        if self.box is None:
            object.__setattr__(self, "box", (-math.inf, math.inf))
        check_box(self.box)
        check_limits(self)
        check_constraints(self.constraints)
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64', got {self.dtype!r}")

    @abstractmethod
    def threat(self, l2_cap: float = math.inf) -> Threat:
        """What its result speaks about: its own ball, or L2 at `l2_cap` if it has none."""

    @abstractmethod
    def run(self, problem: Problem) -> RunResult:
        """Attack the rows of one chunk, all of them correctly classified."""

    @abstractmethod
    def _evaluate(self, state: AttackState, epsilons: list[float] | None) -> list[AttackResult]:
        """Results for every epsilon, in the order given."""

    def results(self, model: Any, asked: Request) -> list[AttackResult]:
        target = as_target(model)
        self.check_access(target, model)
        if isinstance(target, ManyClasses):
            return self._by_class(target, asked)
        points = check_points(asked.X, self.dtype, self.box)
        classes = getattr(target, "classes_", None)
        signs = check_labels(labels_to_leave(asked.y, asked.targets, len(points), classes), len(points), classes)
        extra = None if asked.reference is None else check_points(asked.reference, self.dtype, self.box, "reference")
        if extra is not None and extra.shape[1] != points.shape[1]:
            raise ValueError(f"reference must have {points.shape[1]} columns like X, got {extra.shape[1]}")
        scores = check_scores(target.scores(points), len(points))
        state = AttackState(target, points, signs, scores, asked.observer, extra, self._limits(points))
        if self.begins_at_clean:
            self._look_ahead(state)
        return self._evaluate(state, asked.epsilons)

    def check_access(self, target: Any, model: Any) -> None:
        """Whether the model answers what the attack asks for."""
        if self.needs_scores and getattr(target, "labels_only", False):
            raise Unattackable(
                f"model {type(model).__name__} gives labels only, but {type(self).__name__} needs scores: "
                "use HopSkipJump or give the model decision_function"
            )
        if self.needs_gradients and not has_gradients(target):
            raise Unattackable(
                f"model {type(model).__name__} gives scores only, but {type(self).__name__} needs gradients: "
                "use a black-box attack (ZOO) or give the model scores_and_gradients"
            )

    def _by_class(self, target: ManyClasses, asked: Request) -> list[AttackResult]:
        """The rows of each label (or target) against that class alone: a margin like any other."""
        points, wanted, others = check_points(asked.X, self.dtype, self.box), asked.targets, asked.reference
        if np.shape(asked.y) != (len(points),) or (wanted is not None and np.shape(wanted) != (len(points),)):
            raise ValueError(f"y and targets must have shape ({len(points)},) to match X")
        codes = target.codes(asked.y, "y") if wanted is None else target.codes(wanted, "targets")
        others = points if others is None else np.concatenate([points, np.asarray(others, dtype=points.dtype)])
        found, places = [], []
        for number, code in enumerate(np.unique(codes)):
            rows = np.flatnonzero(codes == code)
            signs = np.full(len(rows), 1 if wanted is None else -1)
            watch = shared(asked.observer, number, len(np.unique(codes)))
            part = Request(points[rows], signs, asked.epsilons, watch, others)
            found.append(self.results(target.against(int(code)), part))
            places.append(rows)
        order = np.argsort(np.concatenate(places))
        return [joined(list(of_classes), order) for of_classes in zip(*found)]

    def _limits(self, X: np.ndarray) -> tuple[Limit, Limit]:
        """Smallest and largest values of the features: two numbers, or arrays (n, d) where rows or features differ."""
        lowest, highest = (np.asarray(limit, dtype=X.dtype) for limit in self.box)
        if self.constraints is not None:
            return self.constraints.limits(X, lowest, highest)
        if lowest.ndim or highest.ndim:
            return np.broadcast_to(lowest, X.shape).copy(), np.broadcast_to(highest, X.shape).copy()
        return float(self.box[0]), float(self.box[1])

    def _whole(self, state: AttackState, points: np.ndarray, rows: np.ndarray, threat: Threat) -> np.ndarray:
        """Bring whole numbers and categories in order, then change them one at a time while that lowers the margin."""
        constraints = self.constraints
        if constraints is None or not constraints.discrete or len(rows) == 0:
            return points
        X, low, high = state.X[rows], rows_of(state.limits[0], rows), rows_of(state.limits[1], rows)
        assert isinstance(low, np.ndarray)
        assert isinstance(high, np.ndarray)
        if threat.norm == "linf" and threat.bounded:
            low, high = linf_limits(X, threat.epsilon, (low, high))

        def within(candidates: np.ndarray, place: Any = slice(None)) -> np.ndarray:
            return row_distances(candidates.astype(np.float64) - X[place], threat.norm) <= threat.epsilon

        def descend(i: int, point: np.ndarray, margin: float) -> tuple[np.ndarray, float]:
            while margin > 0:
                others = [*constraints.neighbours(point, X[i], low[i], high[i])]
                others = [other for other in others if within(other[None], slice(i, i + 1))[0]]
                if not others:
                    break
                found = state.signs[rows[i]] * state.scores_at(np.stack(others))
                if found.min() >= margin:
                    break
                point, margin = others[found.argmin()], float(found.min())
            return point, margin

        # Two starts: what the attack found, rounded, and that with the whole numbers and categories of the clean point.
        snapped = constraints.snap(points[rows], X, low, high, within)
        unchanged = constraints.snap(points[rows], X, low, high, lambda candidates: np.zeros(len(rows), dtype=bool))
        margins = state.signs[rows] * np.stack([state.scores_at(start) for start in (snapped, unchanged)])
        points = points.copy()
        for i, row in enumerate(rows):
            best = descend(i, snapped[i], float(margins[0, i]))
            if best[1] > 0:
                best = min(best, descend(i, unchanged[i], float(margins[1, i])), key=lambda found: found[1])
            points[row] = best[0]
        return points

    def _look_ahead(self, state: AttackState) -> None:
        """The gradients at the clean points, for every radius to come; and whether they come with the same scores."""
        gradients = np.empty_like(state.X)
        for start in range(0, len(state.X), self.chunk_size):
            rows = slice(start, start + self.chunk_size)
            found, gradients[rows] = state.target.scores_and_gradients(state.X[rows])
            error = np.abs(check_scores(found, len(state.X[rows])) - state.scores[rows])
            state.score_error = max(state.score_error, float(error.max()))
        state.gradients = gradients

    def _attack(
        self, state: AttackState, open_rows: np.ndarray, epsilon: float | None
    ) -> tuple[np.ndarray, np.ndarray, Records]:
        """Run chunk by chunk over `open_rows`; best points and their margins (or NaN) for all rows, and the records."""
        points = state.X.copy()
        margins = state.signs * state.scores
        search = Records(len(points))
        closed = len(points) - len(open_rows)
        report = Progress(state.observer, len(points), closed)
        none_known = Anchors(state.X[:0], state.scores[:0])
        anchors = state.anchors(self.box, self.random_state) if self._uses_anchors else none_known
        for start in range(0, len(open_rows), self.chunk_size):
            rows = open_rows[start : start + self.chunk_size]
            problem = Problem(
                target=state.target,
                X=state.X[rows],
                signs=state.signs[rows],
                margins=(state.signs * state.scores)[rows],
                gradients=None if state.gradients is None else state.gradients[rows],
                rows=rows,
                box=(rows_of(state.limits[0], rows), rows_of(state.limits[1], rows)),
                epsilon=epsilon,
                tolerance=state.tolerance,
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

    def _history(self, search: Records, already: np.ndarray) -> dict[str, Any]:
        """Turn the per-example records into the result's history."""
        return {}

    def _result(
        self, state: AttackState, points: np.ndarray, search: Records, threat: Threat, scores: np.ndarray
    ) -> AttackResult:
        l2, linf = distortions(points, state.X)
        return AttackResult(
            attack=self.name,
            threat=threat,
            examples=points,
            success=misclassified(scores, state.signs),
            distortion_l2=l2,
            distortion_linf=linf,
            queries=search.queries,
            gradient_evaluations=search.gradient_evaluations,
            clean_scores=state.scores,
            scores=scores,
            already_misclassified=state.already,
            history=self._history(search, state.already),
            notes=tuple(state.notes),
        )


@dataclass(frozen=True)
class FixedEpsilonAttack(Attack):
    """Looks for a misclassified point inside a ball; a subclass writes `run`.

    Parameters
    ----------
    epsilon : float
        Radius in `norm`, in the units of the features.
    norm : {"linf", "l2"}
    """

    epsilon: Annotated[float, at_least(0)] = 8 / 255
    norm: Annotated[str, NORM] = "linf"

    bounded: ClassVar[bool] = True

    def threat(self, l2_cap: float = math.inf) -> Threat:
        return Threat(self.norm, self.epsilon, self.box, constraints=self.constraints)

    def _evaluate(self, state: AttackState, epsilons: list[float] | None) -> list[AttackResult]:
        radii = [float(self.epsilon)] if epsilons is None else epsilons
        results: dict[float, AttackResult] = {}
        smaller: AttackResult | None = None
        spent: Records | None = None
        # From the smallest ball to the largest: an example found in a ball lies in every larger one, so accuracy
        # can only fall with epsilon, and points once broken are not attacked again.
        for epsilon in sorted(set(radii)):
            broken = state.already if smaller is None else smaller.success
            points, margins, search = self._attack(state, np.flatnonzero(~broken), epsilon)
            if smaller is not None and spent is not None:
                points[broken] = smaller.examples[broken]
                margins[broken] = (state.signs * smaller.scores)[broken]
                search.carry(spent, broken)
            points, scores = self._judge(state, points, margins, broken, epsilon)
            spent = search
            smaller = results[epsilon] = self._result(
                state, points, search, replace(self.threat(), epsilon=epsilon), scores
            )
        return [results[epsilon] for epsilon in radii]

    def _judge(
        self, state: AttackState, points: np.ndarray, margins: np.ndarray, judged: np.ndarray, epsilon: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The points brought into ball and box, and their scores.

        A row the attack itself saw standing by more than rounding is taken at its word, if its point was not moved and
        the scores that came with the gradients were the model's; whatever it claims to have broken is scored again.
        """
        inside = self._enforce(points, state.X, epsilon, state.limits)
        inside = self._whole(state, inside, np.flatnonzero(~judged), replace(self.threat(), epsilon=epsilon))
        asked = ~(margins > state.gradient_tolerance) & ~judged
        asked |= (torch.from_numpy(inside) != torch.from_numpy(points)).any(1).numpy()
        scores = state.signs * margins
        if asked.any():
            scores[asked] = state.scores_at(inside[asked])
        return inside, scores

    def _enforce(self, points: np.ndarray, X: np.ndarray, epsilon: float, limits: tuple[Limit, Limit]) -> np.ndarray:
        if self.norm == "linf":
            lower, upper = (torch.from_numpy(limit) for limit in linf_limits(X, epsilon, limits))
            return torch.clamp(torch.from_numpy(points), lower, upper).numpy()
        return project_l2(points, X, epsilon, limits)


@dataclass(frozen=True, kw_only=True)
class MinimumNormAttack(Attack):
    """Looks for the nearest misclassified point, however far, in L2; a subclass writes `run`."""

    bounded: ClassVar[bool] = False
    costly: ClassVar[bool] = True

    _uses_anchors: ClassVar[bool] = True

    def threat(self, l2_cap: float = math.inf) -> Threat:
        return Threat("l2", l2_cap, self.box, constraints=self.constraints)

    def _evaluate(self, state: AttackState, epsilons: list[float] | None) -> list[AttackResult]:
        open_rows = np.flatnonzero(~state.already)
        points, _, search = self._attack(state, open_rows, None)
        points = self._whole(state, np.clip(points, *state.limits), open_rows, self.threat())
        points, scores = self._settle(state, points)
        failed = ~misclassified(scores, state.signs)
        points[failed], scores[failed] = state.X[failed], state.scores[failed]
        if failed.any():
            state.notes.append(f"no adversarial example found for {failed.sum()} of {len(failed)} points")
        result = self._result(state, points, search, self.threat(), scores)
        return (
            [result]
            if epsilons is None
            else [capped(result, state.X, replace(self.threat(), epsilon=cap)) for cap in epsilons]
        )

    def _settle(self, state: AttackState, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Score the examples as the caller will see them; push those that rounding put back a little further."""
        moved = (points != state.X).any(axis=1)
        stretch = 1e-4
        for _ in range(8):
            scores = state.scores_at(points)
            back = np.flatnonzero(moved & ~misclassified(scores, state.signs))
            if len(back) == 0 or (self.constraints is not None and self.constraints.discrete):
                break
            further = points[back] + stretch * (points[back] - state.X[back])
            points[back] = np.clip(further, rows_of(state.limits[0], back), rows_of(state.limits[1], back))
            stretch *= 2.0
        return points, scores
