"""Time for 200,000 rows ÷ 20,000 rows with the exact expansion, and peak memory.

Rows are MNIST8M 0 vs 4, read from a memory map; each fit runs in a process of its own. C and step are those that the
paper's 5-fold grid chooses on the first 20,000 rows, for both step rules.

A ratio of 10 needs a live set of constant size. Every row is scored against all support vectors whose weight still
moves a float32 score; with a constant step they live about 17 / step iterations and 20,000 rows are only 40, with a
diminishing one they live for ever. The ratio therefore tells how far the live set has grown, which is reported beside.
With a budget the lighter vectors are projected onto the others, and the live set stays. `peers`: 200,000 rows beside
other libraries, each in a process of its own that is given LIMIT seconds.
    python benchmarks/bench_scaling.py                                             all of it
    python benchmarks/bench_scaling.py [constant | diminishing] [budgeted] [peers]     a part
"""

import json
import subprocess
import sys
from itertools import product

import numpy as np
from timing import clock, peak_memory, report

from models import RBF, AdvSVM, grid_search
from models.expansions import SupportVectors
from pipeline.data import load_dataset, read_settings

SIZES = (20_000, 200_000)
N_TEST = 1_962
BUDGETS = (2_000, 2_500, 3_000)  # equally accurate on held-out training rows; a smaller one is off by more
LIMIT = 900
ALPHA = 1e-5  # of SGDClassifier, the best of 1e-7 … 1e-4 on held-out training rows
PEERS = ("scikit-learn-intelex SVC", "RBFSampler + SGDClassifier", "Nystroem + SGDClassifier")
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


def fit_peer(name: str, n_rows: int) -> dict:
    """A peer with the same width on the same rows; 2,000 features where it approximates the kernel."""
    from sklearn.kernel_approximation import Nystroem, RBFSampler
    from sklearn.linear_model import SGDClassifier
    from sklearn.pipeline import make_pipeline

    data = rows()
    X, y = data.X_train[:n_rows], data.y_train[:n_rows]
    gamma = RBF().resolve_gamma(X, 0)
    if name == PEERS[0]:
        from sklearnex.svm import SVC

        model = SVC(C=8.0, gamma=gamma, cache_size=2000)
    else:
        kind = RBFSampler if name == PEERS[1] else Nystroem
        features = kind(gamma=gamma, n_components=2000, random_state=0)
        model = make_pipeline(features, SGDClassifier(alpha=ALPHA, random_state=0))
    start = clock()
    model.fit(X, y)
    seconds = clock() - start
    return {"seconds": seconds, "accuracy": float(np.mean(model.predict(data.X_test) == data.y_test))}


def reached(got: dict | None) -> str:
    """Accuracy and seconds in words."""
    return f"not within {LIMIT} s" if got is None else f"{got['accuracy']:.2%} in {got['seconds']:.0f} s"


def beside_peers() -> None:
    """Ours on all rows, beside what the peers take and reach on them."""
    settings = in_a_process("tune", "constant") | {"budget": BUDGETS[-1]}
    ours = in_a_process("fit", "constant", json.dumps(settings), str(max(SIZES)))
    found = {}
    for peer in PEERS:
        try:
            found[peer] = in_a_process("peer", peer, str(max(SIZES)))
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
            found[peer] = None
    good = [got["seconds"] for got in found.values() if got and got["accuracy"] >= 0.998]
    report(
        "scaling_peers",
        section="Training",
        what=f"exact kernel, constant step, budget of {BUDGETS[-1]:,}: {max(SIZES):,} rows of MNIST8M 0v4",
        against="the fastest peer that reaches 99.8 %",
        ratio=ours["seconds"] / min(good) if good else None,
        shown="; ".join([reached(ours), *(f"{peer} {reached(got)}" for peer, got in found.items())]),
        ours=ours,
        peers=found,
    )


def in_a_process(*arguments: str) -> dict:
    """Run a function of this file by itself, so that its peak memory is its own."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    steps = {
        "tune": tune,
        "fit": lambda schedule, settings, n_rows: fit(schedule, json.loads(settings), int(n_rows)),
        "peer": lambda name, n_rows: fit_peer(name, int(n_rows)),
    }
    if sys.argv[1:] and sys.argv[1] in steps:
        print(json.dumps(steps[sys.argv[1]](*sys.argv[2:])))
        return
    if "peers" in sys.argv or len(sys.argv) == 1:
        beside_peers()
    if "peers" in sys.argv:
        return
    budgets = BUDGETS if "budgeted" in sys.argv else (None, *BUDGETS)
    schedules = [name for name in ("constant", "diminishing") if name in sys.argv] or ["constant", "diminishing"]
    for schedule, budget in product(schedules, budgets):
        settings = in_a_process("tune", schedule) | ({"budget": budget} if budget else {})
        limit = f", budget of {budget:,}" if budget else ""
        small, large = (in_a_process("fit", schedule, json.dumps(settings), str(n_rows)) for n_rows in SIZES)
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
