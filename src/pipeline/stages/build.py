"""Build estimators and attacks from their configuration."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from omegaconf import DictConfig, OmegaConf


def build(node: DictConfig, **overrides: Any) -> Any:
    """Instantiate a config node by its ``_target_``; ``name`` is a label, not an argument.

    ``random_state`` is passed on only to what takes one, so that a new model or attack need not have it.
    """
    from hydra.utils import instantiate

    settings = OmegaConf.to_container(node, resolve=True)
    assert isinstance(settings, dict)
    settings = _arguments(settings)
    extra = {name: value for name, value in overrides.items() if takes(node, name)}
    return instantiate(settings, **extra, _convert_="all")


def takes(node: DictConfig, argument: str) -> bool:
    """Whether what the node builds has this constructor argument."""
    from hydra.utils import get_class

    parameters = inspect.signature(get_class(node._target_)).parameters
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _arguments(settings: dict[Any, Any]) -> dict[str, Any]:
    """Labels dropped, at every level; a suite's attacks, named in the configuration, become a list."""
    kept = {str(key): value for key, value in settings.items() if key != "name"}
    kept = {key: _arguments(value) if isinstance(value, dict) else value for key, value in kept.items()}
    if isinstance(kept.get("attacks"), dict):
        kept["attacks"] = list(kept["attacks"].values())
    return kept


def with_parameters(model: Any, best: dict[str, Any]) -> Any:
    """A clone of ``model`` with tuned parameters; a width belongs to the model's kernel."""
    from sklearn.base import clone

    model = clone(model)
    own = model.get_params(deep=False)
    for name, value in best.items():
        if name in own:
            model.set_params(**{name: value})
        else:
            model.set_params(kernel=dataclasses.replace(model.kernel, **{name: value}))
    return model
