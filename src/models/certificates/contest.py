"""How a classifier decides, in the words that proofs use: forms that must be positive, and who has to win which."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from models.certificates.region import Region, region
from models.threat import Box

Prove = Callable[[Region, np.ndarray], np.ndarray]


class Quick(NamedTuple):
    """sign·f(x), shape (n,), and what says where sign·f > 0 all over some regions around the same rows."""

    margins: np.ndarray
    proves: Callable[[Region], np.ndarray]


class Form(Protocol):
    """A real-valued function f of which it can be proved that sign·f > 0 over a region, in the model's arithmetic."""

    def quick(self, X: np.ndarray, signs: np.ndarray) -> Quick:
        """Margins of the rows, and the cheapest proof, for regions around them of any size."""

    @property
    def stages(self) -> Sequence[tuple[Prove, int]]:
        """Dearer proofs, the cheapest first, each with the number of rows to ask it about at once."""


@dataclass(frozen=True)
class Contest:
    """How a classifier decides: a class wins where all its forms, with their signs, are positive.

    A model of two classes has one form. Of more, one-vs-one machines give a class a form per rival, and with all of
    those votes nobody can tie it; one-vs-rest machines the differences of scores.
    """

    classes: np.ndarray  # (k,)
    forms: list[Any]
    comparisons: list[list[tuple[int, float]]]  # for every class its (form number, sign)
    slack: float = 0.0  # what the model's conversion of its input may move a coordinate by, relatively: 0 in float64

    def region(self, X: np.ndarray, epsilon: float | np.ndarray, norm: str, box: Box) -> Region:
        """Where the model may see a point that was moved by `epsilon`."""
        where = region(X, epsilon, norm, box)
        if self.slack == 0:
            return where
        return where.widened(self.slack * (np.abs(where.X) + np.maximum(-where.lower, where.upper)))

    def is_batched(self, stage: int) -> bool:
        """Whether a stage, counted from 1, takes several rows at once."""
        return any(len(form.stages) >= stage and form.stages[stage - 1][1] > 1 for form in self.forms)

    def numbers(self, y: Any) -> np.ndarray:
        """Places of the labels in `classes`."""
        y = np.asarray(y).ravel()
        unknown = ~np.isin(y, self.classes)
        if unknown.any():
            raise ValueError(f"y holds the label {y[unknown].tolist()[0]!r}, not one of {self.classes.tolist()}")
        order = np.argsort(self.classes)
        return order[np.searchsorted(self.classes, y, sorter=order)]


def binary_contest(classes: np.ndarray, form: Form, slack: float = 0.0) -> Contest:
    """Two classes and one form, positive for the second."""
    return Contest(np.asarray(classes), [form], [[(0, -1.0)], [(0, 1.0)]], slack)
