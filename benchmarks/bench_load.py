"""How the report and the reading of curves bear a thousand runs: twenty invented ones, copied with other seeds.

Rows of MLflow's tables are copied in SQLite, files by hard links: logging as many runs would take longer than all else.
    python benchmarks/bench_load.py [runs]
"""

import os
import shutil
import sqlite3
import sys
import tempfile
import uuid
from pathlib import Path

from timing import clock, report, seconds_of

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "report")]
from tracked_store import add_run, open_empty  # noqa: E402

from pipeline.report.tracked import Reader  # noqa: E402

MODELS, ATTACKS = ("natural", "adv_linear_svm", "adv_svm_d", "adv_svm_c"), ("none", "fgsm", "pgd", "cw", "zoo")
CURVES = ("test_error", "adversarial_test_error")
# What belongs to a run, by the column that names it.
TABLES = {"params": "run_uuid", "tags": "run_uuid", "metrics": "run_uuid", "latest_metrics": "run_uuid"}


def columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f"pragma table_info({table})")]


def copied(database: sqlite3.Connection, table: str, key: str, old: str, new: dict[str, object]) -> None:
    """Rows of `old` once more, with some columns set."""
    names = columns(database, table)
    chosen = ", ".join("?" if name in new else f'"{name}"' for name in names)
    listed = ", ".join(f'"{name}"' for name in names)
    values = [new[name] for name in names if name in new]
    database.execute(f'insert into {table} ({listed}) select {chosen} from {table} where "{key}" = ?', [*values, old])


def multiply(folder: Path, times: int) -> None:
    """Every run so many times, each with a seed of its own."""
    database = sqlite3.connect(folder / "mlflow.db")
    with database:
        originals = database.execute("select run_uuid, artifact_uri from runs").fetchall()
        for seed in range(1, times):
            for run, place in originals:
                new = uuid.uuid4().hex
                there = Path(place.removeprefix("file://"))
                shutil.copytree(there, there.parents[1] / new / there.name, copy_function=os.link)
                copied(database, "runs", "run_uuid", run, {"run_uuid": new, "artifact_uri": place.replace(run, new)})
                for table, key in TABLES.items():
                    copied(database, table, key, run, {key: new})
                inputs = {"destination_id": new, "input_uuid": uuid.uuid4().hex}
                copied(database, "inputs", "destination_id", run, inputs)
                for table in ("params", "tags"):
                    database.execute(
                        f"update {table} set value = ? where run_uuid = ? and key = 'seed'", [str(seed), new]
                    )
    database.close()


def main(n_runs: int = 1000) -> None:
    with tempfile.TemporaryDirectory() as home:
        store = open_empty(Path(home) / "mlruns")
        for model in MODELS:
            for attack in ATTACKS:
                add_run(store, "dataset=mnist_1v7", f"model={model}", f"attack={attack}")
        multiply(store.folder, n_runs // (len(MODELS) * len(ATTACKS)))
        reader = Reader(store)
        runs = reader.runs()
        start = clock()
        for name in CURVES:
            for run in runs:
                reader.curve(run, name)
        bulk = clock() - start
        few = runs[:: max(1, len(runs) // 50)]
        start = clock()
        for run in few:
            store.client.get_metric_history(run.id, CURVES[0])
        one_by_one = (clock() - start) / len(few) * len(runs) * len(CURVES)
        command = ["-m", "pipeline.report", f"tracking.folder={store.folder}", f"output={home}/reports"]
        seconds = seconds_of([sys.executable, *command])
    report(
        "load_curves",
        section="Many runs",
        what=f"reading {len(CURVES)} curves of {len(runs):,} runs from a local store",
        against="one request for every curve",
        ratio=bulk / one_by_one,
        shown=f"{bulk:.2f} s instead of {one_by_one:.1f} s",
    )
    report(
        "load_report",
        section="Many runs",
        what=f"`python -m pipeline.report` of {len(runs):,} runs, all tables and figures",
        against="",
        shown=f"{seconds:.0f} s",
        seconds=seconds,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
