"""Models, attacks and certificates that are wrong on purpose, each in one way."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from sklearn.svm import SVC

from attacks import FGSM, PGD, AttackResult, CarliniWagner, NoAttack
from attacks.targets import ManyClasses, as_target, batched_queries
from models import AdvSVM, KernelSVC
from pipeline.data.windows import row_digests


class Wrapped:
    """An honest model behind the protocol; subclasses break one answer."""

    def __init__(self, model: Any):
        self.model = model
        self.classes_ = model.classes_

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def scores(self, X):
        return self.model.scores(X)

    def predict(self, X):
        return self.classes_[(self.scores(X) > 0).astype(int)]

    def scores_and_gradients(self, X):
        return self.model.scores_and_gradients(X)

    def probe(self, X, coords, h):
        return self.model.probe(X, coords, h)


class StretchedGradient(Wrapped):
    """Gradients 1 % too long."""

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        return scores, 1.01 * gradients


class StretchedSVC(KernelSVC):
    """The same for a model that has a twin in float64."""

    def scores_and_gradients(self, X):
        scores, gradients = super().scores_and_gradients(X)
        return scores, 1.01 * gradients


class ShuffledGradient(Wrapped):
    """Gradients of the right length with their coordinates reversed."""

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        return scores, np.ascontiguousarray(gradients[:, ::-1])


class HingeGradient(Wrapped):
    """Gradients of the hinge loss: exactly 0 beyond the margin."""

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        margin = np.quantile(np.abs(scores), 0.25)
        return scores, np.where((np.abs(scores) > margin)[:, None], 0.0, gradients)


class DeadAtOnePoint(Wrapped):
    """No gradient at ``point``."""

    point = None

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        dead = (np.asarray(X) == (0 if self.point is None else self.point)).all(axis=1)
        return scores, np.where(dead[:, None], 0.0, gradients)


class OutOfMemoryOnce(Wrapped):
    """Its first gradient at a few points does not fit into memory."""

    def __init__(self, model):
        super().__init__(model)
        self.refused = False

    def scores_and_gradients(self, X):
        if len(X) == 16 and not self.refused:
            self.refused = True
            raise MemoryError("no room")
        return self.model.scores_and_gradients(X)


class FewDeadRows(Wrapped):
    """No gradient for the twentieth of all points with the largest score."""

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        return scores, np.where((np.abs(scores) > 0.9 * np.abs(scores).max())[:, None], 0.0, gradients)


class MostlyRightGradient(Wrapped):
    """Another point's gradient at every tenth point, chosen by its content."""

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        wrong = (np.asarray(X, dtype=np.float64).sum(axis=1) * 1e3 % 10 < 1)[:, None]
        return scores, np.where(wrong, -gradients, gradients)


class RightAtDataGradient(Wrapped):
    """True gradients at the points it knows, reversed ones anywhere else."""

    known = None

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        there = np.isin(row_digests(np.asarray(X, dtype=np.float32)), row_digests(self.known))[:, None]
        return scores, np.where(there, gradients, gradients[:, ::-1])


class HalfGradient(Wrapped):
    """The gradient's components of the left half only: true along itself."""

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        return scores, np.where(np.arange(gradients.shape[1]) < gradients.shape[1] / 2, gradients, 0)


class Saturated(Wrapped):
    """A steep sigmoid over the scores, with its true gradient (and a trace of slope wherever it rounds to 0)."""

    def squash(self, scores):
        return np.tanh(100 * scores), np.maximum(100 / np.cosh(np.minimum(100 * np.abs(scores), 300)) ** 2, 1e-30)

    def scores(self, X):
        return self.squash(np.asarray(self.model.scores(X), dtype=np.float64))[0]

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        squashed, slopes = self.squash(np.asarray(scores, dtype=np.float64))
        return squashed, slopes[:, None] * gradients

    def probe(self, X, coords, h):
        return tuple(self.squash(side)[0] for side in self.model.probe(X, coords, h))


class Clipped(Saturated):
    """Scores cut at a small size, with a gradient that does not know."""

    def squash(self, scores):
        return np.clip(scores, -0.1, 0.1), np.ones_like(scores)


class HashedNoise(Wrapped):
    """The same score for the same point, but every point has a noise of its own: a fog that gradients are lost in."""

    def scores(self, X):
        scores = np.asarray(self.model.scores(X), dtype=np.float64)
        digests = row_digests(np.asarray(X, dtype=np.float32))
        return scores + 0.3 * np.abs(scores).max() * (digests.astype(np.float64) / 2**64 - 0.5)

    def scores_and_gradients(self, X):
        return self.scores(X), self.model.scores_and_gradients(X)[1]

    def probe(self, X, coords, h):
        return batched_queries(self.scores, X, coords, h)


class NoisyScores(Wrapped):
    """Another score at every call."""

    rng = np.random.default_rng(0)

    def scores(self, X):
        scores = self.model.scores(X)
        return scores * (1 + 1e-6 * self.rng.standard_normal(len(scores)))


class LeftInTraining(Wrapped):
    """A network with one more layer behind its first, which was not told that training is over."""

    def __init__(self, model, layer):
        super().__init__(model)
        self.network = torch.nn.Sequential(*model.network_[:2], layer.train(), *model.network_[2:])

    def scores(self, X):
        return self.scores_and_gradients(X)[0]

    def scores_and_gradients(self, X):
        rows = torch.from_numpy(np.array(X, dtype=np.float32)).requires_grad_()
        logits = self.network(rows)
        scores = logits[:, 1] - logits[:, 0]
        (gradients,) = torch.autograd.grad(scores.sum(), rows)
        return scores.detach().double().numpy(), gradients.numpy()


class OneClass(Wrapped):
    """Positive everywhere: no attack can succeed on the positive class."""

    def scores(self, X):
        return np.abs(self.model.scores(X)) + 1.0

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        return np.abs(scores) + 1.0, gradients * np.sign(scores)[:, None].astype(gradients.dtype)


class OtherThreshold(Wrapped):
    """Names the positive class only where its score is large; the scores that are attacked do not tell."""

    def predict(self, X):
        scores = self.scores(X)
        return self.classes_[(scores > 0.02 * np.abs(scores).max()).astype(int)]


class ReversedMargins(Wrapped):
    """Of many classes: true margins, with the coordinates of their gradients reversed."""

    def predict(self, X):
        return self.model.predict(X)

    def attack_target(self):
        honest = as_target(self.model)

        class Forms:
            margins = staticmethod(honest.forms.margins)

            @staticmethod
            def margins_and_gradients(X, code):
                margins, gradients = honest.forms.margins_and_gradients(X, code)
                return margins, np.ascontiguousarray(gradients[:, ::-1])

        return ManyClasses(Forms(), self.classes_)


class InflatedCertificate(Wrapped):
    """Certified radii 10 % too large."""

    def certified_radius(self, X, y):
        return 1.1 * self.model.certified_radius(X, y)


class UnseededSVM(AdvSVM):
    """Trains with a seed of its own at every fit."""

    draws = np.random.default_rng(0)

    def fit(self, X, y, **kwargs):
        self.random_state = int(self.draws.integers(2**31))
        return super().fit(X, y, **kwargs)


class UndecayedSVM(AdvSVM):
    """The author's published code: test scores are summed without the decay."""

    def fit(self, X, y, **kwargs):
        super().fit(X, y, **kwargs)
        self.expansion_.decays = [torch.ones_like(decay) for decay in self.expansion_.decays]
        self.expansion_._live = None
        return self


class UndecayedScoresSVM(AdvSVM):
    """Honest iterates, but the scores that are reported leave the decay out."""

    def scores(self, X):
        honest = self.expansion_.decays
        try:
            self.expansion_.decays, self.expansion_._live = [torch.ones_like(d) for d in honest], None
            return super().scores(X)
        finally:
            self.expansion_.decays, self.expansion_._live = honest, None


class NeverNaturalSVM(AdvSVM):
    """Keeps a little adversarial training at epsilon = 0."""

    def fit(self, X, y, **kwargs):
        asked, self.epsilon = self.epsilon, max(self.epsilon, 0.01)
        super().fit(X, y, **kwargs)
        self.epsilon = asked
        return self


def _unchanged(model: Any, X: np.ndarray, y: np.ndarray, epsilon: float) -> AttackResult:
    found = NoAttack()(model, X, y)
    return replace(found, attack="pgd", threat=replace(found.threat, epsilon=epsilon))


@dataclass(frozen=True)
class IdlePGD(PGD):
    """Returns its input unchanged."""

    def __call__(self, model, X, y, **kwargs):
        return _unchanged(model, X, y, self.epsilon)


@dataclass(frozen=True)
class TiringPGD(PGD):
    """Gives up when it is given more than ten steps."""

    def __call__(self, model, X, y, **kwargs):
        return _unchanged(model, X, y, self.epsilon) if self.steps > 10 else super().__call__(model, X, y, **kwargs)


@dataclass(frozen=True)
class TimidPGD(PGD):
    """Gives up in a large ball."""

    def __call__(self, model, X, y, **kwargs):
        far = self.epsilon > 0.3
        return _unchanged(model, X, y, self.epsilon) if far else super().__call__(model, X, y, **kwargs)


@dataclass(frozen=True)
class StubbornFGSM(FGSM):
    """Moves by 0.3, whatever its epsilon."""

    def __call__(self, model, X, y, **kwargs):
        return FGSM(epsilon=0.3)(model, X, y)


@dataclass(frozen=True)
class OutsidePGD(PGD):
    """Forgets the box: as far again as PGD went."""

    def __call__(self, model, X, y, **kwargs):
        result = super().__call__(model, X, y, **kwargs)
        examples = result.examples - 0.5 * self.epsilon
        delta = examples.astype(float) - X
        return replace(
            result,
            examples=examples,
            distortion_l2=np.linalg.norm(delta, axis=1),
            distortion_linf=np.abs(delta).max(axis=1),
        )


@dataclass(frozen=True)
class FarCarliniWagner(CarliniWagner):
    """Takes the first adversarial point it meets, far beyond the boundary."""

    def __call__(self, model, X, y, **kwargs):
        result = super().__call__(model, X, y, **kwargs)
        points = X.copy()
        for label in model.classes_:
            rows, others = np.flatnonzero(y == label), X[(y != label) & (model.predict(X) == y)]
            points[rows] = others[np.arange(len(rows)) % len(others)]
        points[result.already_misclassified] = X[result.already_misclassified]
        delta = points.astype(float) - X
        return replace(
            result,
            examples=points,
            scores=model.scores(points),
            distortion_l2=np.linalg.norm(delta, axis=1),
            distortion_linf=np.abs(delta).max(axis=1),
        )


def moved_to(result: AttackResult, model: Any, X: np.ndarray, y: np.ndarray, points: np.ndarray) -> AttackResult:
    """The same result with other examples, honestly scored and measured: nothing but the search is broken."""
    points = points.astype(X.dtype)
    delta, scores = points.astype(float) - X, np.asarray(model.scores(points))
    return replace(
        result,
        examples=points,
        scores=scores,
        success=model.classes_[(scores > 0).astype(int)] != y,
        distortion_l2=np.linalg.norm(delta, axis=1),
        distortion_linf=np.abs(delta).max(axis=1),
    )


@dataclass(frozen=True)
class DroppingPGD(PGD):
    """Leaves some rows as they are: every tenth, or the half with the larger margins; or moves a tenth to noise."""

    drops: str = "tenth"

    def __call__(self, model, X, y, **kwargs):
        result = super().__call__(model, X, y, **kwargs)
        margins = np.where(y == model.classes_[1], 1, -1) * result.clean_scores
        dropped = margins > np.median(margins) if self.drops == "half" else np.arange(len(y)) % 10 == 0
        if self.drops == "to noise":
            noise = self.epsilon * np.random.default_rng(0).choice([-1, 1], size=X.shape)
            return moved_to(result, model, X, y, np.where(dropped[:, None], np.clip(X + noise, 0, 1), result.examples))
        return moved_to(result, model, X, y, np.where(dropped[:, None], X, result.examples))


def honest(attack: PGD, **settings: Any) -> PGD:
    """PGD itself with the settings of a broken one."""
    return PGD(**{field.name: getattr(attack, field.name) for field in fields(PGD)} | settings)


@dataclass(frozen=True)
class ShyPGD(PGD):
    """Keeps to 80 % of its radius."""

    def __call__(self, model, X, y, **kwargs):
        return replace(honest(self, epsilon=0.8 * self.epsilon)(model, X, y), threat=self.threat())


@dataclass(frozen=True)
class EarlyPGD(PGD):
    """Stops after two short steps and keeps no record of its progress."""

    def __call__(self, model, X, y, **kwargs):
        result = honest(self, steps=2, step_size=self.epsilon / 5)(model, X, y)
        return replace(result, history={})


@dataclass(frozen=True)
class SurrogatePGD(PGD):
    """Attacks a linear machine instead of the model, with the whole radius."""

    def __call__(self, model, X, y, **kwargs):
        found = honest(self)(SVC(kernel="linear", C=0.01).fit(X, y), X, y)
        return moved_to(honest(self)(model, X, y), model, X, y, found.examples)


@dataclass(frozen=True)
class UphillPGD(PGD):
    """Goes the wrong way from the fifth of all points with the largest margins."""

    def __call__(self, model, X, y, **kwargs):
        result, signs = honest(self)(model, X, y), np.where(y == model.classes_[1], 1, -1)
        margins = signs * result.clean_scores
        slopes = signs[:, None] * model.scores_and_gradients(X)[1]
        uphill = np.clip(X + self.epsilon * np.sign(slopes), 0, 1)
        wrong = (margins > np.quantile(margins, 0.8))[:, None]
        return moved_to(result, model, X, y, np.where(wrong, uphill, result.examples))


@dataclass(frozen=True)
class StretchedCarliniWagner(CarliniWagner):
    """Goes on behind the boundary."""

    stretch: float = 1.5

    def __call__(self, model, X, y, **kwargs):
        result = super().__call__(model, X, y, **kwargs)
        return moved_to(result, model, X, y, np.clip(X + self.stretch * (result.examples - X), 0, 1))


@dataclass(frozen=True)
class DetouringCarliniWagner(CarliniWagner):
    """Ends exactly at the boundary, but on the way to another point of the data instead of the nearest way."""

    def __call__(self, model, X, y, **kwargs):
        result = super().__call__(model, X, y, **kwargs)
        right = model.predict(X) == y
        near, far = np.zeros(len(X)), np.ones(len(X))
        aims = np.stack([X[right & (y != label)][0] for label in y])
        for _ in range(20):
            middle = (near + far) / 2
            over = model.predict((X + middle[:, None] * (aims - X)).astype(X.dtype)) != y
            near, far = np.where(over, near, middle), np.where(over, middle, far)
        return moved_to(result, model, X, y, np.where(right[:, None], X + far[:, None] * (aims - X), X))


@dataclass(frozen=True)
class TiringCarliniWagner(DetouringCarliniWagner):
    """Takes the detour for every fifth row only."""

    def __call__(self, model, X, y, **kwargs):
        near, far = CarliniWagner()(model, X, y), super().__call__(model, X, y, **kwargs)
        detour = (np.arange(len(y)) % 5 == 0)[:, None]
        return moved_to(near, model, X, y, np.where(detour, far.examples, near.examples))


@dataclass(frozen=True)
class DoubtfulPGD(PGD):
    """Counts a point as broken only where the model is sure of the other class."""

    def __call__(self, model, X, y, **kwargs):
        result = honest(self)(model, X, y)
        sure = np.where(y == model.classes_[1], 1, -1) * result.scores < np.quantile(-np.abs(result.scores), 0.2)
        return replace(result, success=result.success & (sure | result.already_misclassified))


def put_back(result: AttackResult, X: np.ndarray, rows: np.ndarray) -> AttackResult:
    """The same result with some rows left at their clean points, whatever the number of classes."""
    return replace(
        result,
        examples=np.where(rows[:, None], X, result.examples),
        scores=np.where(rows, result.clean_scores, result.scores),
        success=np.where(rows, result.already_misclassified, result.success),
        distortion_l2=np.where(rows, 0.0, result.distortion_l2),
        distortion_linf=np.where(rows, 0.0, result.distortion_linf),
    )


@dataclass(frozen=True)
class PickyPGD(PGD):
    """Attacks every second row."""

    def __call__(self, model, X, y, **kwargs):
        return put_back(honest(self)(model, X, y, **kwargs), X, np.arange(len(y)) % 2 == 0)


@dataclass(frozen=True)
class TrespassingPGD(PGD):
    """Changes what it must not."""

    def __call__(self, model, X, y, **kwargs):
        return honest(self, constraints=None)(model, X, y)
