"""Errors as one line that names the setting."""

from __future__ import annotations

import dataclasses
import re

from pipeline.errors import UserError
from pipeline.schema import Config
from pipeline.validation import did_you_mean


def one_line(error: BaseException) -> str:
    """What went wrong, for a person at a terminal."""
    if isinstance(error, UserError):
        return str(error)
    text = str(error).strip()
    cause = str(error.__cause__ or "").strip()
    for rule in (_unknown_choice, _unknown_group, _unknown_key, _wrong_type, _bad_syntax, _unmergeable):
        line = rule(text, cause)
        if line:
            return line
    return f"{type(error).__name__}: {' '.join(text.split())}" if text else type(error).__name__


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
