"""Fitted models on disk: ``model.safetensors`` for the arrays, ``model.json`` for everything else. No pickle.

A model takes part with ``get_state() -> (meta, arrays)`` and the classmethod ``from_state(meta, arrays)``.
"""

import hashlib
import json
import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from models.compact import pack, unpack

FORMAT_VERSION = 2  # 2: arrays may be stored as models.compact does; 1 is read, too
TENSORS = "model.safetensors"
DOCUMENT = "model.json"

# The only classes a file may name: a model file can never make us import or run anything else.
# `register` adds classes that the caller has imported itself.
_MODULES = {
    "AdvSVM": "models.adv_svm",
    "AdvLinearSVM": "models.adv_linear_svm",
    "KernelSVC": "models.svc",
    "AdvNetwork": "models.networks",
    "FittedClassifier": "models.fitted",
    "VotingSVC": "models.svc",
    "SklearnModel": "models.fitted",
    "OneVsRest": "models.one_vs_rest",
}


_REGISTERED: dict[str, type] = {}


def register(model_class: type) -> type:
    """Let `load` build models of a class of your own; usable as a decorator.

    The class needs ``get_state() -> (meta, arrays)`` and the classmethod ``from_state(meta, arrays)``.
    """
    for method in ("get_state", "from_state"):
        if not callable(getattr(model_class, method, None)):
            raise ValueError(f"cannot save a {model_class.__name__}: it has no {method}")
    _REGISTERED[model_class.__name__] = model_class
    return model_class


def save(model: Any, folder: str | os.PathLike[str]) -> None:
    """Write a fitted model into `folder` (created if needed), replacing an older one.

    Each file appears under its name only when complete. The document is written last and holds the checksum of the
    arrays, so a write that was cut short between the two is refused by `load`, never half loaded.
    """
    name = type(model).__name__
    if name not in _MODULES:
        register(type(model))
    meta, arrays = model.get_state()
    tensors = pack(arrays)
    body = {
        "format_version": FORMAT_VERSION,
        "class": name,
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(),
        "shapes": {key: list(np.shape(value)) for key, value in arrays.items()},
        "meta": meta,
    }
    # Through JSON once, so that the checksum is of exactly what a reader will see.
    body = json.loads(json.dumps(body, default=_plain))
    document = json.dumps({**body, "checksum": _checksum(body)}, indent=2, sort_keys=True)

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _write_atomically(folder / TENSORS, tensors)
    _write_atomically(folder / DOCUMENT, document.encode())


def load(folder: str | os.PathLike[str]) -> Any:
    """Read a model written by `save`; its scores equal the saved model's bit for bit.

    Raises
    ------
    ValueError
        Naming the file, if it is missing, damaged, of a newer format, or of a class this package does not know.
    """
    folder = Path(folder)
    body = _read_document(folder / DOCUMENT)
    path = folder / TENSORS
    tensors = _read(path)
    if hashlib.sha256(tensors).hexdigest() != body["tensors_sha256"]:
        raise ValueError(f"{path} is damaged: its checksum is not the one in {DOCUMENT}")
    try:
        arrays = unpack(tensors)
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from error
    try:
        arrays = {key: value.reshape(body["shapes"][key]) for key, value in arrays.items()}
        return class_named(body["class"]).from_state(body["meta"], arrays)
    except Exception as error:  # a document with a right checksum may still have been written by hand
        raise ValueError(f"{folder / DOCUMENT} does not describe a model: {type(error).__name__}: {error}") from error


def encode_labels(labels: np.ndarray) -> dict[str, Any]:
    """Class labels (numbers, booleans or strings) as plain JSON; `decode_labels` restores values and dtype."""
    return {"dtype": labels.dtype.str, "values": labels.tolist()}


def decode_labels(encoded: dict[str, Any]) -> np.ndarray:
    """Inverse of `encode_labels`."""
    return np.array(encoded["values"], dtype=np.dtype(encoded["dtype"]))


def with_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def _read_document(path: Path) -> dict[str, Any]:
    raw = _read(path)
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("format_version"), int):
        raise ValueError(f"{path} is damaged: it does not describe a model")
    # Before the checksum: a newer format may well compute it differently.
    if body["format_version"] > FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {body['format_version']}, this package reads up to {FORMAT_VERSION}: "
            "upgrade it to load this model"
        )
    if body.pop("checksum", None) != _checksum(body):
        raise ValueError(f"{path} is damaged: its checksum does not match its content")
    name, digest = body.get("class"), body.get("tensors_sha256")
    if not isinstance(name, str) or not isinstance(digest, str):
        raise ValueError(f"{path} is damaged: it does not describe a model")
    if name not in _known():
        raise ValueError(
            f"{path} holds a {name!r}: known models are {', '.join(_known())}; "
            "models.register makes a class of your own known"
        )
    return body


def _known() -> list[str]:
    return sorted({*_MODULES, *_REGISTERED})


def class_named(name: str) -> Any:
    """A class that a file may name; ValueError for any other."""
    if name not in _known():
        raise ValueError(f"unknown model {name!r}: known are {', '.join(_known())}")
    return _REGISTERED[name] if name in _REGISTERED else getattr(import_module(_MODULES[name]), name)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: not a saved model") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error


def _write_atomically(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes files private; a model in a shared folder is as readable as any other file.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a model's meta must be plain JSON, not {type(value).__name__}")
