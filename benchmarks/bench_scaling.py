"""Time for 200,000 rows ÷ 20,000 rows with the exact expansion, and peak memory.

Rows are MNIST8M 0 vs 4, read from a memory map; each fit runs in a process of its own. C and step are those that the
paper's 5-fold grid chooses on the first 20,000 rows, for both step rules.

A ratio of 10 needs a live set of constant size. Every row is scored against all support vectors whose weight still
moves a float32 score; with a constant step they live about 17 / step iterations and 20,000 rows are only 40, with a
diminishing one they live for ever. The ratio therefore tells how far the live set has grown, which is reported beside.
With a budget the lighter vectors are projected onto the others, and the live set stays.
    python benchmarks/bench_scaling.py [budgeted]
"""

import json
import subprocess
import sys
from itertools import product

from timing import clock, peak_memory, report

from models import AdvSVM, grid_search
from models.expansions import SupportVectors
from pipeline.data import load_dataset, read_settings

SIZES = (20_000, 200_000)
N_TEST = 1_962
BUDGET = 4_000
AXIS = [2.0**power for power in range(-3, 4)]


def rows():
    return load_dataset({**read_settings("mnist8m_0v4"), "total": max(SIZES) + N_TEST})


def machine(schedule: str, budget: int | None = None, **settings) -> AdvSVM:
    return AdvSVM(expansion=SupportVectors(budget=budget), dtype="float32", schedule=schedule, **settings)


def tune(schedule: str) -> dict:
    """The grid's choice on the smaller set."""
    data = rows()
    X, y = data.X_train[: SIZES[0]], data.y_train[: SIZES[0]]
    return grid_search(machine(schedule), X, y, C=AXIS, step=AXIS).best


def fit(schedule: str, settings: dict, n_rows: int) -> dict:
    """Fit on the first rows; what it took."""
    data = rows()
    X, y = data.X_train[:n_rows], data.y_train[:n_rows]
    times = []
    for _ in range(3 if n_rows == min(SIZES) else 1):
        start = clock()
        model = machine(schedule, **settings).fit(X, y)
        times.append(clock() - start)
    memory = peak_memory()
    accuracy = float((model.predict(data.X_test) == data.y_test).mean())
    live = model.expansion_
    found = {"seconds": min(times), "memory": memory, "accuracy": accuracy, "live": len(live.live()[0])}
    return found | {"error": live.projection_error, "norm": model.norm_}


def in_a_process(*arguments: str) -> dict:
    """Run a function of this file by itself, so that its peak memory is its own."""
    command = [sys.executable, __file__, *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1] != "budgeted":
        print(json.dumps(tune(sys.argv[1])))
        return
    if len(sys.argv) == 4:
        print(json.dumps(fit(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))))
        return
    budgets = (BUDGET,) if "budgeted" in sys.argv else (None, BUDGET)
    for schedule, budget in product(("constant", "diminishing"), budgets):
        settings = in_a_process(schedule) | ({"budget": budget} if budget else {})
        limit = f", budget of {budget:,}" if budget else ""
        small, large = (in_a_process(schedule, json.dumps(settings), str(n_rows)) for n_rows in SIZES)
        report(
            "scaling",
            case=f"{schedule}, budget {budget}" if budget else schedule,
            section="Training",
            what=f"exact kernel, {schedule} step{limit}: {SIZES[1]:,} rows of MNIST8M 0v4",
            against=f"itself on {SIZES[0]:,} rows",
            ratio=large["seconds"] / small["seconds"],
            shown=f"{large['seconds']:.1f} s, {large['accuracy']:.2%}; {large['memory']:.2f} GiB at its peak; "
            f"{small['live']:,} support vectors become {large['live']:,}"
            + (f"; off by at most {large['error']:.2g} of ‖f‖ = {large['norm']:.3g}" if budget else ""),
            projection_error=large["error"],
            peak_memory_gib=large["memory"],
            **settings,
            seconds_20000=small["seconds"],
            seconds_200000=large["seconds"],
            live_20000=small["live"],
            live_200000=large["live"],
            test_accuracy_20000=small["accuracy"],
            test_accuracy_200000=large["accuracy"],
        )


if __name__ == "__main__":
    main()
