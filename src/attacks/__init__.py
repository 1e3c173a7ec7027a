"""Attacks on binary classifiers with a real-valued score: they need scores, gradients or probes, nothing else."""

from .base import Attack, FixedEpsilonAttack, MinimumNormAttack
from .carlini_wagner import CarliniWagner
from .fgsm import FGSM, NoAttack
from .pgd import PGD
from .result import AttackResult, accuracy_at
from .suite import Suite, SuiteResult
from .targets import as_target
from .transfer import Transfer
from .zoo import ZOO

__all__ = [
    "FGSM",
    "PGD",
    "ZOO",
    "Attack",
    "AttackResult",
    "CarliniWagner",
    "FixedEpsilonAttack",
    "MinimumNormAttack",
    "NoAttack",
    "Suite",
    "SuiteResult",
    "Transfer",
    "accuracy_at",
    "as_target",
]
