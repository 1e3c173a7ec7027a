"""Build estimators and attacks from their configuration."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from pipeline.arguments import arguments_of
from pipeline.errors import UserError
from pipeline.fitted import is_fitted
from pipeline.stages.units import in_scaled_units, scaled_radii

if TYPE_CHECKING:
    from pipeline.data import Dataset


# Settings of a group that its class does not take.
LABELS = ("name", "units")


def build(node: DictConfig, **overrides: Any) -> Any:
    """Instantiate a config node by its ``_target_``; ``name`` is a label, ``units`` the pipeline's: no arguments.

    ``random_state`` is passed on only to what takes one, so that a new model or attack need not have it.
    """
    from hydra.utils import instantiate

    settings = OmegaConf.to_container(node, resolve=True)
    assert isinstance(settings, dict)
    extra = {name: value for name, value in overrides.items() if takes(node, name)}
    return instantiate(_arguments(settings), **extra, _convert_="all")


def build_model(node: DictConfig, data: Dataset, seed: int) -> Any:
    """An unfitted model for these data: what looks at pictures is told their shape, what moves rows their box.

    Others keep their own: the box of a linear machine is that of its training rows, as in its paper.
    """
    from sklearn.base import BaseEstimator

    of_data = {"box": data.box, "image_shape": data.image_shape} if takes(node, "image_shape") else {}
    model = build(node, random_state=seed, **of_data)
    if getattr(model, "moves_rows", False):
        model.set_params(box=data.box)
    if not callable(getattr(model, "scores", None)) and isinstance(model, BaseEstimator):
        from models import SklearnModel

        model = SklearnModel(model)
    if data.n_classes == 2:
        return model
    if not callable(getattr(model, "for_classes", None)):
        raise UserError(
            f"model={node.name}: it tells two classes apart, the data have {data.n_classes}; give it for_classes, "
            "use another model, or choose two with dataset.classes=[A,B]"
        )
    return model.for_classes(data.n_classes)


def staged_data(cfg: DictConfig, data: Dataset) -> Dataset:
    """The loaded dataset as this run's stages use it: sparse training rows only where its model takes them."""
    from pipeline.data.dataset import is_sparse

    if not is_sparse(data.X_test):
        return data
    from sklearn.utils import get_tags

    from pipeline.data.windows import for_stages

    takes_sparse = is_fitted(cfg)  # nothing is trained on them
    if not takes_sparse:
        model = build_model(cfg.model, data, cfg.seed)
        takes_sparse = hasattr(model, "__sklearn_tags__") and bool(get_tags(model).input_tags.sparse)
    return for_stages(data, cfg.dataset, str(cfg.model.name), takes_sparse)


def takes(node: DictConfig, argument: str) -> bool:
    """Whether what the node builds has this constructor argument."""
    known = arguments_of(node._target_)
    if known is not None:
        return argument in known
    from hydra.utils import get_class

    try:
        parameters = inspect.signature(get_class(node._target_)).parameters
    except (ImportError, TypeError, ValueError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise UserError(f"{node._get_full_key('_target_')}={node._target_}: no class to be had ({reason})") from error
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _arguments(settings: dict[Any, Any]) -> dict[str, Any]:
    """Labels dropped, at every level; a suite's attacks, named in the configuration, become a list."""
    kept = {str(key): value for key, value in settings.items() if key not in LABELS}
    kept = {key: _arguments(value) if isinstance(value, dict) else value for key, value in kept.items()}
    if isinstance(kept.get("attacks"), dict):
        kept["attacks"] = list(kept["attacks"].values())
    return kept


def build_attack(cfg: DictConfig, data: Dataset) -> Any:
    """The attack for these data: in their box, and under what their attacker cannot do."""
    method = in_scaled_units(build(cfg.attack, random_state=cfg.seed), cfg, data)
    limits = {"box": data.box, "constraints": attack_constraints(cfg, data)}
    known = {field.name for field in dataclasses.fields(method)} if dataclasses.is_dataclass(method) else set()
    if limits["constraints"] is not None and "constraints" not in known:
        raise UserError(f"attack={cfg.attack.name}: it heeds no limits of single features; take another one")
    wanted = {name: value for name, value in limits.items() if name in known and value is not None}
    return dataclasses.replace(method, **wanted) if wanted else method


def constraints_of(data: Dataset) -> Any:
    """``dataset.mutable`` and ``dataset.monotone`` as the attacks take them; None without either."""
    if data.mutable is None and data.monotone is None:
        return None
    from attacks import Constraints

    fixed = None if data.mutable is None or data.mutable.all() else ~data.mutable
    return Constraints(mask=fixed, direction=data.monotone)


def attack_constraints(cfg: DictConfig, data: Dataset) -> Any:
    """What limits the attacker beyond ball and box: those of the data, and radii that differ between features."""
    from attacks import Constraints

    constraints, radii = constraints_of(data), scaled_radii(cfg, data)
    if radii is None:
        return constraints
    return Constraints(epsilon=radii) if constraints is None else dataclasses.replace(constraints, epsilon=radii)
