"""What the benchmarks share: best-of-n timing, the machine's matrix-product rate, and one line of JSON."""

import json
import resource
import time
from collections.abc import Callable

import torch


def best_time(work: Callable[[], object], repeats: int) -> float:
    """Shortest wall time of `repeats` runs, seconds: the least disturbed one."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


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
    """Print one JSON line; numbers to four digits."""
    rounded = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in values.items()}
    print(json.dumps({"benchmark": name, **rounded}), flush=True)
