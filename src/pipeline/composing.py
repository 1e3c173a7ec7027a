"""The configurations of a sweep at the price of a few: jobs that differ in plain values share what their files say."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

# A setting that is there, and a value without structure: seed=3, model.C=0.5.
_PLAIN = re.compile(r"(?!hydra\b)[a-z]\w*(\.\w+)*=[\w.+-]+")
# What is kept for the next job takes some 300 kB for each choice of groups.
_KEPT = 100

Compose = Callable[..., DictConfig]


def sharing(compose: Compose) -> Compose:
    """``ConfigLoaderImpl.load_configuration`` that reads and merges the files once for every choice of groups.

    Hydra does so for every job, twice, in a tenth of a second each. Plain values are put in last, by Hydra's own
    function; what cannot be told apart from the rest (a value beside its own group's, a deletion) is left to Hydra.
    """
    known: WeakKeyDictionary[ConfigLoaderImpl, dict[str, DictConfig]] = WeakKeyDictionary()

    def load_configuration(
        loader: ConfigLoaderImpl, config_name: str | None, overrides: list[str], *args: Any, **kwargs: Any
    ) -> DictConfig:
        parsed = OverridesParser.create().parse_overrides(overrides)
        plain = _plain(loader, parsed)
        if not plain:
            return compose(loader, config_name, overrides, *args, **kwargs)
        shared = [override.input_line for override in parsed if override not in plain]
        kept, key = known.setdefault(loader, {}), repr((config_name, shared, args, kwargs))
        if key not in kept and len(kept) < _KEPT:
            kept[key] = compose(loader, config_name, shared, *args, **kwargs)
        # A search path of a file brings groups that only Hydra knows.
        if key not in kept or kept[key].hydra.searchpath:
            return compose(loader, config_name, overrides, *args, **kwargs)
        cfg = copy.deepcopy(kept[key])
        loader._apply_overrides_to_config(plain, cfg)
        task = [override for override in parsed if not override.is_hydra_override()]
        cfg.hydra.overrides.task = [override.input_line for override in task]
        style = cfg.hydra.job.config.override_dirname
        cfg.hydra.job.override_dirname = get_overrides_dirname(task, style.exclude_keys, style.item_sep, style.kv_sep)
        return cfg

    return load_configuration


def _plain(loader: ConfigLoaderImpl, parsed: list[Override]) -> list[Override]:
    """The overrides that may be put in after all others, whatever these are."""
    groups = {o.key_or_group for o in parsed if loader.repository.group_exists(o.key_or_group)}
    # A choice of a group is Hydra's first concern, wherever it stands; model={C: 2} is none.
    values = [o for o in parsed if not (o.key_or_group in groups and isinstance(o.value(), str))]

    def alone(override: Override) -> bool:
        here = f"{override.key_or_group}."
        others = [f"{other.key_or_group}." for other in values if other is not override]
        return not any(here.startswith(other) or other.startswith(here) for other in others)

    mine = (o for o in values if o.key_or_group not in groups and _PLAIN.fullmatch(o.input_line or ""))
    return [o for o in mine if alone(o)]
