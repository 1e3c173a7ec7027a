"""Estimators of scikit-learn trained by the pipeline, of two classes or more, behind the protocol of our own models."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import _fit_context, clone
from sklearn.svm import SVC

from models.fitted import FittedClassifier, float64_rows
from models.kernels import RBF
from models.one_vs_rest import SettingsOfBase
from models.svc import KernelSVC, fastest_svc


class _TrainedHere(FittedClassifier, ABC):
    """Holds what `_train` fits; a subclass has settings of its own instead of a fitted estimator."""

    labels = scale = shift = None

    @abstractmethod
    def _train(self, X: Any, y: np.ndarray) -> Any:
        """The estimator, fitted."""

    def fit(self, X: Any = None, y: Any = None, eval_set: Any = None, observer: Any = None) -> Self:
        """Train; the error on `eval_set` goes into `curve_`."""
        self._hold(self._train(float64_rows(X), np.asarray(y)))
        self.curve_: dict[str, np.ndarray] = {"iteration": np.array([1])}
        if eval_set is not None:
            error = float(np.mean(self.predict(eval_set[0]) != np.asarray(eval_set[1])))
            self.curve_["test_error"] = np.array([error])
        return self

    def _hold(self, estimator: Any) -> None:
        self.estimator = estimator
        for made in ("pipeline", "_target"):
            self.__dict__.pop(made, None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator")


class VotingSVC(_TrainedHere):
    """RBF-kernel SVC of scikit-learn for more than two classes: one machine per pair, and the most votes win.

    Parameters as those of `KernelSVC`, which makes one where there are more than two classes.
    """

    tuning_rows = KernelSVC.tuning_rows
    # Declared once: what KernelSVC takes, this takes.
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = KernelSVC._parameter_constraints
    __init__ = KernelSVC.__init__

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any = None, y: Any = None, eval_set: Any = None, observer: Any = None) -> Self:
        """Train on the rows of X, labels of any number of classes."""
        return super().fit(X, y, eval_set, observer)

    def _train(self, X: Any, y: np.ndarray) -> SVC:
        rule = RBF(width_scale=float(self.width_scale), gamma=self.gamma)
        self.gamma_ = rule.resolve_gamma(X, int(self.random_state))
        return fastest_svc()(C=self.C, gamma=self.gamma_, tol=self.tol, cache_size=self.cache_size).fit(X, y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """See ``models.persistence``."""
        meta, arrays = super().get_state()
        return meta | {"params": self.get_params(), "gamma": self.gamma_}, arrays

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Inverse of `get_state`."""
        model = cls(**meta["params"])
        model.gamma_, model.curve_ = meta["gamma"], {}
        model._hold(FittedClassifier.from_state(meta, arrays).estimator)
        return model


class SklearnModel(SettingsOfBase, _TrainedHere):
    """Any classifier of scikit-learn, with its own settings: what ``_target_: sklearn.svm.SVC`` becomes.

    Parameters
    ----------
    base : unfitted classifier
    """

    def _train(self, X: Any, y: np.ndarray) -> Any:
        return clone(self.base).fit(X, y)

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Inverse of `get_state`."""
        estimator = FittedClassifier.from_state(meta, arrays).estimator
        model = cls(clone(estimator))
        model.curve_ = {}
        model._hold(estimator)
        return model
