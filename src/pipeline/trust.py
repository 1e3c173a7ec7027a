"""Which code a configuration may name: a YAML file from somewhere else must not choose what is run here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pipeline.code import SOURCES
from pipeline.errors import UserError

KNOWN = ("models", "attacks", "sklearn", "pipeline")
# Settings that are dotted paths of code, besides every ``_target_``.
_PATHS = ("dataset.loader", "evaluation.metrics", "evaluation.checks", "figures")


def check_trusted(cfg: DictConfig, overrides: list[str]) -> None:
    """Raise :class:`UserError` for code of a module that is neither ours nor named on the command line.

    Who starts the command names a module in ``trusted=[my_module]``, or by using it in a setting there. A file cannot
    trust itself: what it says in ``trusted`` does not count.
    """
    given = [override.lstrip("+~").partition("=") for override in overrides]
    named = [str(name) for name in cfg.get("trusted") or []] if any(key == "trusted" for key, _, _ in given) else []
    for path, target in _targets(cfg):
        said = any(key == path and target in value for key, _, value in given)
        trusted = any(f"{target}.".startswith(f"{name}.") for name in named)
        if not (said or trusted or _ours(target)):
            root = target.split(".")[0]
            way = f"trusted=[{root}] on the command line allows it" if root not in KNOWN else "that is not ours to run"
            raise UserError(f"{path}={target}: code that a configuration names is run; {way}")


def _targets(cfg: DictConfig) -> Iterator[tuple[str, str]]:
    def walk(node: Any, path: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, dict):
            for key, value in node.items():
                here = f"{path}.{key}" if path else str(key)
                if key == "_target_":
                    yield here, str(value)
                yield from walk(value, here)
        elif isinstance(node, list):
            for index, value in enumerate(node):
                yield from walk(value, f"{path}.{index}")

    yield from walk(OmegaConf.to_container(cfg, resolve=False), "")
    for path in _PATHS:
        value = OmegaConf.select(cfg, path, default=None)
        for name in value if OmegaConf.is_list(value) else [value]:
            if name and str(name) not in ("auto", "off"):
                yield path, str(name)


def _ours(target: str) -> bool:
    """Defined in a known package: ``models.persistence.os.system`` is reached through one, but not its own."""
    root = target.split(".")[0]
    if root not in KNOWN:
        return False
    if SOURCES.arguments(target) is not None:
        return True
    from hydra.utils import get_object

    try:
        found = get_object(target)
    except Exception:  # not there: whoever needs it says so, in words that fit
        return True
    home = getattr(found, "__module__", None) or getattr(found, "__name__", "")
    return str(home).split(".")[0] in KNOWN
