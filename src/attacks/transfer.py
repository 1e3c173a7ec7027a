"""Examples made against one model, judged on another."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attacks.base import Attack
from attacks.geometry import distortions
from attacks.multiclass import ManyClasses
from attacks.problem import Observer, misclassified
from attacks.result import AttackResult
from attacks.targets import as_target
from attacks.threat import Threat
from attacks.validation import check_labels, check_points, check_scores


@dataclass(frozen=True, eq=False)
class Transfer:
    """An attack that never sees the victim.

    Parameters
    ----------
    attack : attack
    surrogate : model
        What the examples are made against; any model the attack accepts.

    Notes
    -----
    Queries and gradient evaluations are those spent on the surrogate. Points the victim already misclassifies stay as
    they are; points only the surrogate misclassifies are sent to the victim unchanged.
    """

    attack: Attack
    surrogate: Any

    @property
    def name(self) -> str:
        """Name of the attack with its setting, ``transfer_pgd``."""
        return f"transfer_{self.attack.name}"

    @property
    def bounded(self) -> bool:
        """Whether the attack is."""
        return self.attack.bounded

    @property
    def costly(self) -> bool:
        """Whether the attack is."""
        return self.attack.costly

    @property
    def needs_gradients(self) -> bool:
        """Of the surrogate, as the attack does."""
        return self.attack.needs_gradients

    def threat(self, l2_cap: float = math.inf) -> Threat:
        """That of the attack."""
        return self.attack.threat(l2_cap)

    def __call__(
        self,
        model: Any,
        X: np.ndarray,
        y: np.ndarray,
        epsilons: float | Sequence[float] | None = None,
        observer: Observer | None = None,
        reference: np.ndarray | None = None,
    ) -> Any:
        """Attack the surrogate and score the examples on `model`; arguments and result as for a single attack."""
        victim = as_target(model)
        points = check_points(X, self.attack.dtype, self.attack.box)
        if isinstance(victim, ManyClasses):
            codes, signs = victim.codes(y, "y"), np.ones(len(points), dtype=int)

            def scores(rows: np.ndarray) -> np.ndarray:
                return check_scores(victim.margins(rows, codes), len(rows))

        else:
            signs = check_labels(y, len(points), getattr(victim, "classes_", None))

            def scores(rows: np.ndarray) -> np.ndarray:
                return check_scores(victim.scores(rows), len(rows))

        clean = scores(points)
        made = self.attack(self.surrogate, X, y, epsilons, observer, reference)
        if isinstance(made, list):
            return [self._judge(scores, one, points, signs, clean) for one in made]
        return self._judge(scores, made, points, signs, clean)

    def _judge(
        self,
        victim: Callable[[np.ndarray], np.ndarray],
        made: AttackResult,
        X: np.ndarray,
        signs: np.ndarray,
        clean: np.ndarray,
    ) -> AttackResult:
        """The examples as the victim sees them; `victim` gives their scores."""
        already = misclassified(clean, signs)
        examples = np.where(already[:, None], X, made.examples)
        scores = victim(examples)
        l2, linf = distortions(examples, X)
        history = {"surrogate_robust_accuracy": made.robust_accuracy}
        return replace(
            made,
            attack=self.name,
            examples=examples,
            success=misclassified(scores, signs),
            distortion_l2=l2,
            distortion_linf=linf,
            clean_scores=clean,
            scores=scores,
            already_misclassified=already,
            history=history,
        )
