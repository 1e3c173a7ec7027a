"""Errors as one line that names the setting."""

from __future__ import annotations

import dataclasses
import os
import re
import sys

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
    if isinstance(error, RecursionError):
        return "the configuration refers to itself without end"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    text = str(error).strip()
    cause = str(error.__cause__ or "").strip()
    for rule in (
        _no_choice,
        _unknown_choice,
        _unknown_group,
        _unknown_key,
        _wrong_type,
        _bad_syntax,
        _unmergeable,
        _unfit_file,
        _no_reference,
    ):
        line = rule(text, cause)
        if line:
            return line
    if isinstance(error, OverrideParseException):
        return f"{error.override}: not understood; put quotes around the value, key='…'"
    words = " ".join(text.split())
    # What Hydra and our models (ValueError) say is about a setting or the data; the name of any other exception helps
    # to find where it came from.
    worded = isinstance(error, (HydraException, OmegaConfBaseException, ValueError))
    return words if words and worded else _named(error, words)


def _not_yaml(error: YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"{mark.name}, line {mark.line + 1}: not YAML ({getattr(error, 'problem', None) or 'unreadable'})"
    return f"{getattr(error, 'name', 'a configuration file')}: not YAML ({getattr(error, 'reason', error)})"


def _named(error: BaseException, words: str) -> str:
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _no_choice(text: str, cause: str) -> str | None:
    if "Config group override must be a string or a list" not in text:
        return None
    given = next((a for a in sys.argv[1:] if a.endswith("=null")), "a group")
    return f"{given}: choose one (attack=none attacks nothing); python -m pipeline.run --help lists them"


def _unknown_choice(text: str, cause: str) -> str | None:
    match = re.search(
        r"Could not find '([\w/]+)/([^'/]+)'\s*Available options in '[\w/]+':\s*(.*?)(?:\n\n|\Z|Config search)",
        text,
        re.S,
    )
    if match is None:
        return None
    group, choice, options = match[1], match[2], match[3].split()
    return f"{group}={choice}: no such choice; there are {', '.join(options)}{did_you_mean(choice, options)}"


def _unknown_group(text: str, cause: str) -> str | None:
    match = re.search(r"Could not override '([^']+)'.\s*No match in the defaults list", text)
    return f"{match[1]}: no such group; python -m pipeline.run --help lists them" if match else None


def _unfit_file(text: str, cause: str) -> str | None:
    match = re.match(r"In '([^']+)': \w+ raised while composing config:\s*(.*?)(?:\s+full_key:|\Z)", text, re.S)
    return f"{match[1]}: {match[2]}" if match else None


def _no_reference(text: str, cause: str) -> str | None:
    match = re.search(r"Interpolation key '([^']+)' not found\s+full_key: (\S+)", text)
    return f"{match[2]}: ${{{match[1]}}} names no setting" if match else None


def _unknown_key(text: str, cause: str) -> str | None:
    match = re.search(r"Key '([^']+)' (?:is not in struct|not in '(\w+)')", text + "\n" + cause)
    if match is None:
        return None
    path = re.search(r"full_key: (\S+)", text + "\n" + cause)
    name = path[1] if path else match[1]
    known = [f.name for f in dataclasses.fields(Config)]
    return f"{name}: no such setting{did_you_mean(name, known)}; python -m pipeline.run --cfg job lists them"


def _wrong_type(text: str, cause: str) -> str | None:
    both = f"{text}\n{cause}"
    path = re.search(r"full_key: (\S+)", both)
    match = re.search(
        r"(Value '.*' of type '\w+' could not be converted to (\w+)|.*is not a subclass of.*|Invalid type assigned.*)",
        both,
    )
    if match is None:
        return None
    where = path[1] if path else (re.search(r"override '([^'=]+)", both) or [None, "a setting"])[1]
    return f"{where}: {match[1].splitlines()[0]}"


def _bad_syntax(text: str, cause: str) -> str | None:
    match = re.search(r"Error parsing override '([^']*)'", text)
    return f"'{match[1]}' is not of the form key=value" if match else None


def _unmergeable(text: str, cause: str) -> str | None:
    match = re.search(r"Error merging override (\S+)", text)
    return f"{match[1]}: {cause.splitlines()[0] if cause else 'not a value this setting takes'}" if match else None
