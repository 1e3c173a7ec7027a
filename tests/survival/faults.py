"""Attacks that go wrong in the ways jobs do; named by ``attack._target_`` in the tests."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np


class _Fault:
    def __init__(self, **settings: Any):
        self.settings = settings


class Raises(_Fault):
    """A bug."""

    def __call__(self, model: Any, X: Any, y: Any, observer: Any = None) -> None:
        raise RuntimeError("a bug in an attack")


class OutOfMemory(_Fault):
    """An allocation that is refused."""

    def __call__(self, model: Any, X: Any, y: Any, observer: Any = None) -> Any:
        return np.ones(1 << 50)


class Killed(_Fault):
    """What the kernel does to a process that eats all memory."""

    def __call__(self, model: Any, X: Any, y: Any, observer: Any = None) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Cancelled(_Fault):
    """What a scheduler does to a job that is cancelled."""

    def __call__(self, model: Any, X: Any, y: Any, observer: Any = None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)


class Slow(_Fault):
    """Long enough to be interrupted."""

    def __call__(self, model: Any, X: Any, y: Any, observer: Any = None) -> None:
        time.sleep(60)


class Paused(_Fault):
    """A real attack that waits half-way until the file ``go`` is there."""

    def __call__(self, model: Any, X: Any, y: Any, observer: Any = None) -> Any:
        from attacks import FGSM

        Path("paused").touch()
        while not Path("go").exists():
            time.sleep(0.05)
        return FGSM(epsilon=0.1)(model, X, y, observer=observer)
