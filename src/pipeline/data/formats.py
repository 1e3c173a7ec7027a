"""A user's own file: npz, CSV, Parquet, svmlight. Each reader gives `UserRows` or one line that says what is wrong."""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import itertools
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from pipeline.data.dataset import Dataset
from pipeline.data.fetching import Progress, open_plain
from pipeline.data.rows import plain_name
from pipeline.data.settings import Settings, first_line, known_names, user_path
from pipeline.data.tables import UserRows, from_tables, max_bytes
from pipeline.errors import UserError

_SPLIT = ("X_train", "y_train", "X_test", "y_test")
_ARRAYS = (*_SPLIT, "X", "y")
_LINES = 4096
_LONGEST_LINE = 1 << 26
# What the readers raise on a damaged file; an OSError without a number is a damaged packing.
_DAMAGE = (
    ValueError, EOFError, KeyError, OSError, NotImplementedError,
    csv.Error, lzma.LZMAError, zlib.error, zipfile.BadZipFile,
)  # fmt: skip

Reader = Callable[[Path, Settings, str], UserRows]


class TooLarge(Exception):
    """The file holds more than ``dataset.max_gb``."""


def load_npz(settings: Settings, data_dir: Path, progress: Progress) -> Dataset:
    """X, y or X_train, y_train, X_test, y_test of an npz; images (n, h, w) keep their shape for the figures."""
    path = _path(settings, "FILE.npz with X, y or X_train, y_train, X_test, y_test")
    with readable(path, "path", "an npz of plain arrays", "; write it with np.savez"):
        arrays = _read_npz(path, settings)
    if all(key in arrays for key in _SPLIT):
        train, test = UserRows(arrays["X_train"], arrays["y_train"]), UserRows(arrays["X_test"], arrays["y_test"])
        return from_tables(settings, train, test, (path,))
    if "X" in arrays and "y" in arrays:
        return from_tables(settings, UserRows(arrays["X"], arrays["y"]), None, (path,))
    held = ", ".join(plain_name(name) for name in arrays) or "nothing"
    raise UserError(f"dataset.path: {path} holds {held}; it must hold X, y or X_train, y_train, X_test, y_test")


def load_csv(settings: Settings, data_dir: Path, progress: Progress) -> Dataset:
    """A CSV with a header line: one column with the label, all others numbers."""
    return load_file(settings, _read_csv, "FILE.csv with a header line")


def load_parquet(settings: Settings, data_dir: Path, progress: Progress) -> Dataset:
    """A Parquet file: one column with the label, all others numbers."""
    return load_file(settings, _read_parquet, "FILE.parquet")


def load_svmlight(settings: Settings, data_dir: Path, progress: Progress) -> Dataset:
    """A svmlight (LIBSVM) text, plain, .gz, .bz2 or .xz; its rows stay sparse until a part of them is chosen."""
    return load_file(settings, _read_svmlight, "FILE in svmlight (LIBSVM) format")


def _path(settings: Settings, example: str) -> Path:
    path = user_path(settings)
    if path is None or not path.is_file():
        raise UserError(f"dataset.path: name your file, dataset.path={example}")
    return path


def load_file(settings: Settings, read: Reader, example: str) -> Dataset:
    """Rows of ``dataset.path``, tested on ``dataset.test_path`` or on a stratified part of the rows."""
    path, test_path = _path(settings, example), user_path(settings, "test_path")
    train = read(path, settings, "path")
    if test_path is None:
        return from_tables(settings, train, None, (path,))
    if not test_path.is_file():
        raise UserError(f"dataset.test_path: {test_path} is not a file")
    test = read(test_path, settings, "test_path")
    if train.names != test.names:
        raise UserError(f"dataset.test_path: the columns of {test_path} are not those of {path}")
    if train.X.shape[1] != test.X.shape[1]:  # svmlight: the last columns of one file may all be zero
        width = max(train.X.shape[1], test.X.shape[1])
        for table in (train, test):
            table.X.resize(table.X.shape[0], width)
    return from_tables(settings, train, test, (path, test_path))


@contextlib.contextmanager
def readable(path: Path, key: str, what: str, hint: str = "") -> Iterator[None]:
    """Turn what a reader raises into one line that names the setting."""
    try:
        yield
    except (TooLarge, MemoryError) as error:
        size = f" ({error})" if str(error) else ""
        raise UserError(f"dataset.max_gb: {path} holds more than the limit{size}; raise it") from error
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UserError(f"dataset.{key}: cannot read {path} ({error.strerror or error})") from error
        reason = plain_name(first_line(error))
        raise UserError(f"dataset.{key}: {path} is not {what} or is damaged ({reason}){hint}") from error


def _read_npz(path: Path, settings: Settings) -> dict[str, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise ValueError("it has no list of arrays; a single .npy is not enough")
    # The headers say how large the arrays become, before anything is unpacked.
    with zipfile.ZipFile(path) as archive:
        wanted = [info for info in archive.infolist() if info.filename.removesuffix(".npy") in _ARRAYS]
        if not wanted:
            return dict.fromkeys((info.filename.removesuffix(".npy") for info in archive.infolist()), np.empty(0))
        sizes = [max(info.file_size, _declared_bytes(archive, info)) for info in wanted]
        if sum(sizes) > max_bytes(settings):
            raise TooLarge(f"{sum(sizes) / 1e9:.1f} GB when unpacked")
    with np.load(path, allow_pickle=False) as held:
        return {key: held[key] for key in held.files if key in _ARRAYS}


def _declared_bytes(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Size of the array that the member's own header announces: numpy makes room for it before it reads."""
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    return int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize


def bounded_lines(stream: IO[bytes], limit: float) -> Iterator[bytes]:
    """Lines of a stream, never more than `limit` bytes of it: a small packed file can unpack without end."""
    done = 0
    while line := stream.readline(_LONGEST_LINE):
        done += len(line)
        if done > limit:
            raise TooLarge(f"more than {limit / 1e9:g} GB of text")
        yield line


def _read_csv(path: Path, settings: Settings, key: str) -> UserRows:
    import pandas as pd

    separator = str(settings.get("separator") or ",")
    with readable(path, key, "a readable CSV"):
        if len(separator) != 1:
            raise UserError(f"dataset.separator: {separator!r} must be one character")
        with open_plain(path) as stream:
            text = (line.decode("utf-8-sig") for line in bounded_lines(stream, max_bytes(settings)))
            header = _check_shape(csv.reader(text, delimiter=separator, strict=True), path, key)
        with open_plain(path) as stream:
            frame = pd.read_csv(stream, sep=separator, encoding="utf-8-sig", index_col=False, skip_blank_lines=True)
        frame.columns = pd.Index(header)
    return from_frame(frame, path, settings, key)


def _check_shape(rows: Any, path: Path, key: str) -> list[str]:
    """The header, after every row was found to have as many fields; pandas would move or fill the others' values."""
    header = next(rows, None)
    if header is None:
        raise ValueError("it is empty")
    for number, name in enumerate(header, 1):
        if not name.strip():
            raise UserError(
                f"dataset.{key}: column {number} of {path} has no name; "
                "if it is a row number, write the file without it (index=False), else name it"
            )
    for row in rows:
        if row and len(row) != len(header):
            raise UserError(
                f"dataset.{key}: line {rows.line_num} of {path} has {len(row)} fields, the header {len(header)}"
            )
    return header


def _read_parquet(path: Path, settings: Settings, key: str) -> UserRows:
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    with readable(path, key, "a Parquet file"):
        try:
            file = pq.ParquetFile(path)
            metadata = file.metadata
            groups = sum(metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups))
            # Long runs of one value are tiny in the file, and eight bytes each in memory.
            needed = max(groups, 8 * metadata.num_rows * metadata.num_columns)
            if needed > max_bytes(settings):
                raise TooLarge(f"{needed / 1e9:.1f} GB when unpacked")
            frame = file.read().to_pandas()
        except ArrowException as error:
            raise ValueError(first_line(error)) from error
    if list(frame.index.names) != [None]:
        frame = frame.reset_index()
    return from_frame(frame, path, settings, key)


def from_frame(frame: Any, path: Path, settings: Settings, key: str) -> UserRows:
    """The label's column and the numbers of all others."""
    import pandas as pd

    frame.columns = frame.columns.astype(str)
    columns = list(frame.columns)
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"dataset.{key}: two columns of {path} are called {plain_name(twice)!r}; rename one")
    label = str(settings.get("label"))
    if label not in columns:
        raise UserError(f"dataset.label: {path} has no column {label!r}{_label_hint(label, frame, path)}")
    values = frame.drop(columns=label)
    for name in values.columns:
        if values[name].dtype.kind not in "buif":
            texts = (values[name].map(type).eq(str) & pd.to_numeric(values[name], errors="coerce").isna()).to_numpy()
            row = int(texts.argmax())
            example = f", such as {plain_name(values[name].iloc[row])[:20]!r} in row {row + 1}" if texts.any() else ""
            raise UserError(
                f"dataset.{key}: column {plain_name(name)!r} of {path} is not numeric{example}; "
                "remove it or encode it as numbers"
            )
    if frame[label].isna().any():
        raise UserError(f"dataset.label: column {label!r} of {path} has gaps; fill or remove those rows")
    labels = frame[label].to_numpy()
    # Texts come as objects; numpy's own text type compares and sorts.
    labels = labels if labels.dtype.kind in "buif" else np.array([plain_name(value) for value in labels])
    return UserRows(values.to_numpy(), labels, tuple(map(plain_name, values.columns)))


def _label_hint(label: str, frame: Any, path: Path) -> str:
    """Which column may hold the labels: one of a similar name, the only one of texts, else some of their names."""
    if len(frame.columns) == 1 and (found := next((mark for mark in ";\t|" if mark in frame.columns[0]), "")):
        shown = plain_name(frame.columns[0])[:40]
        raise UserError(
            f"dataset.separator: the header of {path} is one column, {shown!r}; set dataset.separator={found!r}"
        )
    texts = [name for name in frame.columns if frame[name].dtype.kind not in "buif"]
    if len(texts) == 1 and not difflib.get_close_matches(label, frame.columns):
        return f"; its only column of texts is {plain_name(texts[0])!r}: dataset.label={plain_name(texts[0])}"
    names = [plain_name(name) for name in frame.columns]
    # Labels are often the last column.
    return known_names(label, names if len(names) <= 12 else [*names[:8], "…", *names[-3:]])


def _read_svmlight(path: Path, settings: Settings, key: str) -> UserRows:
    from scipy import sparse

    parts, labels, start = [], [], 1
    with readable(path, key, "a svmlight file"), open_plain(path) as stream:
        lines = bounded_lines(stream, max_bytes(settings))
        while window := list(itertools.islice(lines, _LINES)):
            X, y = parse_svmlight(window, start, zero_based=bool(settings.get("zero_based")))
            parts.append(X)
            labels.append(y)
            start += len(window)
        if not parts:
            raise ValueError("it is empty")
        width = max(part.shape[1] for part in parts)
        for part in parts:
            part.resize(part.shape[0], width)
        return UserRows(sparse.csr_matrix(sparse.vstack(parts, format="csr")), np.concatenate(labels))


def parse_svmlight(
    lines: Sequence[bytes], first: int, n_features: int | None = None, zero_based: bool = False
) -> tuple[Any, np.ndarray]:
    """Rows, a sparse (n, d) matrix, and labels (n,) of LIBSVM lines; `first` is the number of the first line.

    A ValueError names the first line that cannot be read.
    """
    from sklearn.datasets import load_svmlight_file

    def parse(part: Sequence[bytes]) -> tuple[Any, np.ndarray]:
        return load_svmlight_file(io.BytesIO(b"".join(part)), n_features=n_features, zero_based=zero_based)

    try:
        return parse(lines)
    except (ValueError, OverflowError):
        for number, line in enumerate(lines, first):
            try:
                parse([line])
            except (ValueError, OverflowError) as error:
                reason = first_line(error)
                if "Invalid index 0" in reason:
                    reason = "column 0; if columns are counted from 0, set dataset.zero_based=true"
                raise ValueError(f"line {number}: {reason}") from error
        raise
