"""From the rows of a file to the rows a model sees: one shift and one scale for every feature."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse


@dataclass(frozen=True)
class Scaler:
    """(x - shift) / scale per feature, fitted on training rows."""

    shift: np.ndarray  # (d,), float64
    scale: np.ndarray  # (d,), float64
    clip: bool = False  # whether values outside the training rows' range are moved to its edge (``minmax``)

    def transform(self, X: Any) -> Any:
        """Scaled rows, float32; sparse rows stay sparse when nothing is shifted."""
        if sparse.issparse(X):
            if self.shift.any():
                raise ValueError("sparse rows cannot be shifted; make them dense first")
            scaled = sparse.csr_matrix(X.multiply(1.0 / self.scale), dtype=np.float32)
            scaled.data = np.clip(scaled.data, 0.0, 1.0) if self.clip else scaled.data
            return scaled
        scaled = ((np.asarray(X, dtype=np.float64) - self.shift) / self.scale).astype(np.float32)
        return np.clip(scaled, 0.0, 1.0, out=scaled) if self.clip else scaled

    def inverse_transform(self, X: np.ndarray) -> np.ndarray:
        """Raw rows, float64, of scaled ones."""
        return np.asarray(X, dtype=np.float64) * self.scale + self.shift

    def raw_radius(self, epsilon: float) -> np.ndarray:
        """How far ε in scaled units reaches in the units of each feature, (d,)."""
        return epsilon * self.scale

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists only, for a JSON file."""
        return {"shift": self.shift.tolist(), "scale": self.scale.tolist(), "clip": self.clip}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Scaler":
        """The scaler that `to_dict` described."""
        return cls(np.asarray(values["shift"], float), np.asarray(values["scale"], float), bool(values["clip"]))
