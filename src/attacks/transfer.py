"""Examples made against one model, judged on another."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attacks.base import Attack, Attacker
from attacks.geometry import distortions
from attacks.problem import Request, misclassified
from attacks.result import AttackResult
from attacks.targets import ManyClasses, as_target
from attacks.validation import check_labels, check_points, check_scores


@dataclass(eq=False)
class Transfer(Attacker):
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

    def __post_init__(self) -> None:
        attack = self.attack
        self.name = f"transfer_{attack.name}"
        self.bounded, self.costly, self.threat = attack.bounded, attack.costly, attack.threat
        self.needs_gradients = attack.needs_gradients  # of the surrogate

    def results(self, model: Any, asked: Request) -> list[AttackResult]:
        if asked.targets is not None:
            raise ValueError("targets: a transferred attack has none, its examples are judged by y")
        victim = as_target(model)
        points = check_points(asked.X, self.attack.dtype, self.attack.box)
        if isinstance(victim, ManyClasses):
            codes, signs = victim.codes(asked.y, "y"), np.ones(len(points), dtype=int)
        else:
            codes, signs = None, check_labels(asked.y, len(points), getattr(victim, "classes_", None))

        def scores(rows: np.ndarray) -> np.ndarray:
            return check_scores(victim.scores(rows) if codes is None else victim.margins(rows, codes), len(rows))

        clean, radii = scores(points), asked.epsilons
        made = self.attack(self.surrogate, asked.X, asked.y, radii, asked.observer, asked.reference)
        return [self._judge(scores, one, points, signs, clean) for one in ([made] if radii is None else made)]

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
