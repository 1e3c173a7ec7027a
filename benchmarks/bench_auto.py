"""Auto ÷ adv-lib's APGD followed by its FMN (or FAB) on what stands, at as many gradients.

Same function, points, ball and box; robust accuracy must not be higher than theirs. Of as many gradients as Auto may
spend on a row, half go to APGD (cross-entropy: its other loss needs three classes), half to the nearest point. Auto
leaves rows that have come to rest, so that it spends fewer (`spent`); Square's queries, which adv-lib does not ask, are
in our time. Without adv-lib (see peers.py) nothing is measured.
"""

import sys

import numpy as np
import torch
from peers import adv_lib_attacks, exact_mnist_model, to_foolbox
from timing import best_time, report

from attacks import APGD, Auto
from attacks.auto import NEAREST

POINTS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
THREATS = [("linf", 8 / 255), ("linf", 0.15), ("l2", 1.5)]
GRADIENTS = 3 * APGD().steps + NEAREST
ORDER = {"linf": float("inf"), "l2": 2.0}


def standing(model, examples, X, y, norm, epsilon):
    """Which rows an array of examples leaves, counted where they are wrong and in the ball."""
    delta = examples.astype(np.float64) - X
    sizes = np.abs(delta).max(axis=1) if norm == "linf" else np.linalg.norm(delta, axis=1)
    return ~((model.predict(examples) != y) & (sizes <= epsilon * (1 + 1e-6)))


def theirs(attacks, nearest, model, wrapped, X, y, norm, epsilon, gradients):
    """Rows that APGD and then a minimum-norm attack leave, with half of the gradients each."""
    network = wrapped._model
    images, labels = to_foolbox(X, y)
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
    return left


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
        made = []
        ours = best_time(lambda attack=attack, made=made: made.append(attack(model, X, y)), 1)
        result = made[-1]
        spent = float(result.gradient_evaluations[~result.success].mean())
        for nearest in ("fmn", "fab"):
            left = []
            settings = (attacks, nearest, model, wrapped, X, y, norm, epsilon, GRADIENTS)
            seconds = best_time(lambda left=left, settings=settings: left.append(theirs(*settings)), 1)
            accuracy = float(left[-1].mean())
            report(
                "auto",
                case=f"{nearest}, {norm}, {epsilon:.3g}",
                section="Attacks",
                what=f"Auto, {norm.replace('linf', 'L∞').replace('l2', 'L2')} {epsilon:.3g}, {len(X)} points of MNIST "
                f"1v7, exact kernel, same function",
                against=f"adv-lib 0.2.8, APGD then {nearest.upper()} on what stands, {GRADIENTS} gradients",
                ratio=ours / seconds,
                shown=f"{result.robust_accuracy:.2%} left, theirs {accuracy:.2%}; {spent:.0f} of {GRADIENTS} gradients "
                f"spent on a point that stands; {ours:.2f} s against {seconds:.2f} s",
                norm=norm,
                epsilon=epsilon,
                points=len(X),
                spent=spent,
                queries=int(result.queries.max()),
                ours_seconds=ours,
                peer_seconds=seconds,
                ours_accuracy=result.robust_accuracy,
                peer_accuracy=accuracy,
                broken_by=result.history["broken_by"],
            )


if __name__ == "__main__":
    main()
