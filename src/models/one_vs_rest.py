"""More than two classes around a binary machine: one against the rest for each class, and the highest score wins."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags

from models.certificates.certify import Certifiable
from models.decisions import Decision, Highest
from models.grid import Axes, CrossValidation, FoldScores
from models.machines import Ours, Stacked
from models.persistence import class_named, decode_labels, encode_labels, with_prefix


class SettingsOfBase(BaseEstimator):
    """A classifier around another one, unfitted, whose settings are its own."""

    def __init__(self, base: Any):
        self.base = base

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The base's settings beside the base itself."""
        return {"base": self.base, **self.base.get_params(deep=deep)}

    def set_params(self, **settings: Any) -> Self:
        """Set the base's settings."""
        self.base = settings.pop("base", self.base)
        self.base = clone(self.base).set_params(**settings)
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(clone(self.base))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self.base).input_tags.sparse
        return tags


class OneVsRest(Certifiable, ClassifierMixin, SettingsOfBase):
    """A machine for each class; its settings are those of the binary machine.

    All machines have the seed of the first, so that random features and kernel widths are shared, and the difference of
    two scores is a function of the same kind: that is what certificates are about.

    Parameters
    ----------
    base : unfitted classifier of two classes
        One of ours: with ``scores`` and ``scores_and_gradients``.

    Attributes
    ----------
    classes_ : array of shape (k,)
    estimators_ : list of k fitted classifiers
        Positive scores mean the class.
    """

    def fit(self, X: Any, y: Any, eval_set: Any = None, observer: Any = None) -> Self:
        """Train a machine per class; the error on `eval_set` goes into `curve_`."""
        X, y = X if sparse.issparse(X) else np.asarray(X), np.asarray(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only ({self.classes_.tolist()[0]!r}): a classifier needs two")
        self.estimators_: list[Any] = []
        for number, label in enumerate(self.classes_):
            watch = _part(observer, number, len(self.classes_))
            self.estimators_.append(clone(self.base).fit(X, np.where(y == label, 1, -1), observer=watch))
        self.curve_ = one_point_curve(self, eval_set)
        return self

    @property
    def n_features_in_(self) -> int:
        return int(self.estimators_[0].n_features_in_)

    @property
    def diverged_(self) -> bool:
        """Whether the training of one of the machines did."""
        return any(bool(getattr(one, "diverged_", False)) for one in self.estimators_)

    @property
    def gamma_(self) -> float | None:
        """The kernel's width, the same for all machines; None of those without a kernel."""
        return getattr(self.estimators_[0], "gamma_", None)

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the classes, shape (n, k)."""
        return np.stack([np.asarray(one.scores(X)) for one in self.estimators_], axis=1)

    def scores(self, X: Any) -> np.ndarray:
        """The same as `decision_function`."""
        return self.decision_function(X)

    def predict(self, X: Any) -> np.ndarray:
        """Labels, shape (n,)."""
        return np.asarray(self.classes_[self.decision_function(X).argmax(axis=1)])

    def decision(self) -> Decision:
        """How it decides, for attacks and certificates."""
        return Decision(self.classes_, Stacked([Ours(one) for one in self.estimators_]), Highest())

    # -- tuning --------------------------------------------------------------------------------------------------------
    @property
    def cv_scores(self) -> Any:
        """The base's own fast cross-validation, class by class, where it has one; see ``models.grid_search``."""
        if getattr(self.base, "cv_scores", None) is None:
            raise AttributeError("cv_scores")
        return self._cv_scores

    def _cv_scores(self, X: Any, y: Any, axes: Axes, how: CrossValidation) -> FoldScores:
        X, y = X if sparse.issparse(X) else np.asarray(X), np.asarray(y)
        classes = np.unique(y)
        found = []
        for number, label in enumerate(classes):
            watched = replace(how, observer=_part(how.observer, number, len(classes)))
            found.append(self.base.cv_scores(X, np.where(y == label, 1, -1), axes, watched))
        first = found[0]
        balanced = None if first.robust is None else np.mean([one.robust for one in found], axis=0)
        diverged = None if first.diverged is None else np.any([one.diverged for one in found], axis=0)

        def attack(place: int) -> np.ndarray:
            return np.mean([one.attack(place) for one in found], axis=0)

        words = f"Settings are scored by the mean over the {len(classes)} machines of one class against the rest."
        return FoldScores(
            first.settings,
            np.mean([one.accuracy for one in found], axis=0),
            balanced,
            diverged,
            None if first.attack is None else attack,
            [words, *dict.fromkeys(message for one in found for message in one.messages)],
        )

    # -- files ---------------------------------------------------------------------------------------------------------
    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The machines one by one; see ``models.persistence``."""
        states = [one.get_state() for one in self.estimators_]
        meta = {
            "machine": type(self.base).__name__,
            "classes": encode_labels(self.classes_),
            "machines": [meta for meta, _ in states],
        }
        arrays = {f"{k}.{name}": value for k, (_, held) in enumerate(states) for name, value in held.items()}
        return meta, arrays

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Inverse of `get_state`."""
        kind = class_named(meta["machine"])
        held = [with_prefix(arrays, f"{number}.") for number in range(len(meta["machines"]))]
        machines = [kind.from_state(told, own) for told, own in zip(meta["machines"], held)]
        model = cls(clone(machines[0]))
        model.estimators_, model.classes_, model.curve_ = machines, decode_labels(meta["classes"]), {}
        return model


def one_point_curve(fitted: Any, eval_set: Any) -> dict[str, np.ndarray]:
    """The ``curve_`` of a training that shows no iterates."""
    curve = {"iteration": np.array([1])}
    if eval_set is not None:
        curve["test_error"] = np.array([float(np.mean(fitted.predict(eval_set[0]) != np.asarray(eval_set[1])))])
    return curve


def _part(observer: Any, number: int, count: int) -> Any:
    """What one of several machines tells the observer of them all."""
    if observer is None:
        return None
    return lambda event, step, total, **values: observer(event, number * total + step, count * total, **values)
