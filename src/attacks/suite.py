"""Several attacks on the same points: the worst case per example."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from attacks.base import Attack, Attacker
from attacks.carlini_wagner import CarliniWagner
from attacks.pgd import FGSM, PGD
from attacks.problem import Request, shared
from attacks.result import AttackResult, capped
from attacks.targets import ManyClasses, as_target
from attacks.validation import (
    check_labels,
    check_points,
    labels_to_leave,
)
from attacks.zoo import ZOO
from models.limits import at_least, check_limits
from models.threat import NORM, Constraints, Threat


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SuiteResult(AttackResult):
    """The union of several results.

    Attributes
    ----------
    broken_by : str ndarray (n,)
        The attack whose example is the nearest, in the threat's norm, of those that broke the row; ``"clean"`` for rows
        that were misclassified to begin with, ``""`` for rows no attack broke.
    results : dict of AttackResult
        By the attacks' names, each at the threat of the suite.
    """

    broken_by: np.ndarray
    results: dict[str, AttackResult] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite(Attacker):
    """Run every attack and keep the nearest example that broke each row: the worst case at one threat.

    The bounded attacks look inside one ball, the same for all of them; what the unbounded ones find counts when it lies
    in that ball, too. A suite of unbounded attacks alone, without `epsilon`, is unbounded.

    Parameters
    ----------
    attacks : sequence of attacks, optional
        FGSM, PGD, CarliniWagner and ZOO with their defaults when None.
    epsilon : float, optional
        Radius in `norm`; None takes the threat of the bounded attacks.
    norm : {"linf", "l2"}
    constraints, box, chunk_size, dtype, random_state : optional
        Settings for all attacks at once, in place of their own.
    """

    attacks: Sequence[Attack] | None = None
    epsilon: Annotated[float | None, at_least(0)] = None
    norm: Annotated[str, NORM] = "linf"
    constraints: Constraints | None = None
    chunk_size: int | None = None
    dtype: str | None = None
    random_state: int | None = None
    box: tuple[float, float] | None = None

    name: ClassVar[str] = "suite"

    def __post_init__(self) -> None:
        if self.attacks is not None and len(self.attacks) == 0:
            raise ValueError("attacks must hold at least one attack, got an empty sequence")
        check_limits(self)
        # By what they say of themselves: two radii on a screen that read the same are the same.
        threats = {f"{name} at {attack.threat()}": attack.threat() for name, attack in self._bounded().items()}
        if self.epsilon is not None:
            threats[f"the suite at {self.threat()}"] = self.threat()
        if len(set(threats.values())) > 1:
            raise ValueError(
                f"epsilon, norm and box must be the same for all attacks of a suite, got {', '.join(threats)}"
            )

    def members(self) -> dict[str, Attack]:
        """The attacks by name; a second one of a kind is numbered, ``pgd_2``."""
        shared = ("constraints", "box", "chunk_size", "dtype", "random_state")
        common = {key: getattr(self, key) for key in shared}
        common = {key: value for key, value in common.items() if value is not None}
        named: dict[str, Attack] = {}
        for attack in self._defaults() if self.attacks is None else self.attacks:
            count = sum(other.name == attack.name for other in named.values())
            named[f"{attack.name}_{count + 1}" if count else attack.name] = replace(attack, **common)
        return named

    def _defaults(self) -> list[Attack]:
        radius: dict[str, Any] = {} if self.epsilon is None else {"epsilon": self.epsilon}
        return [FGSM(norm=self.norm, **radius), PGD(norm=self.norm, **radius), CarliniWagner(), ZOO()]

    def _bounded(self) -> dict[str, Attack]:
        return {name: attack for name, attack in self.members().items() if attack.bounded}

    @property
    def bounded(self) -> bool:
        """Whether there is a ball."""
        return self.epsilon is not None or bool(self._bounded())

    @property
    def costly(self) -> bool:
        """Whether one of its attacks searches long for every single example."""
        return any(attack.costly for attack in self.members().values())

    @property
    def needs_gradients(self) -> bool:
        """Whether one of its attacks does."""
        return any(attack.needs_gradients for attack in self.members().values())

    def threat(self, l2_cap: float = math.inf) -> Threat:
        """The ball of the suite, or L2 at the cap."""
        if self.epsilon is not None:
            return Threat(self.norm, self.epsilon, next(iter(self.members().values())).box)
        return next(iter((self._bounded() or self.members()).values())).threat(l2_cap)

    def check_access(self, target: Any, model: Any) -> None:
        """Whether the model answers what its attacks ask for."""
        for attack in self.members().values():
            attack.check_access(target, model)

    def results(self, model: Any, asked: Request) -> list[AttackResult]:
        members, own, X, targets = self.members(), self.threat(), asked.X, asked.targets
        wanted = [own.epsilon] if asked.epsilons is None else asked.epsilons
        threats = [replace(own, epsilon=epsilon) for epsilon in wanted]
        found: list[dict[str, AttackResult]] = [{} for _ in threats]
        for i, (name, attack) in enumerate(members.items()):
            watch, radii = shared(asked.observer, i, len(members)), wanted if attack.bounded else None
            several = attack(model, X, asked.y, radii, watch, asked.reference, targets)
            if not attack.bounded:
                clean = check_points(X, attack.dtype, attack.box)
                several = [capped(several, clean, threat) for threat in threats]
            for results, result in zip(found, several):
                results[name] = result
        target = as_target(model)
        if isinstance(target, ManyClasses):
            # Their scores are margins of y, to be lowered, or of the target, to be raised.
            signs = np.full(len(X), 1 if targets is None else -1)
        else:
            classes = getattr(target, "classes_", None)
            signs = check_labels(labels_to_leave(asked.y, targets, len(X), classes), len(X), classes)
        return [worst_case(results, signs, threat) for results, threat in zip(found, threats)]


def worst_case(results: dict[str, AttackResult], signs: np.ndarray, threat: Threat) -> SuiteResult:
    """Merge results on the same rows and threat: the nearest success, or else the example of smallest margin."""
    ones = list(results.values())
    names = np.array([*results, "clean", ""])
    success = np.stack([one.success for one in ones])
    distances = np.where(success, np.stack([one.distortion(threat.norm) for one in ones]), np.inf)
    margins = np.stack([signs * one.scores for one in ones])
    broken = np.logical_or.reduce(success)
    best = np.where(broken, distances.argmin(axis=0), margins.argmin(axis=0))
    already = ones[0].already_misclassified

    def pick(values: list[np.ndarray]) -> np.ndarray:
        chosen = values[0].copy()
        for k, array in enumerate(values):
            chosen[best == k] = array[best == k]
        return chosen

    return SuiteResult(
        attack=Suite.name,
        threat=threat,
        examples=pick([one.examples for one in ones]),
        success=broken,
        distortion_l2=pick([one.distortion_l2 for one in ones]),
        distortion_linf=pick([one.distortion_linf for one in ones]),
        queries=np.sum([one.queries for one in ones], axis=0),
        gradient_evaluations=np.sum([one.gradient_evaluations for one in ones], axis=0),
        clean_scores=ones[0].clean_scores,
        scores=pick([one.scores for one in ones]),
        already_misclassified=already,
        history={"robust_accuracy_by_attack": {name: one.robust_accuracy for name, one in results.items()}},
        notes=tuple(f"{name}: {note}" for name, one in results.items() for note in one.notes),
        broken_by=names[np.where(already, len(ones), np.where(broken, best, len(ones) + 1))],
        results=results,
    )
