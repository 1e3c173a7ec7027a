from . import expansions, kernels
from .adv_linear_svm import AdvLinearSVM
from .adv_svm import AdvSVM
from .certificates.certify import certify
from .expansions import DoublyStochastic, FixedFeatures, SupportVectors
from .fitted import FittedClassifier, SklearnModel
from .grid import GridResult, grid_search, with_settings
from .kernels import RBF, Laplacian
from .networks import AdvNetwork
from .one_vs_rest import OneVsRest
from .persistence import load, register, save
from .rounding import NoCertificate
from .svc import KernelSVC, VotingSVC
from .training import DivergenceWarning, FewIterationsWarning, PenaltyTooLargeWarning

__all__ = [
    "RBF",
    "AdvLinearSVM",
    "AdvNetwork",
    "AdvSVM",
    "DivergenceWarning",
    "DoublyStochastic",
    "FewIterationsWarning",
    "FittedClassifier",
    "FixedFeatures",
    "GridResult",
    "KernelSVC",
    "Laplacian",
    "NoCertificate",
    "OneVsRest",
    "PenaltyTooLargeWarning",
    "SklearnModel",
    "SupportVectors",
    "VotingSVC",
    "certify",
    "expansions",
    "grid_search",
    "kernels",
    "load",
    "register",
    "save",
    "with_settings",
]
