"""``adversarial/examples.npz``: the examples of a run, whole or as what was added to clean pixels.

Up to 8 MB the file has the array ``examples`` itself. Of larger ones of pixels (k / 255) it has ``perturbations``,
which take few values, and ``clean.npz`` beside it the pixels, ``clean``, in one byte each: the same bit for bit when
they are added. Runs that attack the same rows have the same ``clean.npz``, which a local store keeps once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.stages.attack import perturbations, perturbed

CLEAN = "clean.npz"
_WHOLE = 8_000_000  # bytes
_LEVELS = 255


def write_examples(file: Path, examples: np.ndarray, clean: np.ndarray, **others: Any) -> None:
    """Write the examples and arrays that belong to them."""
    examples = examples.astype(np.float32)
    parts = None if examples.nbytes <= _WHOLE else _parts(examples, clean)
    if parts is None:
        np.savez_compressed(file, examples=examples, **others)
    else:
        codes, delta = parts
        np.savez_compressed(file.with_name(CLEAN), clean=codes)
        np.savez_compressed(file, perturbations=delta, **others)


def read_examples(file: str | Path) -> np.ndarray:
    """The examples (n, d), float32, of such a file."""
    with np.load(file, allow_pickle=False) as arrays:
        if "examples" in arrays:
            return arrays["examples"]
        delta = arrays["perturbations"]
        if "clean" in arrays:  # as it was before the pixels had a file of their own
            return perturbed(_pixels(arrays["clean"]), delta)
    with np.load(Path(file).with_name(CLEAN), allow_pickle=False) as arrays:
        return perturbed(_pixels(arrays["clean"]), delta)


def _parts(examples: np.ndarray, clean: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Clean pixels as bytes and what was added to them; None where the two do not give the examples bit for bit."""
    if clean.dtype != np.float32:
        return None
    codes = np.rint(np.clip(clean, 0, 1) * _LEVELS).astype(np.uint8)
    delta = perturbations(examples, clean)
    return None if delta is None or not np.array_equal(_pixels(codes), clean) else (codes, delta)


def _pixels(codes: np.ndarray) -> np.ndarray:
    return codes.astype(np.float32) / np.float32(_LEVELS)
