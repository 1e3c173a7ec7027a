"""A classifier that somebody else fitted, behind the protocol of our own models."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from models.certificates.api import Certifiable, Contest, contest_of
from models.distances import dense
from models.persistence import decode_labels, encode_labels

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

    def predict(self, X: Any) -> np.ndarray:
        """Labels, shape (n,)."""
        found = np.asarray(self.pipeline.predict(float64_rows(X)))
        known = np.asarray(self.estimator.classes_)
        return np.asarray(self.classes_[np.searchsorted(known, found)])

    def decision_function(self, X: Any) -> np.ndarray:
        """The estimator's decision values: shape (n,), positive for ``classes_[1]``, or (n, k)."""
        return np.asarray(self.pipeline.decision_function(float64_rows(X)))

    def scores(self, X: Any) -> np.ndarray:
        """Decision values of two classes, shape (n,), as the attacks see them."""
        return np.asarray(self.attack_target().scores(dense(X).astype(np.float64, copy=False)))

    def attack_target(self) -> Any:
        """What ``attacks.as_target`` makes of it."""
        return self._target

    @cached_property
    def _target(self) -> Any:
        from attacks import as_target

        return as_target(self.pipeline, classes=self.classes_)

    # -- certificates --------------------------------------------------------------------------------------------------
    def certificate_contest(self) -> Contest:
        """What ``models.certify`` asks; raises NoCertificate, in one line, where none is known."""
        found = contest_of(self.pipeline)
        return Contest(self.classes_, found.forms, found.duels, found.slack)

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
