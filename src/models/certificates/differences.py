"""The highest score wins: certificates of differences f_c - f_j, where that is a form of its own."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.certificates.contest import Contest, Prove
from models.certificates.cosines import CosineSum, FeatureBank
from models.certificates.definite import curvature_bound
from models.certificates.scaling import same_scaling
from models.expansions.random_features import RandomFeatureSum
from models.rounding import UNIT64

# Multiplications that the curvature of a difference may take.
_WORTH = 2**28


def highest_score(classes: np.ndarray, forms: Sequence[Any], slack: float = 0.0) -> Contest:
    """Class c wins where f_c - f_j > 0 for all rivals j."""
    bank = shared_bank(forms)
    made = [difference(forms[c], forms[j], bank) for c, j in combinations(range(len(forms)), 2)]
    if any(form is None for form in made):
        # Different widths or kinds: enough if c is positive and all others are negative.
        signs = [[(j, 1.0 if j == c else -1.0) for j in range(len(forms))] for c in range(len(forms))]
        return Contest(np.asarray(classes), list(forms), signs, slack)
    return Contest(np.asarray(classes), made, pairs(len(forms)), slack)


def pairs(n_classes: int) -> list[list[tuple[int, float]]]:
    """Pair number p of (i, j), i < j, is positive for i."""
    comparisons: list[list[tuple[int, float]]] = [[] for _ in range(n_classes)]
    for number, (i, j) in enumerate(combinations(range(n_classes), 2)):
        comparisons[i].append((number, 1.0))
        comparisons[j].append((number, -1.0))
    return comparisons


def difference(one: Any, other: Any, bank: "FeatureBank | None" = None) -> Any:
    """f_one - f_other as a form of its own, or None if it is not one."""
    if not same_scaling(getattr(one, "scaling", None), getattr(other, "scaling", None)):
        return None
    if isinstance(one, CosineSum) and isinstance(other, CosineSum):
        return None if bank is None else CosineDifference(one, other, bank)
    minus = getattr(one, "minus", None)
    return None if minus is None else minus(other)


def shared_bank(forms: Sequence[Any]) -> FeatureBank | None:
    """The features of machines of the same seed and width; None where they are not the same."""
    if not all(isinstance(form, CosineSum) for form in forms):
        return None
    sums = [form.expansion for form in forms]
    if any(_features_of(one) != _features_of(sums[0]) for one in sums):
        return None
    return FeatureBank(sums[0], sorted({number for one in sums for number, _ in one.live_blocks()}))


def _features_of(one: RandomFeatureSum) -> tuple[Any, ...]:
    space = one.space
    return type(one), space.kernel, space.gammas[0], space.seed, space.dtype, space.dimension, one.n_features


class CosineDifference(CosineSum):
    """The difference of two random-feature machines with the same features.

    The machines are evaluated one by one, so that rounding is that of both: moments and curvatures are their sums.
    """

    def __init__(self, one: CosineSum, other: CosineSum, bank: FeatureBank):
        self.expansion: Any = _Difference(one.expansion, other.expansion, bank.numbers)
        self.single, self.bank = one.single, bank
        self.mass, self.first, self.second = one.mass + other.mass, one.first + other.first, one.second + other.second
        self.n_terms = one.n_terms + other.n_terms
        self.curvature = one.curvature + other.curvature
        if self.n_terms * one.expansion.space.dimension**2 <= _WORTH:
            frequencies, _, _, weights = self._features
            # What the two share cancels: on the digits three fifths of the sum.
            self.curvature = min(self.curvature, curvature_bound(frequencies, weights) * (1 + 8 * UNIT64))

    @property
    def stages(self) -> tuple[tuple[Prove, int], ...]:
        # Quartics keep a large matrix each: too much for a form per pair of classes.
        return super().stages[:1]


class _Difference:
    """The difference of two sums over the same blocks, as `CosineSum` reads an expansion; weights in float64."""

    scores_and_gradients = RandomFeatureSum.scores_and_gradients
    panels, live_panels = RandomFeatureSum.panels, RandomFeatureSum.live_panels

    def __init__(self, one: RandomFeatureSum, other: RandomFeatureSum, numbers: list[int]):
        self.one, self.other, self.numbers = one, other, numbers
        self.space, self.stream, self.n_features, self.n_columns = one.space, one.stream, one.n_features, 1

    def live_blocks(self) -> Iterator[tuple[int, Tensor]]:
        mine, theirs = dict(self.one.live_blocks()), dict(self.other.live_blocks())
        nothing = torch.zeros(self.n_features, 1, dtype=torch.float64)
        for number in self.numbers:
            yield number, mine.get(number, nothing).double() - theirs.get(number, nothing).double()
