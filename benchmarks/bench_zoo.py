"""ZOO: seconds per query ÷ seconds per query of a batched forward pass, doubly stochastic 1 vs 7.

Both sides answer the same questions, f(x ± h e_j); the naive side asks for every perturbed row, as a toolbox does.
"""

import sys
from time import perf_counter

import numpy as np
from timing import best_time, report

from attacks import ZOO
from attacks.targets import batched_queries
from models import AdvSVM
from pipeline.data import load_dataset

POINTS = int(sys.argv[1]) if len(sys.argv) > 1 else 512
NAIVE_ROWS, COORDINATES, H = 8, 128, 1e-4

data = load_dataset("mnist_1v7")
model = AdvSVM(C=8.0, step=0.0625).fit(data.X_train, data.y_train)
X, y = data.X_test[:POINTS], data.y_test[:POINTS]
coords = np.sort(np.random.default_rng(0).choice(X.shape[1], COORDINATES, replace=False))
model.probe(X[:8], coords, H)  # draws the features once, for both sides

queries = 2 * NAIVE_ROWS * COORDINATES
naive = best_time(lambda: batched_queries(model.scores, X[:NAIVE_ROWS], coords, H), 3) / queries
naive_plus, _ = batched_queries(model.scores, X[:NAIVE_ROWS], coords, H)
difference = np.abs(model.probe(X[:NAIVE_ROWS], coords, H)[0] - naive_plus).max()

# The rate from a short run over many points, what the attack reaches from a full one over few.
short = ZOO(coordinates=COORDINATES, h=H, steps=20, binary_search_steps=1)
start = perf_counter()
spent = int(short(model, X, y).queries.sum())
rate = (perf_counter() - start) / spent

few = slice(0, max(POINTS // 8, 1))
start = perf_counter()
result = ZOO(coordinates=COORDINATES, h=H)(model, X[few], y[few])
seconds = perf_counter() - start
report(
    "zoo",
    section="Attacks",
    what="ZOO, seconds per query, random features, MNIST 1v7",
    against="a batched forward pass per query",
    ratio=rate / naive,
    shown=f"{1e6 * rate:.2f} µs a query",
    points=len(X),
    microseconds_per_query=1e6 * rate,
    naive_microseconds_per_query=1e6 * naive,
    largest_difference_of_an_answer=float(difference),
    full_attack_points=len(result.success),
    full_attack_seconds=seconds,
    full_attack_naive_seconds=naive * float(result.queries.sum()),
    success=float(result.success.mean()),
    needed_a_restart=result.history["restarted"],
    median_l2=float(np.median(result.distortion_l2[result.found])),
    median_queries=float(np.median(result.queries[result.found])),
)
