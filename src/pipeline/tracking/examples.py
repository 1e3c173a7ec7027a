"""``adversarial/examples.npz``: the examples of a run, whole or as clean pixels and what was added to them.

Up to 8 MB the file has the array ``examples`` itself. Larger ones of pixels (k / 255) are kept as ``clean``, the
pixels in one byte each, and ``perturbations``, which take few values: a quarter of the size, and the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.stages.attack import perturbations, perturbed

_WHOLE = 8_000_000  # bytes
_LEVELS = 255


def write_examples(file: Path, examples: np.ndarray, clean: np.ndarray, **others: Any) -> None:
    """Write the examples and arrays that belong to them."""
    arrays: dict[str, Any] = _stored(examples.astype(np.float32), clean) | others
    np.savez_compressed(file, **arrays)


def read_examples(stored: str | Path | Mapping[str, np.ndarray]) -> np.ndarray:
    """The examples (n, d), float32, of such a file or of its arrays."""
    arrays = np.load(stored, allow_pickle=False) if isinstance(stored, (str, Path)) else stored
    if "examples" in arrays:
        return arrays["examples"]
    return perturbed(_pixels(arrays["clean"]), arrays["perturbations"])


def _stored(examples: np.ndarray, clean: np.ndarray) -> dict[str, np.ndarray]:
    if examples.nbytes <= _WHOLE or clean.dtype != np.float32:
        return {"examples": examples}
    codes = np.rint(np.clip(clean, 0, 1) * _LEVELS).astype(np.uint8)
    delta = perturbations(examples, clean)
    if delta is None or not np.array_equal(_pixels(codes), clean):
        return {"examples": examples}
    return {"clean": codes, "perturbations": delta}


def _pixels(codes: np.ndarray) -> np.ndarray:
    return codes.astype(np.float32) / np.float32(_LEVELS)
