"""Several attacks on the same points: the worst case per example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from .base import Attack, MinimumNormAttack
from .carlini_wagner import CarliniWagner
from .fgsm import FGSM
from .pgd import PGD
from .result import AttackResult, capped
from .scene import Observer
from .targets import as_target
from .validation import check_epsilon, check_labels, check_points
from .zoo import ZOO


@dataclass(frozen=True, eq=False, kw_only=True)
class SuiteResult(AttackResult):
    """The union of several results.

    Attributes
    ----------
    broken_by : str ndarray (n,)
        The attack whose example is the nearest (L2) of those that broke the row; ``"clean"`` for rows that were
        misclassified to begin with, ``""`` for rows no attack broke.
    results : dict of AttackResult
        By the attacks' names.
    """

    broken_by: np.ndarray
    results: dict[str, AttackResult] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """Run every attack and keep the nearest example that broke each row.

    A row is broken when some attack broke it by that attack's own rule: FGSM and PGD inside their ball, C&W and ZOO at
    any distance, or within `l2_cap` when it is given. ``accuracy_at(result, cap)`` reads the same result at other caps:
    ``distortion_l2`` is the smallest distortion any of the attacks found.

    Parameters
    ----------
    attacks : sequence of attacks, optional
        FGSM, PGD, CarliniWagner and ZOO with their defaults when None.
    l2_cap : float, optional
        Largest L2 distortion at which an example of a minimum-norm attack counts.
    chunk_size, dtype, random_state : optional
        Settings for all attacks at once, in place of their own.
    """

    attacks: Sequence[Attack] | None = None
    l2_cap: float | None = None
    chunk_size: int | None = None
    dtype: str | None = None
    random_state: int | None = None

    name: ClassVar[str] = "suite"

    def __post_init__(self) -> None:
        if self.attacks is not None and len(self.attacks) == 0:
            raise ValueError("attacks must hold at least one attack, got an empty sequence")
        if self.l2_cap is not None:
            check_epsilon(self.l2_cap, "l2_cap")

    def members(self) -> dict[str, Attack]:
        """The attacks by name; a second one of a kind is numbered, ``pgd_2``."""
        common = {key: getattr(self, key) for key in ("chunk_size", "dtype", "random_state")}
        common = {key: value for key, value in common.items() if value is not None}
        named: dict[str, Attack] = {}
        for attack in (FGSM(), PGD(), CarliniWagner(), ZOO()) if self.attacks is None else self.attacks:
            count = sum(other.name == attack.name for other in named.values())
            named[f"{attack.name}_{count + 1}" if count else attack.name] = replace(attack, **common)
        return named

    def __call__(
        self,
        model: Any,
        X: np.ndarray,
        y: np.ndarray,
        epsilons: float | Sequence[float] | None = None,
        observer: Observer | None = None,
        reference: np.ndarray | None = None,
    ) -> Any:
        """Attack every row of X with every attack; arguments and result as for a single attack.

        `epsilons` needs attacks that share one norm: a radius means nothing in two of them.
        """
        members = self.members()
        norms = {getattr(attack, "norm", "l2") for attack in members.values()}
        if epsilons is not None and len(norms) > 1:
            raise ValueError(f"epsilons cannot be given to a suite that mixes norms ({', '.join(sorted(norms))})")
        found: dict[str, list[AttackResult]] = {}
        for i, (name, attack) in enumerate(members.items()):
            result = attack(model, X, y, epsilons, self._watch(observer, i, len(members)), reference)
            several = result if isinstance(result, list) else [result]
            if self.l2_cap is not None and isinstance(attack, MinimumNormAttack):
                clean = check_points(X, attack.dtype, attack.box)
                several = [capped(one, clean, self.l2_cap) for one in several]
            found[name] = several
        signs = check_labels(y, len(X), getattr(as_target(model), "classes_", None))
        count = len(next(iter(found.values())))
        merged = [worst_case({name: found[name][k] for name in found}, signs) for k in range(count)]
        return merged[0] if epsilons is None or np.isscalar(epsilons) else merged

    @staticmethod
    def _watch(observer: Observer | None, position: int, count: int) -> Observer | None:
        if observer is None:
            return None

        def watch(event: str, step: int, total: int, **values: Any) -> None:
            observer(event, position * total + step, count * total, **values)

        return watch


def worst_case(results: dict[str, AttackResult], signs: np.ndarray) -> SuiteResult:
    """Merge results on the same rows: the nearest success, or else the example of smallest margin."""
    ones = list(results.values())
    names = np.array([*results, "clean", ""])
    success = np.stack([one.success for one in ones])
    l2 = np.where(success, np.stack([one.distortion_l2 for one in ones]), np.inf)
    margins = np.stack([signs * one.scores for one in ones])
    broken = np.logical_or.reduce(success)
    best = np.where(broken, l2.argmin(axis=0), margins.argmin(axis=0))
    already = ones[0].already_misclassified
    epsilons = {one.epsilon for one in ones}

    def pick(values: list[np.ndarray]) -> np.ndarray:
        chosen = values[0].copy()
        for k, array in enumerate(values):
            chosen[best == k] = array[best == k]
        return chosen

    return SuiteResult(
        attack=Suite.name,
        epsilon=epsilons.pop() if len(epsilons) == 1 else None,
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
