"""One cache entry: JSON values and arrays in a folder that is written whole or not at all, and verified when read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

_ARRAY, _CLASS = "$array", "$class"

FORMAT = 2  # 2: arrays as models.compact stores them
_HEADER, _ARRAYS = "entry.json", "arrays.safetensors"


class DamagedEntry(Exception):
    """The files of an entry are not what was written."""


@dataclass(frozen=True)
class Entry:
    """What a stage leaves behind: JSON-able ``values`` and named ``arrays``. Nothing in it can execute."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


class Stored:
    """A dataclass that is kept as it stands: of plain values, arrays, and dataclasses that it names as ``parts``."""

    parts: ClassVar[tuple[type, ...]] = ()

    def to_entry(self) -> Entry:
        """As a cache entry."""
        arrays: dict[str, np.ndarray] = {}
        return Entry(pack(self, arrays), arrays)

    @classmethod
    def from_entry(cls, entry: Entry) -> Self:
        """From a cache entry."""
        return unpack(entry.values, entry.arrays, {kind.__name__: kind for kind in (cls, *cls.parts)})


def write(entry: Entry, folder: Path) -> None:
    """Write ``entry`` to a temporary folder beside ``folder`` and rename it into place."""
    from models import compact

    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        (temporary / _ARRAYS).write_bytes(compact.pack(entry.arrays))
        values = json.dumps(entry.values, sort_keys=True, default=_plain)
        header = {
            "format": FORMAT,
            "arrays_sha256": file_digest(temporary / _ARRAYS),
            "values_sha256": hashlib.sha256(values.encode()).hexdigest(),
            "values": values,
        }
        (temporary / _HEADER).write_text(json.dumps(header))
        if folder.exists():  # a damaged entry being rebuilt: moved away first, a reader sees one or the other
            damaged = temporary.with_name(f"{temporary.name}-damaged")
            folder.rename(damaged)
            temporary.rename(folder)
            shutil.rmtree(damaged, ignore_errors=True)
        else:
            temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def read(folder: Path) -> Entry:
    """Read and verify an entry; raises :class:`DamagedEntry` when a byte is not as written."""
    from safetensors import SafetensorError

    from models import compact

    try:
        header = json.loads((folder / _HEADER).read_text())
        values = header["values"]
        intact = (
            header["format"] == FORMAT
            and hashlib.sha256(values.encode()).hexdigest() == header["values_sha256"]
            and file_digest(folder / _ARRAYS) == header["arrays_sha256"]
        )
        if not intact:
            raise DamagedEntry(f"{folder.name}: the checksum does not match")
        return Entry(json.loads(values), compact.unpack((folder / _ARRAYS).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise DamagedEntry(f"{folder.name}: {error}") from error


def file_digest(path: Path) -> str:
    """sha256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cache values must be plain JSON, not {type(value).__name__}")


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
