"""What is known of every point: certified, broken (with the example), or still undecided."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from attacks.auto import Auto
from attacks.base import Attack
from attacks.geometry import distortions
from attacks.pgd import PGD
from attacks.targets import ManyClasses, as_target, has_gradients
from attacks.validation import as_dense
from models.certificates.certify import certify
from models.threat import Box, Constraints, Threat, box_of


@dataclass(frozen=True, eq=False, repr=False)
class Bracket:
    """Per point one of three answers; the accuracy under this threat lies between `lower` and `upper`.

    Attributes
    ----------
    threat : Threat
    certified, broken, undecided : bool arrays of shape (n,)
        Of every point exactly one is true. A point that is misclassified as it is counts as broken.
    examples : array of shape (n, d)
        A misclassified point of the threat for every broken row, the clean point for the others.
    """

    threat: Threat
    certified: np.ndarray
    broken: np.ndarray
    examples: np.ndarray

    @property
    def undecided(self) -> np.ndarray:
        return ~self.certified & ~self.broken

    @property
    def lower(self) -> float:
        """Certified accuracy: no attack whatever gets below."""
        return float(self.certified.mean())

    @property
    def upper(self) -> float:
        """Attacked accuracy: this attack got there."""
        return float(1.0 - self.broken.mean())

    def __repr__(self) -> str:
        return (
            f"Bracket({self.threat}: accuracy in [{100 * self.lower:.2f}, {100 * self.upper:.2f}] %, "
            f"{int(self.undecided.sum())} of {len(self.broken)} points undecided)"
        )


def bracket(
    model: Any,
    X: np.ndarray,
    y: np.ndarray,
    epsilon: float | Threat,
    norm: str = "linf",
    box: Box = (0.0, 1.0),
    seconds: float | None = None,
    attack: Attack | None = None,
    constraints: Constraints | None = None,
    observer: Any = None,
) -> Bracket:
    """Certify what can be certified cheaply, attack the rest, and spend the costly proofs on what stands.

    Parameters
    ----------
    model : fitted model
        Anything ``models.certify`` accepts, of two classes or more. Without gradients nothing is attacked, and what
        cannot be certified stays undecided.
    X : array of shape (n, d), inside the box
    y : array of shape (n,)
    epsilon : float or Threat
        Radius in `norm`, in units of X; or the whole threat, which then says norm, box and constraints, too.
    norm : {"linf", "l2"}
    box : (low, high) or None
        Numbers or arrays of shape (d,); None is everywhere.
    seconds : float, optional
        For everything together; an attack once begun is finished.
    attack : Attack, optional
        Instead of 40 steps of PGD with a restart, of many classes :class:`Auto`, which goes for each of them. Examples
        outside the threat do not count.
    constraints : Constraints, optional
        What else the attacker cannot do: examples honour it, and certificates need not cover what it forbids. They do
        cover the numbers between whole ones.
    observer : callable, optional
        ``observer("certify" or "attack", done, total, ...)``.
    """
    until = None if seconds is None else time.perf_counter() + seconds
    threat = epsilon if isinstance(epsilon, Threat) else Threat(norm, epsilon, box, constraints=constraints)
    X, y = as_dense(X), np.asarray(y).ravel()
    if attack is None:
        attack = _usual(model, X, threat)
    reachable = threat.limits(X)
    broken = np.asarray(model.predict(X) != y)
    certified = np.zeros(len(X), dtype=bool)
    examples = X.copy()

    def prove(rows: np.ndarray, left: float | None) -> None:
        if len(rows):
            inside = box_of(reachable, rows)
            certified[rows] = certify(model, X[rows], y[rows], threat.epsilon, threat.norm, inside, left, observer)

    prove(np.flatnonzero(~broken), 0.0)
    open_rows = np.flatnonzero(~broken & ~certified)
    if len(open_rows) and threat.epsilon > 0 and attack is not None:
        found = attack(model, X[open_rows], y[open_rows], observer=observer)
        points = np.asarray(found.examples, dtype=X.dtype)
        hit = _allowed(points, X[open_rows], threat, box_of(reachable, open_rows))
        hit &= model.predict(points) != y[open_rows]
        broken[open_rows] = hit
        examples[open_rows[hit]] = points[hit]
    left = None if until is None else max(until - time.perf_counter(), 0.0)
    prove(np.flatnonzero(~broken & ~certified), left)
    return Bracket(threat, certified, broken, examples)


def _usual(model: Any, X: np.ndarray, threat: Threat) -> Attack | None:
    """40 steps of PGD with a restart, of many classes Auto; None where no attack by gradients applies."""
    try:
        target = as_target(model)
    except ValueError:
        return None
    if not has_gradients(target) or threat.epsilon == 0:
        return None
    dtype = "float64" if X.dtype == np.float64 else "float32"
    if isinstance(target, ManyClasses):
        return Auto.of(threat, dtype=dtype)
    return PGD.of(threat, steps=40, step_size=threat.epsilon / 8, restarts=2, dtype=dtype)


def _allowed(points: np.ndarray, X: np.ndarray, threat: Threat, box: Box) -> np.ndarray:
    """Which points lie in the threat, (n,)."""
    l2, linf = distortions(points, X)
    inside = (l2 if threat.norm == "l2" else linf) <= threat.epsilon * (1 + 1e-12)
    if box is not None:
        inside &= ((points >= np.asarray(box[0])) & (points <= np.asarray(box[1]))).all(1)
    if threat.constraints is not None:
        inside &= threat.constraints.kept(points)
    return np.asarray(inside)
