"""What binary classifiers with a real-valued score share: labels, validation, prediction.

Those whose score is an expansion plus a number also share the model side of the attacks' protocol.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from models.certificates.certify import Certifiable, certified_radius
from models.certificates.contest import Form
from models.certificates.of_expansions import ExpansionCertificates, certificates_of
from models.decisions import Decision, Sign
from models.distances import to_tensor
from models.expansions import LiveExpansion
from models.limits import check_limits
from models.machines import Ours
from models.one_vs_rest import OneVsRest
from models.persistence import decode_labels, encode_labels, with_prefix
from models.probing import ModelProber, PlainProber
from models.rounding import UNIT32
from models.threat import Box

_DTYPES = [np.float64, np.float32, np.uint8]
# Rows converted to a tensor at once, and of sparse ones so many that they hold this many numbers (256 MiB in float32).
_ROWS = 16384
_NUMBERS = 2**26


class BinaryClassifier(Certifiable, ClassifierMixin, BaseEstimator):
    """Labels are any two values; a positive score means ``classes_[1]``. Subclasses write `fit` and `scores`."""

    _sparse: ClassVar[str | bool] = "csr"
    """The form in which sparse rows are taken; False: not at all."""
    _stored_numbers: ClassVar[tuple[str, ...]] = ()
    """Fitted attributes, without their underscores, that are stored as plain numbers."""

    def _validate_params(self) -> None:
        check_limits(self)

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

    def decision(self) -> Decision:
        """How it decides, for attacks and certificates."""
        return Decision(self.classes_, Ours(self), Sign())

    def for_classes(self, n_classes: int) -> Any:
        """The same settings for so many classes: this machine for two, one against the rest for each of more."""
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
        return X if self._plainly_valid(X) else self._validate_rows_of(X)

    def _plainly_valid(self, X: Any) -> bool:
        """Whether scikit-learn would take X as it is: attacks ask hundreds of times, each time for a few rows."""
        if type(X) is not np.ndarray or X.dtype not in (np.float32, np.float64) or hasattr(self, "feature_names_in_"):
            return False
        # A sum is finite only when all entries are.
        return X.ndim == 2 and len(X) > 0 and X.shape[1] == self.n_features_in_ and bool(np.isfinite(X.sum()))

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
            **{name: getattr(self, f"{name}_") for name in ("n_features_in", *self._stored_numbers)},
        }
        if hasattr(self, "feature_names_in_"):
            meta["feature_names_in"] = self.feature_names_in_.tolist()
        return meta, {f"curve.{name}": values for name, values in self.curve_.items()}

    @classmethod
    def _from_common_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        model = cls(**meta["params"])
        model.classes_ = decode_labels(meta["classes"])
        for name in ("n_features_in", *cls._stored_numbers):
            setattr(model, f"{name}_", meta[name])
        if "feature_names_in" in meta:
            model.feature_names_in_ = np.array(meta["feature_names_in"], dtype=object)
        model.curve_ = with_prefix(arrays, "curve.")
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = bool(self._sparse)
        return tags


class ExpansionClassifier(BinaryClassifier):
    """f(x) = expansion_(x) + offset. Subclasses write `fit`, which sets `expansion_`."""

    expansion_: LiveExpansion

    @property
    def _offset(self) -> float:
        return 0.0

    def scores(self, X: Any) -> np.ndarray:
        """f(x), shape (n,), float64; positive means ``classes_[1]``."""
        found = [self.expansion_.scores(part)[:, 0].double().numpy() for part in self._parts(X)]
        return np.concatenate(found) + self._offset

    def scores_and_gradients(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """f(x), shape (n,), float64, and ∇f(x), shape (n, d), in the model's dtype."""
        found = [self.expansion_.scores_and_gradients(part) for part in self._parts(X)]
        scores = np.concatenate([scores[:, 0].double().numpy() for scores, _ in found]) + self._offset
        gradients = [gradients[:, 0].numpy() for _, gradients in found]
        return scores, gradients[0] if len(gradients) == 1 else np.concatenate(gradients)

    def probe(self, X: Any, coords: Any, h: float) -> tuple[np.ndarray, np.ndarray]:
        """f(x + h·e_j) and f(x - h·e_j) for each j in `coords`, both of shape (n, q), float64.

        Exact, not a linearisation. The part odd in h is computed by itself, so that plus - minus does not cancel.
        """
        coords = torch.as_tensor(np.asarray(coords, dtype=np.int64))
        found = [self.expansion_.probe(part, coords, float(h)) for part in self._parts(X)]
        even, odd = (torch.cat(which).numpy() for which in zip(*found))
        return even + self._offset + odd, even + self._offset - odd

    def prober(self) -> ModelProber | PlainProber:
        """Answers `probe` for rows of which few columns change from call to call, without starting afresh."""
        check_is_fitted(self)
        # A subclass with scores of its own is asked through its own probe.
        asked = ("scores", "scores_and_gradients", "probe")
        own = any(getattr(type(self), name) is not getattr(ExpansionClassifier, name) for name in asked)
        return (
            PlainProber(self)
            if own
            else ModelProber(self.expansion_.prober(), self.expansion_.space.dtype, self._offset)
        )

    # -- certificates --------------------------------------------------------------------------------------------------
    def form(self) -> tuple[Form, float]:
        """What ``models.certify`` asks: f, and what the conversion of the rows may move a coordinate by, relatively."""
        form = self._certificates.form(self._offset, self._global_quantity())
        single = self.expansion_.space.dtype != torch.float64
        return form, 2.01 * UNIT32 if single else 0.0

    def certified_radius(  # type: ignore[override]
        self,
        X: Any,
        y: Any,
        bound: str | None = None,
        norm: str = "l2",
        box: Box = None,
        seconds: float | None = 0.0,
    ) -> np.ndarray:
        """Radius within which the label y of each row cannot change, shape (n,); 0 where it is wrong already.

        Parameters
        ----------
        X : array of shape (n, d)
        y : array of shape (n,)
        bound : {"sharp", "paper", "second_order"} or None
            None takes the best rigorous one: "sharp" for the exact RBF expansion, "paper" for another exact one,
            "second_order" for random features. A bound that is named is evaluated in L2, without a box.
        norm : {"l2", "linf"}
        box : (low, high) or None
            Where the moved point must stay; None is everywhere.
        seconds : float, optional
            For dearer proofs of larger radii, see ``models.certify``; none by default, no limit if None.
        """
        check_is_fitted(self)
        if bound is None and (norm != "l2" or box is not None or seconds != 0):
            return certified_radius(self, X, y, norm, box, seconds)
        certificates, quantity = self._certificates, self._global_quantity()
        bound = certificates.bounds[0] if bound is None else bound
        if bound not in certificates.bounds:
            offered = ", ".join(certificates.bounds)
            raise ValueError(f"bound={bound!r} does not hold for this model; choose from {offered}")
        signs = self._signs(y)
        found, start = [], 0
        for part in self._parts(X):
            labels = signs[start : start + len(part)]
            found.append(certificates.radii(part, labels, bound, quantity, self._offset))
            start += len(part)
        return np.concatenate(found)

    @property
    def _certificates(self) -> ExpansionCertificates:
        # Kept beside the expansion it is about: what it prepares takes as long as scoring a few rows.
        kept: ExpansionCertificates | None = self.__dict__.get("_proofs")
        if kept is None or kept.expansion is not self.expansion_:
            kept = self._proofs = certificates_of(self.expansion_)
        return kept

    def _global_quantity(self) -> float:
        """What all certificates of the fitted function share."""
        return self._certificates.quantity()

    def _parts(self, X: Any) -> Iterator[Tensor]:
        X = self._validate_rows(X)
        # Sparse rows become dense here, some at a time.
        size = min(_ROWS, max(64, _NUMBERS // X.shape[1])) if sparse.issparse(X) else _ROWS
        for start in range(0, X.shape[0], size):
            yield to_tensor(X[start : start + size], self.expansion_.space.dtype)
