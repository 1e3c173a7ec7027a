"""Time for 200,000 rows ÷ 20,000 rows with the exact expansion, and peak memory. Targets: ≤ 15, under 4 GiB.

Rows are MNIST 1 vs 7 shifted by up to two pixels, in a float32 memory map; each fit runs in a process of its own.
"""

import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np
from timing import peak_memory, report

SIZES = (20_000, 200_000)
SETTINGS = {"expansion": "support_vectors", "C": 4.0, "step": 0.125, "dtype": "float32"}


def write_rows(folder: Path, n_rows: int) -> None:
    """X.bin and y.npy: the training images under all 25 shifts, in random order."""
    from pipeline.data import load_dataset

    data = load_dataset("mnist_1v7")
    X = np.memmap(folder / "X.bin", dtype=np.float32, mode="w+", shape=(n_rows, data.X_train.shape[1]))
    y = np.empty(n_rows, dtype=np.int64)
    order = np.random.default_rng(0).permutation(n_rows)
    images = data.X_train.reshape(-1, 28, 28)
    shifts = sorted(product(range(-2, 3), repeat=2), key=lambda shift: abs(shift[0]) + abs(shift[1]))
    for start, shift in zip(range(0, n_rows, len(images)), shifts):
        rows = order[start : start + len(images)]
        X[rows] = np.roll(images[: len(rows)], shift, axis=(1, 2)).reshape(len(rows), -1)
        y[rows] = data.y_train[: len(rows)]
    X.flush()
    np.save(folder / "y.npy", y)


def fit(folder: Path, n_rows: int) -> None:
    """Fit on the first rows and print what it took, as JSON."""
    from models import AdvSVM

    y = np.load(folder / "y.npy")
    X = np.memmap(folder / "X.bin", dtype=np.float32, mode="r", shape=(len(y), 784))[:n_rows]
    times = []
    for _ in range(3 if n_rows <= 20_000 else 1):
        start = perf_counter()
        model = AdvSVM(**SETTINGS).fit(X, y[:n_rows])
        times.append(perf_counter() - start)
    memory = peak_memory()
    accuracy = float((model.predict(X[-2000:]) == y[:n_rows][-2000:]).mean())
    print(json.dumps([min(times), memory, accuracy, model.expansion_.n_support]))


def main() -> None:
    if len(sys.argv) > 1:
        fit(Path(sys.argv[1]), int(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as name:
        write_rows(Path(name), max(SIZES))
        found = []
        for n_rows in SIZES:
            command = [sys.executable, __file__, name, str(n_rows)]
            found.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
    (small, *_), (large, memory, accuracy, n_support) = found
    report(
        "scaling",
        ratio=large / small,
        target=15.0,
        peak_memory_gib=memory,
        memory_target_gib=4.0,
        seconds_20000=small,
        seconds_200000=large,
        support_vectors=n_support,
        accuracy_on_last_rows=accuracy,
    )


if __name__ == "__main__":
    main()
