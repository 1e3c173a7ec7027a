"""What an attack hands back, and how to read it at a distortion cap."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from models.threat import SYMBOLS, Threat, check_norm


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult:
    """Adversarial examples for the rows of X, with what they cost.

    Attributes
    ----------
    attack : str
        Name of the attack, e.g. ``"pgd"``.
    threat : Threat
        The ball and box the examples stay in; its radius is infinite for a minimum-norm attack.
    examples : ndarray (n, d)
        Where the attack found nothing: the point of smallest margin it saw (fixed epsilon) or x itself (minimum norm).
    success : bool ndarray (n,)
        The model misclassifies ``examples``; true as well for points it already misclassified.
    distortion_l2, distortion_linf : float64 ndarray (n,)
        Distance from the clean point; 0 for points that were already misclassified.
    queries, gradient_evaluations : int64 ndarray (n,)
        Score queries and gradient evaluations the attack itself spent on the example. The evaluator's own two
        scorings (the clean point, the final judgement) are not counted.
    clean_scores, scores : float64 ndarray (n,)
        The model's scores at the clean points and at ``examples``.
    already_misclassified : bool ndarray (n,)
        The clean point was misclassified and was left as it is.
    history : dict
        Arrays over steps (``robust_accuracy_by_step``) and numbers for self-checks; depends on the attack.
    notes : tuple of str
        What the reader must know, e.g. that the model knows one class only and no adversarial example exists.
    """

    attack: str
    threat: Threat
    examples: np.ndarray
    success: np.ndarray
    distortion_l2: np.ndarray
    distortion_linf: np.ndarray
    queries: np.ndarray
    gradient_evaluations: np.ndarray
    clean_scores: np.ndarray
    scores: np.ndarray
    already_misclassified: np.ndarray
    history: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float | None:
        """Radius of the threat, None when there is none."""
        return self.threat.epsilon if self.threat.bounded else None

    def distortion(self, norm: str) -> np.ndarray:
        """Distance from the clean points in ``"l2"`` or ``"linf"``, (n,)."""
        return self.distortion_l2 if norm == "l2" else self.distortion_linf

    def __repr__(self) -> str:
        broken, norm = self.distortion(self.threat.norm)[self.found], SYMBOLS[self.threat.norm]
        median = f", median {norm} {np.median(broken):.4g} of {len(broken)} broken" if len(broken) else ""
        return (
            f"<{type(self).__name__} {self.attack}, {self.threat}: {len(self.success)} points, accuracy "
            f"{self.clean_accuracy:.2%} → {self.robust_accuracy:.2%}{median}>"
        )

    @property
    def clean_accuracy(self) -> float:
        """Accuracy before the attack, in [0, 1]."""
        return 1.0 - float(np.mean(self.already_misclassified))

    @property
    def robust_accuracy(self) -> float:
        """Accuracy after the attack, in [0, 1]; already misclassified points count as broken."""
        return 1.0 - float(np.mean(self.success))

    @property
    def attack_success_rate(self) -> float:
        """Broken share of the points that were classified correctly; 0 when there are none."""
        attacked = ~self.already_misclassified
        return float(np.mean(self.success[attacked])) if attacked.any() else 0.0

    @property
    def found(self) -> np.ndarray:
        """Rows the attack itself broke, (n,) bool."""
        return self.success & ~self.already_misclassified


def accuracy_at(result: AttackResult, cap: ArrayLike, norm: str = "l2") -> Any:
    """Accuracy when only examples within a distortion cap count as broken.

    Parameters
    ----------
    result : AttackResult
    cap : float or array of floats
        Largest distortion that counts. ``inf`` gives ``result.robust_accuracy``.
    norm : {"l2", "linf"}

    Returns
    -------
    float, or ndarray shaped like `cap`
    """
    check_norm(norm)
    caps = np.asarray(cap, dtype=float)
    if np.isnan(caps).any() or (caps < 0).any():
        raise ValueError(f"cap must be >= 0, got {cap!r}")
    broken = np.sort(np.where(result.success, result.distortion(norm), np.inf))
    count = np.searchsorted(broken, caps, side="right") - np.where(np.isinf(caps), np.isinf(broken).sum(), 0)
    accuracy = 1.0 - count / len(broken)
    return float(accuracy) if caps.ndim == 0 else accuracy


def capped(result: AttackResult, X: np.ndarray, threat: Threat) -> AttackResult:
    """The same result seen through a ball: examples outside it go back to the clean point and count as failed."""
    outside = result.found & (result.distortion(threat.norm) > threat.epsilon)
    examples = result.examples.copy()
    examples[outside] = X[outside]
    # Rows that failed hold no adversarial example, so nothing of theirs may stick out of the ball either.
    return replace(
        result,
        threat=threat,
        examples=examples,
        success=result.success & ~outside,
        distortion_l2=np.where(outside, 0.0, result.distortion_l2),
        distortion_linf=np.where(outside, 0.0, result.distortion_linf),
        scores=np.where(outside, result.clean_scores, result.scores),
    )


def joined(results: list[AttackResult], order: np.ndarray) -> AttackResult:
    """Results on different rows as one, their rows put together and then in `order`."""
    per_row = [item.name for item in fields(AttackResult) if isinstance(getattr(results[0], item.name), np.ndarray)]
    columns: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in results])[order] for name in per_row}
    sizes = [len(one.success) for one in results]
    notes = tuple(dict.fromkeys(note for one in results for note in one.notes))
    return replace(results[0], **columns, history=_together([one.history for one in results], sizes), notes=notes)


def _together(values: list[Any], sizes: list[int]) -> Any:
    """Counts add up, shares and curves are means over the rows."""
    if isinstance(values[0], dict):
        return {key: _together([value[key] for value in values], sizes) for key in values[0]}
    if isinstance(values[0], int):
        return sum(values)
    return np.average(np.stack(values), axis=0, weights=sizes)
