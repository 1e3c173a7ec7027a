"""Classifiers whose score is an expansion plus a number: the model side of the attacks' protocol."""

from collections.abc import Iterator

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from models.binary import BinaryClassifier
from models.expansion_certificates import radii
from models.expansions import LiveExpansion
from models.expansions.probing import ForgetfulProber
from models.model_prober import ModelProber
from models.rows import to_tensor

# Rows converted to a tensor at once.
_ROWS = 16384


class ExpansionClassifier(BinaryClassifier):
    """f(x) = expansion_(x) + offset. Subclasses write `fit`, which sets `expansion_`."""

    expansion_: LiveExpansion

    @property
    def _offset(self) -> float:
        return 0.0

    def scores(self, X) -> np.ndarray:
        """f(x), shape (n,), float64; positive means ``classes_[1]``."""
        found = [self.expansion_.scores(part)[:, 0].double().numpy() for part in self._parts(X)]
        return np.concatenate(found) + self._offset

    def scores_and_gradients(self, X) -> tuple[np.ndarray, np.ndarray]:
        """f(x), shape (n,), float64, and ∇f(x), shape (n, d), in the model's dtype."""
        found = [self.expansion_.scores_and_gradients(part) for part in self._parts(X)]
        scores = np.concatenate([scores[:, 0].double().numpy() for scores, _ in found]) + self._offset
        gradients = [gradients[:, 0].numpy() for _, gradients in found]
        return scores, gradients[0] if len(gradients) == 1 else np.concatenate(gradients)

    def probe(self, X, coords, h: float) -> tuple[np.ndarray, np.ndarray]:
        """f(x + h·e_j) and f(x - h·e_j) for each j in `coords`, both of shape (n, q), float64.

        Exact, not a linearisation. The part odd in h is computed by itself, so that plus - minus does not cancel.
        """
        coords = torch.as_tensor(np.asarray(coords, dtype=np.int64))
        found = [self.expansion_.probe(part, coords, float(h)) for part in self._parts(X)]
        even, odd = (torch.cat(which).numpy() for which in zip(*found))
        return even + self._offset + odd, even + self._offset - odd

    def prober(self) -> ModelProber | ForgetfulProber:
        """Answers `probe` for rows of which few columns change from call to call, without starting afresh."""
        check_is_fitted(self)
        # A subclass with scores of its own is asked through its own probe.
        own = any(getattr(type(self), name) is not getattr(ExpansionClassifier, name) for name in ("scores", "probe"))
        return ForgetfulProber(self) if own else ModelProber(self.expansion_, self._offset)

    def _radii(self, X, y, bound: str, quantity: float) -> np.ndarray:
        signs = self._signs(y)
        found, start = [], 0
        for part in self._parts(X):
            labels = signs[start : start + len(part)]
            found.append(radii(self.expansion_, part, labels, bound, quantity, self._offset))
            start += len(part)
        return np.concatenate(found)

    def _parts(self, X) -> Iterator[Tensor]:
        X = self._validate_rows(X)
        for start in range(0, len(X), _ROWS):
            yield to_tensor(X[start : start + _ROWS], self.expansion_.space.dtype)
