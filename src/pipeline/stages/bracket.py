"""The bracket around the true robust accuracy: certified from below, attacked from above, over the L2 radius.

An L∞ or small-ball attack says little at a larger L2 radius: its examples all lie within its own ball. So that every
run has an upper curve that means something, runs without a minimum-norm attack search for the nearest adversarial point
of a sample of their points. Certificate and attack are compared on the same points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.data import Dataset
from pipeline.stages.attack import Attacked
from pipeline.stages.train import Trained

_SAMPLE = 64


@dataclass(frozen=True)
class Bracket:
    """Per point of ``rows`` (of the test set): the nearest adversarial distance known and the certified one, in L2."""

    rows: np.ndarray
    nearest: np.ndarray
    certified: np.ndarray

    def upper(self, radius: float) -> float:
        """Accuracy when every adversarial point known within ``radius`` counts."""
        return float(np.mean(self.nearest > radius))

    def lower(self, radius: float) -> float:
        """Share of points that no perturbation within ``radius`` can break."""
        return float(np.mean((self.certified > 0) & (self.certified >= radius)))


def bracket(data: Dataset, trained: Trained, attacked: Attacked, radii: np.ndarray) -> Bracket:
    """Known adversarial distances and certificates: of all attacked points, or of a sample of them."""
    result = attacked.result
    own = np.where(result.success, result.distortion_l2, np.inf)
    places = np.arange(len(own))
    if not _minimum_norm(result):
        places = np.unique(np.linspace(0, len(own) - 1, min(_SAMPLE, len(own))).astype(int))
        own = np.minimum(own[places], _search(data, trained, attacked.rows[places]))
    rows = attacked.rows[places]
    return Bracket(rows, own, radii[rows])


def _minimum_norm(result: object) -> bool:
    members = getattr(result, "results", None) or {"": result}
    return any(member.epsilon is None for member in members.values())


def _search(data: Dataset, trained: Trained, rows: np.ndarray) -> np.ndarray:
    """L2 distance of the nearest adversarial point that a short search inside the box finds."""
    from attacks import CarliniWagner

    # The warm start alone: steps to the nearest point of the linearised adversarial region.
    search = CarliniWagner(binary_search_steps=1, steps=1, restarts=1)
    reference = np.ascontiguousarray(data.X_train[:256])
    found = search(trained.model, np.ascontiguousarray(data.X_test[rows]), data.y_test[rows], reference=reference)
    return np.where(found.success, found.distortion_l2, np.inf)
