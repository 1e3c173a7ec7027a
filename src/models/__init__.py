"""Adversarially robust support vector machines as scikit-learn estimators, with certificates and fast tuning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models import expansions, kernels
    from models.adv_linear_svm import AdvLinearSVM
    from models.adv_svm import AdvSVM
    from models.expansions import DoublyStochastic, FixedFeatures, SupportVectors
    from models.grid import GridResult, grid_search
    from models.kernels import RBF, Laplacian
    from models.persistence import load, register, save
    from models.svc import KernelSVC
    from models.training import DivergenceWarning, PenaltyTooLargeWarning

__all__ = [
    "RBF",
    "AdvLinearSVM",
    "AdvSVM",
    "DivergenceWarning",
    "DoublyStochastic",
    "FixedFeatures",
    "GridResult",
    "KernelSVC",
    "Laplacian",
    "PenaltyTooLargeWarning",
    "SupportVectors",
    "expansions",
    "grid_search",
    "kernels",
    "load",
    "register",
    "save",
]

_HOMES = {
    "AdvLinearSVM": "adv_linear_svm",
    "AdvSVM": "adv_svm",
    "DivergenceWarning": "training",
    "DoublyStochastic": "expansions",
    "FixedFeatures": "expansions",
    "GridResult": "grid",
    "KernelSVC": "svc",
    "Laplacian": "kernels",
    "PenaltyTooLargeWarning": "training",
    "RBF": "kernels",
    "SupportVectors": "expansions",
    "grid_search": "grid",
    "load": "persistence",
    "register": "persistence",
    "save": "persistence",
}


def __getattr__(name: str) -> Any:
    # On demand: a command line that only prints its help should not wait for torch.
    if name in _HOMES:
        return getattr(import_module(f"models.{_HOMES[name]}"), name)
    if name in ("expansions", "kernels"):
        return import_module(f"models.{name}")
    raise AttributeError(f"module 'models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
