"""Auto ÷ adv-lib's APGD followed by its FMN (or FAB) on what stands, at as many gradients. Target: ≤ 0.5.

Same function, points, ball and box; robust accuracy must not be higher than theirs. Of as many gradients as Auto spent
on a row that stands, half go to APGD (cross-entropy: its other loss needs three classes), half to the nearest point.
Square's queries, which adv-lib does not ask, are in our time. Without adv-lib (see peers.py) nothing is measured.
"""

import sys
import time

import numpy as np
import torch
from peers import adv_lib_attacks, exact_mnist_model, to_foolbox
from timing import report

from attacks import Auto

POINTS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
THREATS = [("linf", 8 / 255), ("linf", 0.15), ("l2", 1.5)]
ORDER = {"linf": float("inf"), "l2": 2.0}


def standing(model, examples, X, y, norm, epsilon):
    """Which rows an array of examples leaves, counted where they are wrong and in the ball."""
    delta = examples.astype(np.float64) - X
    sizes = np.abs(delta).max(axis=1) if norm == "linf" else np.linalg.norm(delta, axis=1)
    return ~((model.predict(examples) != y) & (sizes <= epsilon * (1 + 1e-6)))


def theirs(attacks, nearest, model, wrapped, X, y, norm, epsilon, gradients):
    """Rows that APGD and then a minimum-norm attack leave, with half of the gradients each; and the seconds."""
    network = wrapped._model
    images, labels = to_foolbox(X, y)
    start = time.perf_counter()
    made = attacks.apgd(
        network, images, labels, eps=epsilon, norm=ORDER[norm], n_iter=gradients // 2, loss_function="ce"
    )
    left = standing(model, made.detach().numpy(), X, y, norm, epsilon)
    if left.any():
        rows = torch.from_numpy(np.flatnonzero(left))
        if nearest == "fmn":
            made = attacks.fmn(network, images[rows], labels[rows], norm=ORDER[norm], steps=gradients // 2)
        else:
            made = attacks.fab(network, images[rows], labels[rows], norm=ORDER[norm], n_iter=gradients // 2)
        left[left] = standing(model, made.detach().numpy(), X[left], y[left], norm, epsilon)
    return left, time.perf_counter() - start


def main():
    attacks = adv_lib_attacks()
    if attacks is None:
        print("bench_auto: adv-lib is not installed, nothing measured", file=sys.stderr)
        return
    data, model, wrapped = exact_mnist_model()
    X, y = data.X_test[:POINTS], data.y_test[:POINTS]
    for norm, epsilon in THREATS:
        attack = Auto(epsilon=epsilon, norm=norm)
        attack(model, X[:8], y[:8])
        start = time.perf_counter()
        result = attack(model, X, y)
        ours = time.perf_counter() - start
        gradients = int(result.gradient_evaluations.max())
        for nearest in ("fmn", "fab"):
            left, seconds = theirs(attacks, nearest, model, wrapped, X, y, norm, epsilon, gradients)
            report(
                "auto",
                ratio=ours / seconds,
                target=0.5,
                peer=f"adv-lib APGD + {nearest.upper()}",
                norm=norm,
                epsilon=epsilon,
                points=len(X),
                gradients=gradients,
                queries=int(result.queries.max()),
                ours_seconds=ours,
                peer_seconds=seconds,
                ours_accuracy=result.robust_accuracy,
                peer_accuracy=float(left.mean()),
                broken_by=result.history["broken_by"],
            )


if __name__ == "__main__":
    main()
