"""Settings of a dataset: its YAML in ``conf/dataset``, with the user's changes on top."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.errors import UserError, did_you_mean
from pipeline.paths import at_home, conf_dir

Settings = Mapping[str, Any]


def dataset_names() -> list[str]:
    """Names of all datasets: the YAML files of the group."""
    return sorted(path.stem for path in (conf_dir() / "dataset").glob("*.yaml"))


def read_settings(name: str, changes: Sequence[str] | Settings = ()) -> dict[str, Any]:
    """Settings of the dataset `name`, changed by ``key=value`` strings or by a mapping.

    A UserError names an unknown dataset or key (with the nearest known one), and a value that cannot be read.
    """
    path = conf_dir() / "dataset" / f"{name}.yaml"
    if not path.is_file():
        raise UserError(f"dataset: there is no {name!r}{known_names(name, dataset_names())}")
    config = OmegaConf.load(path)
    try:
        if isinstance(changes, Mapping):
            changed = OmegaConf.create(dict(changes))
        else:
            changed = OmegaConf.from_dotlist(list(changes))
    except Exception as error:
        raise UserError(f"dataset: cannot read {changes!r} ({first_line(error)})") from error
    for key in changed:
        if key not in config:
            raise UserError(f"dataset.{key!s}: no such setting{known_names(str(key), list(plain(config)))}")
    try:
        return plain(OmegaConf.merge(config, changed))
    except OmegaConfBaseException as error:
        raise UserError(f"dataset: cannot use {changes!r} ({first_line(error)})") from error


def resolve(settings: str | Settings | Any) -> dict[str, Any]:
    """Plain dictionary of settings from a name, a mapping, an OmegaConf node or a dataclass instance.

    A mapping without a ``loader`` is read as changes to the YAML of its ``name``.
    """
    if isinstance(settings, str):
        return read_settings(settings)
    values = plain(settings)
    if not isinstance(values.get("name"), str):
        raise UserError("dataset.name: missing; name a dataset, such as dataset=digits_1v7")
    if not re.fullmatch(r"\w[\w .+-]{0,99}", values["name"]):
        raise UserError(f"dataset.name: {values['name']!r} must be letters, digits, spaces and . _ + - only")
    return values if values.get("loader") else read_settings(values["name"], values)


def plain(settings: Any) -> dict[str, Any]:
    """Resolve interpolations and drop OmegaConf's types."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        settings = OmegaConf.structured(settings)
    node = settings if isinstance(settings, DictConfig) else OmegaConf.create(dict(settings))
    values = OmegaConf.to_container(node, resolve=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def user_path(settings: Settings, key: str = "path") -> Path | None:
    """The file or folder a user pointed at, or None; it must exist and be readable."""
    value = settings.get(key)
    if value is None or value == "":
        return None
    path = at_home(os.path.expandvars(str(value)))
    setting = f"dataset.{key}"
    try:
        if not path.exists():
            raise UserError(f"{setting}: {path} does not exist")
        readable = os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0))
    except OSError as error:
        raise UserError(f"{setting}: cannot look into {path} ({error.strerror}); check its rights") from error
    if not readable:
        raise UserError(f"{setting}: no right to read {path}; change its rights or choose another folder")
    return path.resolve()


def known_names(word: str, known: Sequence[str]) -> str:
    """Hint that ends a message on an unknown word: the one that was meant, or all of them."""
    return did_you_mean(word, known) or f"; known: {', '.join(known)}"


def first_line(error: Exception) -> str:
    """An exception's message, cut to one line, without the names of exceptions that libraries put into it."""
    words = re.sub(r"\b[A-Z]\w*(Error|Exception): ", "", str(error)).strip()
    return words.splitlines()[0] if words else "unreadable"
