"""What a sweep of finished runs costs, counted: seconds would be the machine's."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any
from unittest import mock

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins import basic_launcher

from pipeline import progress, sweep
from pipeline.tracking import store

QUICK = ("model=svc", "attack=none", "tune=none", "checks=off", "figures=off", "dataset.max_train=40")


def _costs(command, arguments: tuple[str, ...]) -> tuple[Counter[str], Counter[str]]:
    """Compositions, jobs started, looks at the database, stores opened: before the first line, and in all."""
    counted: Counter[str] = Counter()
    before: Counter[str] = Counter()

    def counting(place: Any, name: str) -> Any:
        function = getattr(place, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            return function(*args, **kwargs)

        return mock.patch.object(place, name, call)

    def first_line() -> Any:
        before.update(counted)
        return progress.console()

    with (
        counting(sqlite3, "connect"),
        counting(ConfigLoaderImpl, "_load_configuration_impl"),
        counting(basic_launcher, "run_job"),
        counting(store, "open_store"),
        mock.patch.object(sweep, "console", first_line),
    ):
        done = command(*arguments)
    number = arguments[-1].removeprefix("seed=range(").removesuffix(")")
    assert f"{number} jobs: {number} reused" in done.stdout, done.stdout + done.stderr
    return before, counted


def test_a_finished_run_costs_one_look_and_the_first_line_waits_for_none(run_cli, command):
    sweeps = [("-m", *QUICK, f"seed=range({number})") for number in (2, 5)]
    for arguments in sweeps:
        assert run_cli(*arguments).returncode == 0
    (few_before, few), (many_before, many) = (_costs(command, arguments) for arguments in sweeps)
    assert few_before == many_before
    assert few_before["connect"] == 0
    assert many["_load_configuration_impl"] == few["_load_configuration_impl"]
    assert many["connect"] - few["connect"] == 5 - 2
    assert many["run_job"] == many["open_store"] == 0


def test_lock_files_do_not_grow_with_the_runs(run_cli, tmp_path):
    """Once a run has ended nobody waits for it."""
    assert run_cli("-m", *QUICK, "seed=range(3)").returncode == 0
    left = {path.relative_to(tmp_path / "mlruns").as_posix() for path in (tmp_path / "mlruns").rglob("*.lock")}
    assert left == {".store.lock", "stages/.identity.lock"}
