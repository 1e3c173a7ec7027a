"""Load a dataset by its settings, or only its fingerprint."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.data import manifest
from pipeline.data.dataset import Dataset, build_dataset
from pipeline.data.progress import Progress
from pipeline.data.settings import Settings, resolve
from pipeline.data.splits import stratified_subsample
from pipeline.errors import UserError
from pipeline.paths import default_data_dir

Loader = Callable[[Settings, Path, Progress | None], Dataset]


def load_dataset(
    settings: str | Settings | Any, data_dir: Path | str | None = None, progress: Progress | None = None
) -> Dataset:
    """Load a dataset, fetching it first when it is absent.

    Parameters
    ----------
    settings : str, mapping, OmegaConf node or dataclass
        Name of a YAML in ``conf/dataset``, or the resolved config group.
    data_dir : path, optional
        Folder that keeps data; by default `pipeline.paths.default_data_dir`.
    progress : callable (event, step, total), optional
        Told about fetching and generating.

    Raises
    ------
    UserError
        One line naming the setting to change.
    """
    values, folder = resolve(settings), _folder(data_dir)
    dataset = _loader(values)(values, folder, progress)
    dataset = _subsample(dataset, values)
    manifest.remember(dataset, values, folder)
    return dataset


def fingerprint(settings: str | Settings | Any, data_dir: Path | str | None = None) -> str:
    """Fingerprint of a dataset: at once if it was loaded before and its files are untouched, else by loading it."""
    known = summary(settings, data_dir)
    return known["fingerprint"] if known else load_dataset(settings, data_dir).fingerprint


def summary(settings: str | Settings | Any, data_dir: Path | str | None = None) -> dict[str, Any] | None:
    """Sizes, fingerprint, source and notes of a dataset that was loaded before and is untouched, else None."""
    return manifest.recall(resolve(settings), _folder(data_dir))


def _folder(data_dir: Path | str | None) -> Path:
    return Path(data_dir).expanduser().absolute() if data_dir is not None else default_data_dir().absolute()


def loader_module(settings: Settings) -> tuple[Any, str]:
    """Module and function name of ``dataset.loader``."""
    module_name, _, function = str(settings.get("loader")).rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise UserError(f"dataset.loader: cannot import {settings.get('loader')} ({error})") from error
    if not callable(getattr(module, function, None)):
        raise UserError(f"dataset.loader: {module_name} has no function {function}")
    return module, function


def _loader(settings: Settings) -> Loader:
    module, function = loader_module(settings)
    return getattr(module, function)


def _subsample(dataset: Dataset, settings: Settings) -> Dataset:
    parts = {}
    for key, y in (("max_train", dataset.y_train), ("max_test", dataset.y_test)):
        size = settings.get(key)
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 2):
            raise UserError(f"dataset.{key}: {size!r} is no number of rows; use 2 or more, or null for all")
        if size is not None and size < len(y):
            parts[key] = stratified_subsample(y, size, int(settings.get("split_seed") or 0))
    if not parts:
        return dataset
    train, test = parts.get("max_train", slice(None)), parts.get("max_test", slice(None))
    whole = "max_train" not in parts
    return build_dataset(
        name=dataset.name,
        # Rows that stay on disk stay there.
        X_train=dataset.X_train if whole else dataset.X_train[train],
        y_train=dataset.y_train[train],
        X_test=dataset.X_test[test],
        y_test=dataset.y_test[test],
        image_shape=dataset.image_shape,
        class_names=dataset.class_names,
        train_ids=dataset.train_ids[train],
        test_ids=dataset.test_ids[test],
        source=dataset.source,
        notes=(*dataset.notes, "subsample"),
        files=dataset.files,
        X_train_sha256=dataset.X_train_sha256 if whole else None,
    )
