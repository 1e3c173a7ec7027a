"""What a stage is: the settings it reads, the stages it needs, its key, its computation and its stored form."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from omegaconf import DictConfig, OmegaConf

from pipeline.code import SOURCES, targets_in

if TYPE_CHECKING:
    from pipeline.cache import Entry

# Settings that bound memory: no number depends on them.
NO_RESULT = ("cache_mb", "chunk_size")


class Stage(ABC):
    """A step of an experiment.

    Its key is a digest of everything its result depends on: its settings, the keys of the stages it needs, the code
    that it can reach (its own module's imports and what the configuration lets it build) and the libraries' versions.
    Same key, same result.

    Parameters
    ----------
    cfg : the resolved configuration of the experiment
    needs : the stages whose results :meth:`run` takes, in its order
    """

    name: ClassVar[str]
    result: ClassVar[Any]
    """Class of the result: ``to_entry`` and ``from_entry`` are its stored form."""
    stored: bool = True
    """Whether the result is kept for others."""

    def __init__(self, cfg: DictConfig, *needs: Stage):
        self.cfg, self.needs = cfg, needs

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings that decide the result."""

    def targets(self) -> list[str]:
        """Dotted paths of what the configuration lets the stage call: their code is part of the key."""
        return list(targets_in(self.settings()))

    @abstractmethod
    def run(self, *inputs: Any, **options: Any) -> Any:
        """Compute the result from those of the needed stages; ``observer`` is told about progress."""

    def keep(self, result: Any, *inputs: Any) -> Entry:
        """The stored form of a result; what can be had from ``inputs``, those of :meth:`run`, need not be in it."""
        return result.to_entry()

    def restore(self, entry: Entry, *inputs: Any) -> Any:
        """The result from its stored form and the same inputs."""
        return self.result.from_entry(entry)

    def line(self, result: Any) -> str | None:
        """A few words on the result for the log; None for no line at all."""
        return ""

    @cached_property
    def key(self) -> str:
        """The identity of the result."""
        identity = {
            "stage": self.name,
            "settings": self.settings(),
            "needs": [stage.key for stage in self.needs],
            "code": SOURCES.version(type(self).__module__, *self.targets()),
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:40]


def plain(node: DictConfig) -> dict[str, Any]:
    """Settings without labels and without what changes no number."""
    settings = OmegaConf.to_container(node, resolve=True)
    assert isinstance(settings, dict)
    return _without(settings)


def _without(settings: dict[Any, Any]) -> dict[str, Any]:
    kept = {str(key): value for key, value in settings.items() if key != "name" and key not in NO_RESULT}
    return {key: _without(value) if isinstance(value, dict) else value for key, value in kept.items()}


# -- what a grid may vary, and where a model keeps it; by the names of tune's settings ---------------------------------
AXES = ("C", "step", "width_scale", "epsilon", "C_f", "n_features", "learning_rate", "epochs")
HOMES = ("model", "model.kernel", "model.expansion")


def axis_path(cfg: DictConfig, axis: str) -> str | None:
    """Where the model keeps what an axis of the grid varies, ``model.kernel.width_scale``; None if it has no such."""
    paths = (f"{home}.{axis}" for home in HOMES)
    return next((path for path in paths if OmegaConf.select(cfg, path) is not None), None)


def tuned_axes(cfg: DictConfig) -> dict[str, str]:
    """The axes that this run's grid decides, each with its place in the model's settings."""
    wanted = [axis for axis in AXES if cfg.tune.enabled and cfg.tune[axis] is not None]
    return {axis: path for axis in wanted if (path := axis_path(cfg, axis)) is not None}
