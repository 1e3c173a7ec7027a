"""Where things are: the configuration folder and the shared data folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

_PACKAGE = Path(__file__).resolve().parent


def conf_dir() -> Path:
    """Folder of the configuration groups: the checkout's ``conf/`` if there is one, else the copy in the wheel."""
    checkout = _PACKAGE.parent.parent / "conf"
    return checkout if (checkout / "config.yaml").is_file() else _PACKAGE / "conf"


def default_data_dir() -> Path:
    """Folder that keeps downloaded data for all checkouts of a user; ``ADVSVM_DATA`` moves it."""
    return Path(os.environ.get("ADVSVM_DATA") or Path(platformdirs.user_cache_dir("advsvm")) / "data")
