"""``python -m pipeline.data``: list the datasets; with ``dataset=NAME``: fetch and verify them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.command import Command, Setting
from pipeline.data.dataset import Status
from pipeline.data.loading import load_dataset, loader_module, summary
from pipeline.data.settings import dataset_names, read_settings
from pipeline.errors import UserError
from pipeline.paths import at_home, default_data_dir
from pipeline.progress import watch

_ENVIRONMENT = """environment:
  ADVSVM_DATA      folder that keeps the data
  ADVSVM_OFFLINE   1: never use the network
"""


def _run(settings: dict[str, Any]) -> int:
    data_dir = at_home(str(settings["data_dir"] or default_data_dir())).absolute()
    names, changes = settings["dataset"], [f"{key}={value}" for key, value in settings["dataset.*"].items()]
    if not names and changes:
        raise UserError(f"dataset: missing; name the dataset that dataset.{changes[0]} belongs to, dataset=NAME")
    if not names:
        return _list(data_dir)
    for name in names:
        _verify(read_settings(name, changes), data_dir)
    return 0


def _names(text: str) -> list[str]:
    if text != "all":
        return text.split(",")
    # A loader that cannot tell what it has before it reads is one for a user's file.
    return [name for name in dataset_names() if hasattr(loader_module(read_settings(name))[0], "status")]


def _status(settings: dict[str, Any], data_dir: Path) -> Status:
    known = summary(settings, data_dir)
    module, _ = loader_module(settings)
    if hasattr(module, "status"):
        status = module.status(settings, data_dir)
        return status._replace(sizes=(known["n_train"], known["n_test"])) if known else status
    if known:
        return Status((known["n_train"], known["n_test"]), known["source"], True, str(data_dir))
    return Status(None, "your file" if "path" in settings else "?", False, "")


def _list(data_dir: Path) -> int:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("dataset", no_wrap=True)
    for heading in ("train", "test"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("comes from", no_wrap=True)
    table.add_column("present", overflow="fold")
    for name in dataset_names():
        status = _status(read_settings(name), data_dir)
        sizes = [f"{n:,}" for n in status.sizes] if status.sizes else ["", ""]
        where = status.where.removeprefix(f"{data_dir}/")
        table.add_row(name, *sizes, status.origin, f"yes, {where}" if status.present else "no")
    Console().print(table)
    print(f"\nData folder: {data_dir}\nGet and verify one: python -m pipeline.data dataset=NAME")
    return 0


def _verify(settings: dict[str, Any], data_dir: Path) -> None:
    from rich.console import Console

    start = time.perf_counter()
    with watch("data") as progress:
        dataset = load_dataset(settings, data_dir, progress)
    labels = ("-1", "+1") if dataset.n_classes == 2 else tuple(map(str, range(dataset.n_classes)))
    named = [f"{label} {name}" for label, name in zip(labels, dataset.class_names, strict=True)]
    counts = [np.unique(y, return_counts=True)[1] for y in (dataset.y_train, dataset.y_test)]
    lines = {
        "classes": ", ".join(reversed(named) if dataset.n_classes == 2 else named),
        "train": f"{len(dataset.y_train):,} rows, {_of_classes(labels, counts[0])}",
        "test": f"{len(dataset.y_test):,} rows, {_of_classes(labels, counts[1])}",
        "row": f"{dataset.n_features} values, shape {' × '.join(map(str, dataset.image_shape))}",
        "features": ", ".join(dataset.feature_names[:12]) + (" …" if len(dataset.feature_names) > 12 else "")
        or "unnamed",
        "box": "per feature" if np.ndim(dataset.box[0]) else f"[{dataset.box[0]:g}, {dataset.box[1]:g}]",
        "source": dataset.source,
        "notes": "; ".join(dataset.notes) or "none",
        "fingerprint": dataset.fingerprint,
        "files": "\n".join(str(path) for path in dataset.files) or "none",
    }
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"[bold]{dataset.name}[/bold]  verified in {time.perf_counter() - start:.1f} s")
    for key, text in lines.items():
        console.print(f"  {key:<12} " + text.replace("\n", "\n" + " " * 15), markup=False)


def _of_classes(labels: Sequence[str], counts: np.ndarray) -> str:
    return ", ".join(f"{count:,} of {label}" for label, count in zip(labels, counts.tolist(), strict=True))


main = Command(
    name="data",
    about="List the datasets, or fetch and verify them.",
    settings={
        "dataset": Setting("which: one, several (a,b), or all that need no file of yours", read=_names),
        "dataset.*": Setting("settings of the dataset, as for pipeline.run"),
        "data_dir": Setting("folder that keeps the data (default: ADVSVM_DATA or the user's cache)", read=Path),
    },
    examples={
        "": "list all datasets",
        "dataset=mnist_1v7": "fetch (if absent) and verify one",
        "dataset=mnist_1v7,mnist_8v9": "several",
        "dataset=mnist_1v7 dataset.path=FOLDER": "from files of yours",
        "dataset=npz dataset.path=my.npz dataset.classes=[cat,dog] dataset.scale=255": "",
        "dataset=svmlight dataset.path=a9a": "a LIBSVM file; also csv, parquet",
        "dataset=openml dataset.id=credit-g": "by name or number; dataset.path=FILE.arff reads an ARFF file",
    },
    run=_run,
    notes=_ENVIRONMENT,
)

if __name__ == "__main__":
    sys.exit(main())
