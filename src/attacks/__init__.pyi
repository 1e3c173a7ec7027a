from .auto import APGD, Auto, Square
from .base import Attack, FixedEpsilonAttack, MinimumNormAttack
from .bracket import Bracket, bracket
from .carlini_wagner import CarliniWagner
from .hop_skip_jump import HopSkipJump
from .min_norm import MinNorm
from .pgd import FGSM, PGD, NoAttack
from .problem import Problem, RunResult
from .result import AttackResult, accuracy_at
from .suite import Suite, SuiteResult
from .targets import as_target
from .threats import Constraints, Threat
from .transfer import Transfer
from .validation import Unattackable
from .zoo import ZOO

__all__ = [
    "APGD",
    "FGSM",
    "PGD",
    "ZOO",
    "Attack",
    "AttackResult",
    "Auto",
    "Bracket",
    "CarliniWagner",
    "Constraints",
    "FixedEpsilonAttack",
    "HopSkipJump",
    "MinNorm",
    "MinimumNormAttack",
    "NoAttack",
    "Problem",
    "RunResult",
    "Square",
    "Suite",
    "SuiteResult",
    "Threat",
    "Transfer",
    "Unattackable",
    "accuracy_at",
    "as_target",
    "bracket",
]
