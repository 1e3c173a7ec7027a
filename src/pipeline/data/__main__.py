"""``python -m pipeline.data``: list the datasets; with ``dataset=NAME``: fetch and verify them."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.api import load_dataset, loader_module, summary
from pipeline.data.progress import progress_bars
from pipeline.data.settings import dataset_names, did_you_mean, read_settings
from pipeline.data.status import Status
from pipeline.errors import UserError
from pipeline.paths import default_data_dir

_EPILOG = """examples:
  python -m pipeline.data                                  list all datasets
  python -m pipeline.data dataset=mnist_1v7                fetch (if absent) and verify one
  python -m pipeline.data dataset=mnist_1v7,mnist_8v9      several; dataset=all takes all that need no file of yours
  python -m pipeline.data dataset=mnist_1v7 dataset.path=FOLDER
  python -m pipeline.data dataset=npz dataset.path=my.npz dataset.classes=[cat,dog] dataset.scale=255

environment:
  ADVSVM_DATA      folder that keeps the data
  ADVSVM_OFFLINE   1: never use the network
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.data",
        description="List the datasets, or fetch and verify them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="dataset=NAME and dataset.KEY=VALUE")
    parser.add_argument("--data-dir", type=Path, help="folder that keeps the data (default: ADVSVM_DATA or the cache)")
    options = parser.parse_args(arguments)
    data_dir = (options.data_dir or default_data_dir()).expanduser().absolute()
    try:
        names, changes = _parse(options.settings)
        if not names:
            return _list(data_dir)
        for name in names:
            _verify(read_settings(name, changes), data_dir)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _parse(settings: list[str]) -> tuple[list[str], list[str]]:
    names: list[str] = []
    changes = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise UserError(f"{setting}: write settings as KEY=VALUE, such as dataset=mnist_1v7")
        if key == "dataset":
            names = [n for n in dataset_names() if n not in ("npz", "csv")] if value == "all" else value.split(",")
        elif key.startswith("dataset."):
            changes.append(f"{key.removeprefix('dataset.')}={value}")
        else:
            raise UserError(
                f"{key}: no such setting{did_you_mean(key, ['dataset', 'dataset.path', 'dataset.classes'])}"
            )
    if changes and not names:
        raise UserError(f"dataset: missing; name the dataset that dataset.{changes[0]} belongs to, dataset=NAME")
    return names, changes


def _status(settings: dict[str, Any], data_dir: Path) -> Status:
    known = summary(settings, data_dir)
    module, _ = loader_module(settings)
    if hasattr(module, "status"):
        status = module.status(settings, data_dir)
        sizes = (known["n_train"], known["n_test"]) if known else status.sizes
        return Status(sizes, status.origin, status.present, status.where)
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
    with progress_bars() as progress:
        dataset = load_dataset(settings, data_dir, progress)
    positive = [int(np.count_nonzero(y == 1)) for y in (dataset.y_train, dataset.y_test)]
    lines = {
        "classes": f"+1 {dataset.class_names[1]}, -1 {dataset.class_names[0]}",
        "train": f"{len(dataset.y_train):,} rows, {positive[0]:,} positive",
        "test": f"{len(dataset.y_test):,} rows, {positive[1]:,} positive",
        "row": f"{dataset.n_features} values, shape {' × '.join(map(str, dataset.image_shape))}",
        "source": dataset.source,
        "notes": "; ".join(dataset.notes) or "none",
        "fingerprint": dataset.fingerprint,
        "files": "\n".join(str(path) for path in dataset.files) or "none",
    }
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"[bold]{dataset.name}[/bold]  verified in {time.perf_counter() - start:.1f} s")
    for key, text in lines.items():
        console.print(f"  {key:<12} " + text.replace("\n", "\n" + " " * 15), markup=False)


if __name__ == "__main__":
    sys.exit(main())
