"""A trained model as others use it: rows in the units of the file go in, labels as in the file come out.

A deployed model is a folder of ``models.save`` with one more file, ``deployment.json``: the scaling of the rows and the
labels of the classes. MLflow opens it through `_load_pyfunc`; nothing here needs MLflow.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from models.persistence import decode_labels, encode_labels, load
from models.rounding import NoCertificate
from models.scaler import Scaler

DOCUMENT = "deployment.json"
OUTPUTS = ("label", "scores", "radius")


@dataclass(eq=False, repr=False)
class DeployedClassifier(ClassifierMixin, BaseEstimator):
    """A fitted model behind the scaling of its data, with the labels of the data.

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

    Attributes
    ----------
    classes_ : array of shape (k,)
        In the order of ``model.classes_``: a positive score of two classes means ``classes_[1]``.
    """

    model: Any
    labels: Sequence[Any] | np.ndarray | None = None
    scaler: Scaler | None = None
    feature_names: Sequence[str] = ()

    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self.model.classes_ if self.labels is None else self.labels)

    @property
    def n_features_in_(self) -> int:
        return int(self.model.n_features_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Do nothing: it is fitted."""
        return self

    def scaled(self, X: Any) -> np.ndarray:
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

    def predict(self, X: Any) -> np.ndarray:
        """Labels as in the file, shape (n,)."""
        found = np.asarray(self.model.predict(self.scaled(X)))
        return self.classes_[(found[:, None] == np.asarray(self.model.classes_)).argmax(axis=1)]

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores: shape (n,), positive for ``classes_[1]``, or (n, k), the highest wins."""
        if not callable(getattr(self.model, "decision_function", None)):
            raise ValueError("output=scores: this model gives labels only")
        return np.asarray(self.model.decision_function(self.scaled(X)))

    def certified_radius(self, X: Any, norm: str = "l2") -> np.ndarray:
        """Distance, in scaled units, within which the predicted label is proved not to change, shape (n,)."""
        rows = self.scaled(X)
        try:
            if not callable(getattr(self.model, "certified_radius", None)):
                raise NoCertificate(f"{type(self.model).__name__} has no certified_radius")
            return np.asarray(self.model.certified_radius(rows, self.model.predict(rows), norm=norm))
        except NoCertificate as reason:
            raise ValueError(f"output=radius: {reason}") from reason

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


class PyFunc:
    """What ``mlflow.pyfunc.load_model`` gives back inside its own wrapper."""

    def __init__(self, estimator: DeployedClassifier):
        self.estimator = estimator

    def get_raw_model(self) -> DeployedClassifier:
        """``mlflow.pyfunc.load_model(URI).get_raw_model()``: the estimator of raw rows, around the fitted ``model``."""
        return self.estimator

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> np.ndarray:
        """Labels; or as ``params={"output": …}`` says, ``scores`` or the certified ``radius`` (scaled units)."""
        output = (params or {}).get("output", OUTPUTS[0])
        if output not in OUTPUTS:
            raise ValueError(f"params.output must be one of {', '.join(OUTPUTS)}; got {output!r}")
        if output == "label":
            return self.estimator.predict(data)
        return self.estimator.decision_function(data) if output == "scores" else self.estimator.certified_radius(data)


def _load_pyfunc(path: str) -> PyFunc:
    """Entry point that MLflow looks for in a loader module."""
    return PyFunc(DeployedClassifier.load(path))
