"""Where things are: the configuration folder and the shared data folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from pipeline.errors import UserError

_PACKAGE = Path(__file__).resolve().parent


def conf_dir() -> Path:
    """Folder of the configuration groups: the checkout's ``conf/`` if there is one, else the copy in the wheel."""
    checkout = _PACKAGE.parent.parent / "conf"
    return checkout if (checkout / "config.yaml").is_file() else _PACKAGE / "conf"


def default_data_dir() -> Path:
    """Folder that keeps downloaded data for all checkouts of a user; ``ADVSVM_DATA`` moves it."""
    return Path(os.environ.get("ADVSVM_DATA") or Path(platformdirs.user_cache_dir("advsvm")) / "data")


def check_writable(setting: str, folder: str | Path) -> Path:
    """Make sure that a folder exists and can be written; raises a UserError that names the setting."""
    path = Path(folder).expanduser().absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".write-test-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except (OSError, ValueError) as error:
        raise UserError(f"{setting}: cannot write to {path} ({getattr(error, 'strerror', error)})") from error
    return path
