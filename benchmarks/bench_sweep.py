"""How a sweep bears many small runs: seconds a run at its beginning and at its end, and the summary of a thousand.

A metric of ours notes the clock in every run, so that a run's seconds are those from one note to the next: all that is
computed, drawn and logged. The summary's runs are those of the sweep, again and again under other seeds.
    python benchmarks/bench_sweep.py [runs]
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from timing import clock, report, seconds_of

HERE = Path(__file__).parent
SETTINGS = ("model=svc", "attack=fgsm", "tune=none", "dataset.max_train=40")
NOTING = ("evaluation.metrics=[bench_sweep.noted]", "trusted=[bench_sweep]")
EDGE, SUMMARISED = 50, 1000


def noted(run: object) -> float:
    """A metric: the clock of the sweep's process."""
    return clock()


def seconds_of_sweep(home: Path, runs: int) -> float:
    """A sweep in one process, from its start to its end."""
    command = ["-m", "pipeline.run", "-m", *SETTINGS, *NOTING, f"seed=range({runs})", "hydra.sweep.dir=jobs"]
    paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return seconds_of([sys.executable, *command], cwd=home, env=os.environ | {"PYTHONPATH": paths})


def seconds_a_run(home: Path, runs: int) -> np.ndarray:
    """Of each run of a sweep in one process, but for the first, which imports."""
    seconds_of_sweep(home, runs)
    return np.diff([result(home, number)["metrics"]["noted"] for number in range(runs)])


def result(home: Path, number: int) -> dict:
    return json.loads((home / "jobs" / str(number) / "result.json").read_text())


def seconds_of_summary(home: Path, runs: int) -> float:
    """What the end of a sweep takes, of so many runs."""
    sys.path[:0] = [str(HERE.parent / "tests" / "report")]
    from tracked_store import compose_config

    from pipeline import summary
    from pipeline.sweep import Sweep

    made = len(list((home / "jobs").glob("*/result.json")))
    for seed in range(runs):
        again = result(home, seed % made)
        again["labels"]["seed"], again["settings"]["seed"] = seed, str(seed)
        (home / "many" / str(seed)).mkdir(parents=True)
        (home / "many" / str(seed) / "result.json").write_text(json.dumps(again))
    cfg = compose_config(*SETTINGS, f"tracking.folder={home / 'mlruns'}")
    start = clock()
    code = summary.close(Sweep("many", home / "many", [[f"seed={seed}"] for seed in range(runs)], cfg), ["-m"])
    seconds = clock() - start
    if code:
        sys.exit("the summary counts failures")
    return seconds


def main(runs: int = 300) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        each = seconds_a_run(home, runs)
        reused = seconds_of_sweep(home, runs)
        first, last = float(each[:EDGE].mean()), float(each[-EDGE:].mean())
        report(
            "sweep_runs",
            section="Many runs",
            what=f"one of {runs} small runs in one sweep (SVC, 40 digits, FGSM, checks, figures), the last {EDGE}",
            against=f"the first {EDGE}",
            ratio=last / first,
            shown=f"{last:.2f} s instead of {first:.2f} s a run",
        )
        seconds = seconds_of_summary(home, SUMMARISED)
    report(
        "sweep_reused",
        section="Many runs",
        what=f"the same {runs} runs asked for once more",
        against="computing them",
        ratio=reused / float(each.sum()),
        shown=f"{reused:.1f} s instead of {each.sum():.0f} s",
        seconds=reused,
    )
    report(
        "sweep_summary",
        section="Many runs",
        what=f"the summary of a sweep of {SUMMARISED:,} runs: table, figures, its own run",
        against="",
        shown=f"{seconds:.1f} s",
        seconds=seconds,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
