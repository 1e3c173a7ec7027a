"""Nested results (dataclasses, dicts, arrays, numbers) as JSON values beside named arrays, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

_ARRAY, _CLASS = "$array", "$class"


def pack(tree: Any, arrays: dict[str, np.ndarray], path: str = "") -> Any:
    """The JSON form of ``tree``; its arrays are added to ``arrays`` under the path where they stood."""
    if isinstance(tree, np.ndarray) and tree.dtype.kind not in "OUS":
        arrays[path] = tree
        return {_ARRAY: path}
    if isinstance(tree, np.ndarray):
        return tree.tolist()
    if isinstance(tree, np.generic):
        return tree.item()
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = {f.name: getattr(tree, f.name) for f in dataclasses.fields(tree) if f.init}
        return {_CLASS: type(tree).__name__} | pack(fields, arrays, path)
    if isinstance(tree, dict):
        return {str(key): pack(value, arrays, f"{path}/{key}") for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [pack(value, arrays, f"{path}/{index}") for index, value in enumerate(tree)]
    return tree


def unpack(tree: Any, arrays: dict[str, np.ndarray], classes: dict[str, type]) -> Any:
    """The inverse of :func:`pack`; only the given classes are built."""
    if isinstance(tree, list):
        return [unpack(value, arrays, classes) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if _ARRAY in tree:
        return arrays[tree[_ARRAY]]
    content = {key: unpack(value, arrays, classes) for key, value in tree.items() if key != _CLASS}
    return classes[tree[_CLASS]](**content) if _CLASS in tree else content
