"""Ways to hold the function f: seeded random features, a fixed bank of them, or the support vectors themselves."""

from models.expansions.doubly_stochastic import DoublyStochastic
from models.expansions.expansion import Expansion, LiveExpansion
from models.expansions.fixed_features import FixedFeatures
from models.expansions.support_vectors import SupportVectors
from models.kernel_sums import KernelSpace

__all__ = [
    "DoublyStochastic",
    "Expansion",
    "FixedFeatures",
    "KernelSpace",
    "LiveExpansion",
    "SupportVectors",
]
