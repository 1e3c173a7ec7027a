"""What binary classifiers with a real-valued score share: labels, validation, prediction."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from models.certificates.api import Certifiable
from models.persistence import decode_labels, encode_labels

_DTYPES = [np.float64, np.float32, np.uint8]


class BinaryClassifier(Certifiable, ClassifierMixin, BaseEstimator):
    """Labels are any two values; a positive score means ``classes_[1]``. Subclasses write `fit` and `scores`."""

    _sparse: ClassVar[str | bool] = "csr"
    """The form in which sparse rows are taken; False: not at all."""

    def scores(self, X: Any) -> np.ndarray:
        """Real-valued decision, shape (n,), float64."""
        raise TypeError(f"{type(self).__name__} does not say how it scores")

    def decision_function(self, X: Any) -> np.ndarray:
        """The same as `scores`."""
        return self.scores(X)

    def predict(self, X: Any) -> np.ndarray:
        """Labels, shape (n,)."""
        positive = self.scores(X) > 0
        return self.classes_[positive.astype(np.intp)]

    def for_classes(self, n_classes: int) -> Any:
        """The same settings for so many classes: this machine for two, one against the rest for each of more."""
        from models.one_vs_rest import OneVsRest

        return self if n_classes == 2 else OneVsRest(self)

    def _validate_training_data(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """X, an array or a CSR matrix, and the labels as ±1.0; sets `classes_`."""
        X, y = validate_data(self, X, y, dtype=_DTYPES, accept_sparse=self._sparse)
        check_classification_targets(y)
        if type_of_target(y, input_name="y", raise_unknown=True) == "multiclass":
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass. "
                "Use sklearn.multiclass.OneVsRestClassifier for more than two classes."
            )
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only ({self.classes_.tolist()[0]!r}): a classifier needs two")
        return X, self._signs(y)

    def _validate_rows(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._validate_rows_of(X)

    def _validate_rows_of(self, X: Any) -> Any:
        return validate_data(self, X, dtype=_DTYPES, reset=False, accept_sparse=self._sparse)

    def _validate_evaluation(self, eval_set: Any) -> tuple[Any, np.ndarray] | None:
        """The rows of `eval_set` and their labels as ±1.0."""
        if eval_set is None:
            return None
        return self._validate_rows_of(eval_set[0]), self._signs(eval_set[1])

    def _signs(self, y: Any) -> np.ndarray:
        """Labels as -1.0 (classes_[0]) and +1.0 (classes_[1])."""
        y = np.asarray(y).ravel()
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise ValueError(f"y holds the label {y[unknown].tolist()[0]!r}, not one of {self.classes_.tolist()}")
        return np.where(y == self.classes_[1], 1.0, -1.0)

    def _common_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What every model stores: its settings, labels and columns, and as arrays its curve."""
        meta = {
            "params": self.get_params(deep=False),
            "classes": encode_labels(self.classes_),
            "n_features_in": self.n_features_in_,
        }
        if hasattr(self, "feature_names_in_"):
            meta["feature_names_in"] = self.feature_names_in_.tolist()
        return meta, {f"curve.{name}": values for name, values in self.curve_.items()}

    @classmethod
    def _from_common_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        model = cls(**meta["params"])
        model.classes_ = decode_labels(meta["classes"])
        model.n_features_in_ = meta["n_features_in"]
        if "feature_names_in" in meta:
            model.feature_names_in_ = np.array(meta["feature_names_in"], dtype=object)
        model.curve_ = with_prefix(arrays, "curve.")
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = bool(self._sparse)
        return tags


def with_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
