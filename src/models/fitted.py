"""Fitted classifiers behind the protocol of our own models.

`FittedClassifier` was fitted by somebody else, `SklearnModel` is any of scikit-learn's trained here,
`DeployedClassifier` is a model of ours in the units and labels of its file.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.metaestimators import available_if

from models.certificates.certify import Certifiable
from models.decisions import Decision, Unreadable, decision_of
from models.distances import dense
from models.one_vs_rest import SettingsOfBase, one_point_curve
from models.persistence import decode_labels, encode_labels, load
from models.rounding import NoCertificate
from models.scaler import Scaler

DOCUMENT = "deployment.json"

# What skops asks about, though it is nothing but arrays: support vectors of an SVC that was fitted to sparse rows.
HARMLESS = tuple(f"scipy.sparse._{kind}.{kind}_{form}" for kind in ("csr", "csc") for form in ("matrix", "array"))


def float64_rows(X: Any) -> Any:
    """Rows as the estimator is given them: float64, sparse ones as a CSR matrix."""
    return sparse.csr_matrix(X, dtype=np.float64) if sparse.issparse(X) else np.asarray(X, dtype=np.float64)


@dataclass(eq=False, repr=False)
class FittedClassifier(Certifiable, ClassifierMixin, BaseEstimator):
    """A fitted scikit-learn classifier of two or more classes, in the units and the labels of the data it is judged on.

    Attacks and certificates read gradients and bounds off its attributes; nothing is fitted again. In float64: rows are
    converted before the first step, so that what is attacked, certified and predicted is one and the same function.

    Parameters
    ----------
    estimator : fitted classifier
        Of raw rows: an SVC, a linear classifier, a Pipeline of scalers that ends in one, a search over those. With
        others only the attacks that need no gradients apply, and nothing is certified.
    labels : sequence, optional
        What `estimator.classes_` are called here, in their order; by default the same.
    scale, shift : arrays of shape (d,), optional
        The units: the estimator is given ``scale * x + shift``.

    Attributes
    ----------
    classes_ : array of shape (k,)
        In the order of the estimator's.
    """

    estimator: Any
    labels: Sequence[Any] | np.ndarray | None = None
    scale: np.ndarray | None = None
    shift: np.ndarray | None = None

    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self.estimator.classes_ if self.labels is None else self.labels)

    @property
    def n_features_in_(self) -> int:
        return int(self.estimator.n_features_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any = None, y: Any = None, eval_set: Any = None, observer: Any = None) -> Self:
        """Do nothing: it is fitted."""
        return self

    def for_classes(self, n_classes: int) -> Self:
        """The estimator knows its classes."""
        return self

    @cached_property
    def pipeline(self) -> Any:
        """The estimator behind the change of units, as one scikit-learn model."""
        if self.scale is None and self.shift is None:
            return self.estimator
        d = self.n_features_in_
        scale = np.ones(d) if self.scale is None else np.asarray(self.scale, dtype=np.float64)
        shift = np.zeros(d) if self.shift is None else np.asarray(self.shift, dtype=np.float64)
        units = StandardScaler()  # (x - mean) / scale, which attacks and certificates know
        units.mean_, units.scale_, units.var_ = -shift / scale, 1 / scale, scale**-2.0
        units.n_features_in_, units.n_samples_seen_ = d, 1
        return Pipeline([("units", units), ("model", self.estimator)])

    def prepared(self, X: Any) -> Any:
        """Rows as the pipeline is given them."""
        return float64_rows(X)

    def predict(self, X: Any) -> np.ndarray:
        """Labels, shape (n,)."""
        found = np.asarray(self.pipeline.predict(self.prepared(X)))
        return np.asarray(self.classes_[(found[:, None] == np.asarray(self.estimator.classes_)).argmax(axis=1)])

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """The estimator's decision values: shape (n,), positive for ``classes_[1]``, or (n, k)."""
        return np.asarray(self.pipeline.decision_function(self.prepared(X)))

    def scores(self, X: Any) -> np.ndarray:
        """Decision values of two classes, shape (n,), as the attacks see them: of labels alone -1 and +1."""
        X = dense(X).astype(np.float64, copy=False)
        try:
            return self.decision().machine.scores(X)[:, 0]
        except Unreadable:
            if hasattr(self.pipeline, "decision_function"):
                return self.decision_function(X)
            return np.where(self.predict(X) == self.classes_[1], 1.0, -1.0)

    def decision(self) -> Decision:
        """How it decides, for attacks and certificates; Unreadable where that is not known."""
        return replace(decision_of(self.pipeline), classes=self.classes_)

    # -- files ---------------------------------------------------------------------------------------------------------
    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The estimator in skops' format, as bytes; see ``models.persistence``."""
        import skops.io

        for part in (self.estimator, *(step for _, step in getattr(self.pipeline, "steps", ()))):
            # Not left to skops: asking such an object for its state ends the process.
            if hasattr(part, "_onedal_estimator"):
                raise ValueError(
                    f"a {type(part).__name__} of scikit-learn-intelex cannot be stored: fit scikit-learn's"
                )
        meta = {"labels": None if self.labels is None else encode_labels(self.classes_)}
        arrays = {"skops": np.frombuffer(skops.io.dumps(self.estimator), dtype=np.uint8)}
        units = {"scale": self.scale, "shift": self.shift}
        return meta, arrays | {name: np.asarray(value) for name, value in units.items() if value is not None}

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Inverse of `get_state`; only types that skops trusts are built."""
        import skops.io
        from skops.io.exceptions import UntrustedTypesFoundException

        try:
            estimator = skops.io.loads(arrays["skops"].tobytes(), trusted=list(HARMLESS))
        except UntrustedTypesFoundException as error:
            raise ValueError(f"the estimator holds types that are not scikit-learn's: {error}") from error
        labels = None if meta["labels"] is None else decode_labels(meta["labels"])
        return cls(estimator, labels, arrays.get("scale"), arrays.get("shift"))


class TrainedHere(FittedClassifier, ABC):
    """Holds what `_train` fits; a subclass has settings of its own instead of a fitted estimator."""

    labels = scale = shift = None

    @abstractmethod
    def _train(self, X: Any, y: np.ndarray) -> Any:
        """The estimator, fitted."""

    def fit(self, X: Any = None, y: Any = None, eval_set: Any = None, observer: Any = None) -> Self:
        """Train; the error on `eval_set` goes into `curve_`."""
        self._hold(self._train(float64_rows(X), np.asarray(y)))
        self.curve_ = one_point_curve(self, eval_set)
        return self

    def _hold(self, estimator: Any) -> None:
        self.estimator = estimator
        self.__dict__.pop("pipeline", None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator")


class SklearnModel(SettingsOfBase, TrainedHere):
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


class DeployedClassifier(FittedClassifier):
    """A model of ours as others use it: rows in the units of the file go in, labels as in the file come out.

    On disk it is a folder of ``models.save`` with one more file, ``deployment.json``: scaling and labels.

    Parameters
    ----------
    model : fitted classifier
        Of scaled rows.
    labels : sequence, optional
        What ``model.classes_`` are called in the file, in their order; by default the same.
    scaler : Scaler, optional
        From the units of the file to those of the model; None when they are the same.
    feature_names : sequence of str
        The columns of a data frame, in the order of the model's features; empty when they have no names.
    """

    scale = shift = None

    def __init__(
        self,
        model: Any,
        labels: Sequence[Any] | np.ndarray | None = None,
        scaler: Scaler | None = None,
        feature_names: Sequence[str] = (),
    ):
        self.model, self.labels, self.scaler, self.feature_names = model, labels, scaler, feature_names

    @property
    def estimator(self) -> Any:
        """The model, which takes scaled rows."""
        return self.model

    def decision(self) -> Decision:
        """Not read through: its rows are rounded to float32 behind the scaling. Attack and certify `model`."""
        raise Unreadable("a DeployedClassifier of raw rows (its `model`, of scaled rows, can be read)")

    def scores(self, X: Any) -> np.ndarray:
        """The same as `decision_function`."""
        return self.decision_function(X)

    def prepared(self, X: Any) -> np.ndarray:
        """Rows as the model sees them, (n, d) float32, of an array or a data frame in the units of the file."""
        columns = getattr(X, "columns", None)
        if columns is not None and self.feature_names and set(self.feature_names) <= {str(name) for name in columns}:
            # By their names: the order of a table's columns means nothing.
            places = {str(name): place for place, name in enumerate(columns)}
            X = X.iloc[:, [places[name] for name in self.feature_names]]
        try:
            rows = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the rows must be numbers: {' '.join(str(error).split())}") from error
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
            raise ValueError(f"the rows have shape {rows.shape}; (rows, {self.n_features_in_}) is needed")
        if not np.isfinite(rows).all():
            raise ValueError("the rows hold NaN or infinite values; fill or remove them")
        scaled = rows.astype(np.float32) if self.scaler is None else self.scaler.transform(rows)
        return np.ascontiguousarray(scaled)  # a table's columns may lie one by one: sums would round differently

    def scaled(self, X: Any) -> np.ndarray:
        """The same as `prepared`."""
        return self.prepared(X)

    def certified_radius(self, X: Any, norm: str = "l2") -> np.ndarray:  # type: ignore[override]
        """Distance, in scaled units, within which the predicted label is proved not to change, shape (n,)."""
        rows = self.prepared(X)
        if not callable(getattr(self.model, "certified_radius", None)):
            raise NoCertificate(f"{type(self.model).__name__} has no certified_radius")
        return np.asarray(self.model.certified_radius(rows, self.model.predict(rows), norm=norm))

    # -- files ---------------------------------------------------------------------------------------------------------
    def describe(self, folder: str | Path) -> None:
        """Write ``deployment.json`` beside a model that ``models.save`` wrote."""
        document = {
            "labels": encode_labels(self.classes_),
            "class_names": [str(label) for label in self.classes_.tolist()],
            "feature_names": list(self.feature_names),
            "scaler": None if self.scaler is None else self.scaler.to_dict(),
        }
        (Path(folder) / DOCUMENT).write_text(json.dumps(document))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The model of a folder; without ``deployment.json`` it takes the rows and gives the labels it was fitted with.

        Raises
        ------
        ValueError
            Naming the file that is missing or damaged.
        """
        model, beside = load(folder), Path(folder) / DOCUMENT
        if not beside.is_file():
            return cls(model)
        try:
            told = json.loads(beside.read_text())
            scaler = None if told["scaler"] is None else Scaler.from_dict(told["scaler"])
            return cls(model, decode_labels(told["labels"]), scaler, tuple(map(str, told["feature_names"])))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{beside} is damaged: {error}") from error
