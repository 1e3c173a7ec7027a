"""Ways to hold the function f: seeded random features, a fixed bank of them, or the support vectors themselves."""

from typing import Any

from models.expansions.base import Expansion, Front, KernelSpace, LiveExpansion
from models.expansions.doubly_stochastic import DoublyStochastic
from models.expansions.fixed_features import FixedFeatures
from models.expansions.support_vectors import SupportVectors

__all__ = [
    "EXPANSIONS",
    "DoublyStochastic",
    "Expansion",
    "FixedFeatures",
    "Front",
    "KernelSpace",
    "LiveExpansion",
    "SupportVectors",
    "as_expansion",
    "expansion_from_dict",
]

EXPANSIONS: dict[str, type[Expansion]] = {kind.name: kind for kind in (DoublyStochastic, FixedFeatures, SupportVectors)}


def as_expansion(expansion: str | Expansion) -> Expansion:
    """An expansion object from its name, or the object itself."""
    return EXPANSIONS[expansion]() if isinstance(expansion, str) else expansion


def expansion_from_dict(settings: dict[str, Any]) -> Expansion:
    """Inverse of `Expansion.to_dict`."""
    return EXPANSIONS[settings["name"]](**{key: value for key, value in settings.items() if key != "name"})
