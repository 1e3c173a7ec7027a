"""The convention of the small commands: settings as ``key=value``, with the names that ``pipeline.run`` has."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline.errors import UserError
from pipeline.labels import visible
from pipeline.tracking.credentials import without_credentials
from pipeline.validation import did_you_mean


@dataclass(frozen=True)
class Setting:
    """A setting of a command: what it means, what it is without being given, how its text is read.

    ``read`` raises ``ValueError`` with a sentence for what it cannot take.
    """

    help: str
    default: Any = None
    read: Callable[[str], Any] = str


@dataclass(frozen=True)
class Command:
    """``python -m pipeline.<name>``: its settings, its examples and what it does with them.

    ``run`` takes the settings by name and returns the exit code. A name that ends in ``.*`` stands for all settings
    with that beginning; ``run`` finds them in one dictionary.
    """

    name: str
    about: str
    settings: dict[str, Setting]
    examples: dict[str, str]
    run: Callable[[dict[str, Any]], int]
    notes: str = ""

    def __call__(self, arguments: list[str] | None = None) -> int:
        """Read the command line and run; what the user can put right is one line, exit code 1."""
        collect_rarely()
        arguments = sys.argv[1:] if arguments is None else arguments
        if any(argument in ("-h", "--help") for argument in arguments):
            print(self.help())
            return 0
        try:
            # A password is for the server: no message and no file repeats it.
            return self.run(self.read([without_credentials(argument) for argument in arguments]))
        except UserError as error:
            print(f"error: {visible(' '.join(str(error).split()))}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:  # the reader of our output has gone: `| head -1`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:  # a disk that is full or may only be read, a file without permission
            print(f"error: {error.filename or self.name}: {error.strerror or error}", file=sys.stderr)
            return 1

    def read(self, arguments: list[str]) -> dict[str, Any]:
        """The settings by name, defaults included."""
        found: dict[str, Any] = {}
        for name, setting in self.settings.items():
            found[name] = {} if name.endswith(".*") else setting.default
        for argument in arguments:
            name, equals, text = argument.partition("=")
            if not equals or name.startswith("-"):
                example = next((example for example in self.examples if "=" in example), "")
                raise UserError(
                    f"{argument}: write settings as key=value, such as python -m pipeline.{self.name} {example}"
                )
            family = f"{name.split('.')[0]}.*"
            if name in self.settings:
                found[name] = self._value(name, text)
            elif family in self.settings:
                found[family][name.partition(".")[2]] = text
            else:
                raise UserError(f"{name}: no such setting{did_you_mean(name, self.settings)}; --help lists them")
        return found

    def _value(self, name: str, text: str) -> Any:
        try:
            return self.settings[name].read(text)
        except ValueError as error:
            raise UserError(f"{name}: {error}") from error

    def help(self) -> str:
        """What ``--help`` prints."""
        width = max(len(name) for name in self.settings) + 1
        lines = [f"python -m pipeline.{self.name} [key=value …]", "", self.about, "", "settings:"]
        for name, setting in self.settings.items():
            default = "" if setting.default in (None, False) else f" (default: {setting.default})"
            lines.append(f"  {name + '=':<{width}}  {setting.help}{default}")
        calls = {
            f"python -m pipeline.{self.name} {example}".rstrip(): words for example, words in self.examples.items()
        }
        width = max(map(len, calls))
        lines += ["", "examples:", *(f"  {call:<{width}}  {words}".rstrip() for call, words in calls.items())]
        return "\n".join([*lines, *(["", self.notes.strip()] if self.notes else [])])


def collect_rarely() -> None:
    """Keep the garbage collector from looking, time and again and once more at the end, through all that was imported.

    torch, scikit-learn and MLflow leave a million objects that live as long as the process.
    """
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)


def truth(text: str) -> bool:
    """``true`` or ``false``."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"must be true or false; got {text}")
    return text.lower() == "true"


def tracking_settings() -> dict[str, Setting]:
    """Where the tracked runs are, as for ``pipeline.run``."""
    return {
        "tracking.uri": Setting("an MLflow server, http://…"),
        "tracking.folder": Setting("the local tracking folder", "mlruns"),
        "tracking.experiment": Setting("the MLflow experiment", "advsvm"),
    }
