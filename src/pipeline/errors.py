"""The one exception whose message is written for the person at the terminal, and a hint for its end."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can put right.

    The message is one line that names the setting to change (``dataset.path``, ``model.step``); it is printed
    without a traceback and the process ends with a non-zero exit code.
    """


def did_you_mean(word: object, choices: Iterable[object]) -> str:
    """`` (did you mean X?)`` when a choice is close to the word, else nothing."""
    close = difflib.get_close_matches(str(word), [str(choice) for choice in choices], n=1)
    return f" (did you mean {close[0]}?)" if close else ""
