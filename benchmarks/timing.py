"""What the benchmarks share: best-of-n timing, the machine's matrix-product rate, and one line of JSON."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch

# BENCH_CLOCK=cpu: processor time instead of wall time, which says something on a busy machine, too.
PROCESSOR = os.environ.get("BENCH_CLOCK") == "cpu"
clock = time.process_time if PROCESSOR else time.perf_counter


def best_time(work: Callable[[], object], repeats: int) -> float:
    """Shortest time of `repeats` runs, seconds: the least disturbed one."""
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def seconds_of(command: list[str], **where: Any) -> float:
    """What another process takes, of the same clock; what it says if it fails ends this one. `where`: cwd, env."""

    def now() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime if PROCESSOR else time.perf_counter()

    start = now()
    done = subprocess.run(command, capture_output=True, text=True, check=False, **where)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return now() - start


def gemm_rate(size: int = 3072, repeats: int = 5) -> float:
    """float32 GFLOP/s of one large square matrix product."""
    a, b = torch.rand(size, size), torch.rand(size, size)
    out = torch.empty(size, size)
    torch.mm(a, b, out=out)
    return 2 * size**3 / best_time(lambda: torch.mm(a, b, out=out), repeats) / 1e9


def peak_memory() -> float:
    """Largest resident size of this process so far, GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def report(name: str, **values) -> None:
    """Print one JSON line; numbers to four digits.

    A line with `section`, `what`, `against` and `shown` is a row of docs/benchmarks.md, which `page.py` makes of it:
    what was measured, against whom, `ratio` (ours ÷ theirs) and what each reached. `case` tells lines of one name
    apart. `cheap=True` has a slow test run the script again and fail when the ratio has doubled.
    """
    rounded = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in values.items()}
    run = {"measured": date.today().isoformat(), "command": [Path(sys.argv[0]).name, *sys.argv[1:]]}
    cores = {"cores": len(os.sched_getaffinity(0))} | ({"clock": "cpu"} if PROCESSOR else {})
    print(json.dumps({"benchmark": name, **rounded, **run, **cores}, ensure_ascii=False), flush=True)
