"""kill -9 at any moment, and the same command again: the same table, no run twice, no entry half-read."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.cache import StageStore
from pipeline.cache import entry as entries
from runs import experiments, table

SWEEP = (
    "-m", "model=adv_svm_d,natural", "model.expansion=support_vectors", "attack=fgsm,pgd",
    "tune=none", "evaluation.max_attacked=8", "compute.threads=1",
)  # fmt: skip
JOBS, KILLS, PER_STORE = 4, 20, 5

pytestmark = [pytest.mark.survival, pytest.mark.timeout(1500)]


def _metrics(folder: Path) -> dict[tuple[str, str], float]:
    """Every metric of every finished experiment, by signature, without those that are times."""
    with sqlite3.connect(folder / "mlruns" / "mlflow.db") as connection:
        rows = connection.execute(
            "select t.value, m.key, m.value from latest_metrics m join runs r on r.run_uuid = m.run_uuid "
            "join tags t on t.run_uuid = r.run_uuid and t.key = 'run_signature' "
            "where r.status = 'FINISHED' and m.key not like '%_seconds'"
        )
        return {(signature, key): value for signature, key, value in rows}


def _assert_sound(folder: Path) -> None:
    """What a kill may leave behind: whole entries, and at most one finished run per signature."""
    for stored in StageStore(folder / "mlruns" / "stages").entries():
        entries.read(stored.folder)
    finished = Counter(r["tags"]["run_signature"] for r in experiments(folder) if r["status"] == "FINISHED")
    assert not finished or max(finished.values()) == 1


def test_twenty_kills_leave_no_trace_in_the_table(tmp_path: Path, launch: Callable[..., Any]) -> None:
    rng = random.Random(7)
    untouched = tmp_path / "untouched"
    started = time.monotonic()
    reference = launch(untouched, *SWEEP)
    reference.join(300)
    assert reference.exitcode == 0, (untouched / "log").read_text()
    duration = time.monotonic() - started
    wanted, numbers = table((untouched / "log").read_text()), _metrics(untouched)
    kills = store = 0
    while kills < KILLS:
        folder = tmp_path / f"store{store}"
        store += 1
        for _ in range(min(PER_STORE, KILLS - kills)):
            victim = launch(folder, *SWEEP)
            victim.join(rng.uniform(0.02, 1.6 / PER_STORE) * duration)
            if not victim.is_alive():
                break
            victim.kill()
            victim.join()
            kills += 1
            _assert_sound(folder)
        last = launch(folder, *SWEEP)
        last.join(300)
        output = (folder / "log").read_text()
        assert last.exitcode == 0, output
        assert "damaged" not in output
        assert table(output) == wanted
        assert _metrics(folder) == numbers
        runs = experiments(folder)
        assert sum(run["status"] == "FINISHED" for run in runs) == JOBS
        assert {run["status"] for run in runs} <= {"FINISHED", "KILLED"}


def test_eight_processes_with_the_same_job_compute_it_once(tmp_path: Path, launch: Callable[..., Any]) -> None:
    """From an empty folder: they also race for the first opening of the store."""
    processes = [
        launch(tmp_path, "tune=none", "evaluation.max_attacked=8", "compute.threads=1", log=f"log{n}") for n in range(8)
    ]
    for process in processes:
        process.join(240)
    logs = [(tmp_path / f"log{n}").read_text() for n in range(8)]
    assert [process.exitcode for process in processes] == [0] * 8, logs
    assert sum("reused run" in log for log in logs) == 7
    (run,) = experiments(tmp_path)
    assert run["status"] == "FINISHED"


def test_eight_jobs_that_share_a_model_train_it_once(tmp_path: Path, launch: Callable[..., Any]) -> None:
    shared = ("tune=none", "evaluation.max_attacked=4", "compute.threads=1", "attack=fgsm")
    processes = [launch(tmp_path, *shared, f"attack.epsilon=0.0{n + 1}", log=f"log{n}") for n in range(8)]
    for process in processes:
        process.join(240)
    logs = [(tmp_path / f"log{n}").read_text() for n in range(8)]
    assert [process.exitcode for process in processes] == [0] * 8, logs
    trained = [line for log in logs for line in log.splitlines() if line.startswith("  train ")]
    assert sum("reused" in line for line in trained) == 7
    assert len(trained) == len(experiments(tmp_path)) == 8
    assert len([e for e in StageStore(tmp_path / "mlruns" / "stages").entries() if e.stage == "train"]) == 1
