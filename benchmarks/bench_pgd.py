"""PGD, 10 steps of ε/4 in L∞: our time ÷ foolbox's on the same function and points.

The arithmetic is the same; what can be won is closed-form gradients in chunks that stay in cache, and leaving broken
points alone. One line per ε: the paper's, where nothing breaks, and a larger one.
"""

import foolbox
import numpy as np
from peers import exact_mnist_model, to_foolbox
from timing import best_time, report

from attacks import PGD

data, model, wrapped = exact_mnist_model()
X, y = data.X_test, data.y_test
images, labels = to_foolbox(X, y)

for epsilon in (8 / 255, 0.2):
    ours, theirs = PGD(epsilon=epsilon), foolbox.attacks.LinfPGD(rel_stepsize=0.25, steps=10, random_start=False)
    result = ours(model, X, y)
    adversarial = theirs(wrapped, images, labels, epsilons=epsilon)[1].numpy()
    our_time = best_time(lambda attack=ours: attack(model, X, y), 5)
    their_time = best_time(lambda attack=theirs, eps=epsilon: attack(wrapped, images, labels, epsilons=eps), 5)
    report(
        "pgd",
        case=f"{epsilon:.4g}",
        section="Attacks",
        what=f"PGD, 10 steps, L∞ {epsilon:.3g}, {len(X):,} points of MNIST 1v7, same function",
        against="foolbox 3.3.4",
        ratio=our_time / their_time,
        shown=f"{result.robust_accuracy:.2%} accuracy left, foolbox {np.mean(model.predict(adversarial) == y):.2%}; "
        f"{our_time:.2f} s against {their_time:.2f} s",
        cheap=True,
        epsilon=epsilon,
        points=len(X),
        ours_seconds=our_time,
        foolbox_seconds=their_time,
        ours_accuracy=result.robust_accuracy,
        foolbox_accuracy=float(np.mean(model.predict(adversarial) == y)),
    )
