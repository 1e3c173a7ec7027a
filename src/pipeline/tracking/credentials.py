"""User names and passwords in addresses: out of whatever is shown or stored, into MLflow's own variables."""

from __future__ import annotations

import os
import re
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from pipeline.errors import UserError

USERNAME, PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
# Up to the last @ of a word: a password may hold one. Another address in the same word starts anew.
_ADDRESS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)((?:(?!://)[^\s'\"@])*(?:@(?:(?!://)[^\s'\"@])*)*)@")


def _split(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError:
        shown = _ADDRESS.sub(r"\1***@", uri)
        raise UserError(f"tracking.uri={shown}: not an address; write http://HOST:PORT") from None


def masked(uri: str) -> str:
    """The address without its password, for logs and tags."""
    parts = _split(uri)
    if parts.password is None:
        return uri
    host = parts.netloc.rsplit("@", 1)[1]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))


def take_credentials(uri: str) -> str:
    """The address without user and password, which move to MLflow's own variables in the environment.

    MLflow quotes the address in its error messages; there it must not hold a secret.
    """
    parts = _split(uri)
    if parts.username is None and parts.password is None:
        return uri
    for variable, value in ((USERNAME, parts.username), (PASSWORD, parts.password)):
        if value is not None:
            os.environ[variable] = unquote(value)
    return urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]))


def without_credentials(argument: str) -> str:
    """A command line argument as it may be shown and stored: ``scheme://user:secret@host`` loses user and secret.

    Those of a tracking server move to the environment, where jobs of every launcher find them; elsewhere they are
    dropped. One password cannot be two servers', so that a sweep over servers with different logins is refused.
    """
    of_tracking = argument.lstrip("+~ \t'\"").startswith("tracking")
    logins: set[str] = set()

    def strip(match: re.Match[str]) -> str:
        scheme, login = match[1].lower(), match[2]
        # http://host:5000/a@b: a port and a path, not a password with a slash.
        host = re.match(r"[^/?#:@]*(:\d*)?[/?#]", login)
        if host:
            return match[0]
        if of_tracking and scheme in ("http://", "https://"):
            logins.add(login)
            name, _, password = login.partition(":")
            os.environ[USERNAME] = unquote(name)
            if password:
                os.environ[PASSWORD] = unquote(password)
        return scheme

    shown = _ADDRESS.sub(strip, argument)
    if len(logins) > 1:
        raise UserError(f"{shown}: servers with different logins need a command each")
    return shown
