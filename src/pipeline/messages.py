"""Errors as one line that names the setting."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Callable

from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from pipeline.errors import UserError, did_you_mean
from pipeline.labels import visible
from pipeline.schema import Config


def one_line(error: BaseException) -> str:
    """What went wrong, for a person at a terminal."""
    return visible(" ".join(_words(error).split()))


def _words(error: BaseException) -> str:
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, YAMLError):
        return _not_yaml(error)
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return f"not enough memory for these settings ({str(error).split('DefaultCPUAllocator: ')[-1] or 'stopped'})"
    if isinstance(error, RecursionError):
        return "the configuration refers to itself without end"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    text, cause = str(error).strip(), str(error.__cause__ or "").strip()
    for pattern, line in _RULES:
        match = re.search(pattern, text) or re.search(pattern, cause)
        if match:
            return line(match, text, cause)
    if isinstance(error, OverrideParseException):
        return f"{error.override}: not understood; put quotes around the value, key='…'"
    words = " ".join(text.split())
    # What Hydra and our models (ValueError) say is about a setting or the data; the name of any other exception helps
    # to find where it came from.
    worded = isinstance(error, (HydraException, OmegaConfBaseException, ValueError))
    return words if words and worded else f"{type(error).__name__}: {words}".removesuffix(": ")


def _not_yaml(error: YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"{mark.name}, line {mark.line + 1}: not YAML ({getattr(error, 'problem', None) or 'unreadable'})"
    return f"{getattr(error, 'name', 'a configuration file')}: not YAML ({getattr(error, 'reason', error)})"


def _where(text: str, cause: str, otherwise: str) -> str:
    """The setting that OmegaConf names somewhere in its messages."""
    path = re.search(r"full_key: (\S+)", f"{text}\n{cause}")
    return path[1] if path else otherwise


def _no_choice(match: re.Match[str], text: str, cause: str) -> str:
    given = next((a for a in sys.argv[1:] if a.endswith("=null")), "a group")
    return f"{given}: choose one (attack=none attacks nothing); python -m pipeline.run --help lists them"


def _unknown_choice(match: re.Match[str], text: str, cause: str) -> str:
    group, choice, options = match[1], match[2], match[3].split()
    return f"{group}={choice}: no such choice; there are {', '.join(options)}{did_you_mean(choice, options)}"


def _unknown_key(match: re.Match[str], text: str, cause: str) -> str:
    name = _where(text, cause, match[1])
    known = [f.name for f in dataclasses.fields(Config)]
    return f"{name}: no such setting{did_you_mean(name, known)}; python -m pipeline.run --cfg job lists them"


def _wrong_type(match: re.Match[str], text: str, cause: str) -> str:
    said = re.search(r"override '([^'=]+)", f"{text}\n{cause}")
    return f"{_where(text, cause, said[1] if said else 'a setting')}: {match[0].splitlines()[0]}"


def _below_null(match: re.Match[str], text: str, cause: str) -> str:
    given = next((a for a in sys.argv[1:] if re.match(r"\+*[\w.]+\.\w+=", a) and a.startswith("+")), "a setting")
    return f"{given}: what it would be a part of has no value; leave it out"


# What Hydra and OmegaConf say, or the exception they were raised from, and what that means; the first that fits.
_RULES: tuple[tuple[str, Callable[[re.Match[str], str, str], str]], ...] = (
    (r"Config group override must be a string or a list", _no_choice),
    (r"Unexpected type for root: NoneType", _below_null),
    (
        r"Missing mandatory value: (\w+)\s+full_key: \1\s",
        lambda match, *_: f"{match[1]}: choose one; python -m pipeline.run --help lists them",
    ),
    (
        r"Ambiguous value for argument '(.+?)'\n",
        lambda match, *_: f"{match[1]}: several values make a sweep, add -m; put quotes around one with a comma",
    ),
    (
        r"(?s)Could not find '([\w/]+)/([^'/]+)'\s*Available options in '[\w/]+':\s*(.*?)(?:\n\n|\Z|Config search)",
        _unknown_choice,
    ),
    (
        r"Could not override '([^']+)'.\s*No match in the defaults list",
        lambda match, *_: f"{match[1]}: no such group; python -m pipeline.run --help lists them",
    ),
    (r"Key '([^']+)' (?:is not in struct|not in '(\w+)')", _unknown_key),
    (
        r"Value '.*' of type '\w+' could not be converted to \w+|.*is not a subclass of.*|Invalid type assigned.*",
        _wrong_type,
    ),
    (
        r"Error parsing override '([^']*)'",
        lambda match, *_: f"'{match[1]}' is not of the form key=value",
    ),
    (
        r"Error merging override ([^\s=]+(?:=[^\s{\[]+(?!\S))?)",  # with its value, if that is one word
        lambda match, text, cause: f"{match[1]}: {(cause or 'not a value this setting takes').splitlines()[0]}",
    ),
    (
        r"(?s)\AIn '([^']+)': \w+ raised while composing config:\s*(.*?)(?:\s+full_key:|\Z)",
        lambda match, *_: f"{match[1]}: {match[2]}",
    ),
    (
        r"Interpolation key '([^']+)' not found\s+full_key: (\S+)",
        lambda match, *_: f"{match[2]}: ${{{match[1]}}} names no setting",
    ),
)
