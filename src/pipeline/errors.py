"""The one exception whose message is written for the person at the terminal."""


class UserError(Exception):
    """Something the user can put right.

    The message is one line that names the setting to change (``dataset.path``, ``model.step``); it is printed
    without a traceback and the process ends with a non-zero exit code.
    """
