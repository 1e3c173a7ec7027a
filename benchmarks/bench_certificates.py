"""What is known of 1v7, and at what price: certifying ÷ PGD with 40 steps on the same points.

One line per threat: certified and attacked accuracy of the exact machine (D), and how many points stay undecided.
Then a line per L∞ radius for scikit-learn's SVC on the ten embedded digits. For scale:
SAVer (abstract interpretation of SVMs, Ranzato & Zanella 2019) reports 47.03 %
certified at L∞ 0.01 and 53.7 ms a point for its own ten-class RBF machine on MNIST.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import SVC
from timing import best_time, report

from attacks import PGD
from models import AdvSVM, certify
from pipeline.data import load_dataset

NORMS = {"linf": "L∞", "l2": "L2"}


def known(model, X, y, epsilon: float, norm: str, repeats: int = 1) -> None:
    """One line for one threat."""
    attack = PGD(epsilon=epsilon, norm=norm, steps=40, step_size=epsilon / 8)
    standing = ~attack(model, X, y).success
    certified = certify(model, X, y, epsilon, norm)
    their_time = best_time(lambda: attack(model, X, y), repeats)
    our_time = best_time(lambda: certify(model, X, y, epsilon, norm), repeats)
    report(
        "certificates",
        case=f"{norm}, {epsilon:.4g}",
        section="Certificates",
        what=f"certifying {len(X):,} points of MNIST 1v7, exact kernel, {NORMS[norm]} {epsilon:.3g}",
        against="PGD with 40 steps on the same points",
        ratio=our_time / their_time,
        shown=f"{certified.mean():.2%} proved, {standing.mean():.2%} survive, "
        f"{(standing & ~certified).sum()} undecided; {our_time:.2f} s against {their_time:.2f} s",
        cheap=norm == "linf",
        norm=norm,
        epsilon=epsilon,
        points=len(X),
        certified=float(certified.mean()),
        attacked=float(standing.mean()),
        undecided=int((standing & ~certified).sum()),
        contradictions=int((certified & ~standing).sum()),
        certify_seconds=our_time,
        pgd_seconds=their_time,
    )


data = load_dataset("mnist_1v7")
exact = AdvSVM(schedule="diminishing", expansion="support_vectors", C=8.0, step=2.0).fit(data.X_train, data.y_train)
known(exact, data.X_test, data.y_test, 8 / 255, "linf", repeats=2)
for radius in (0.878, 1.5):
    known(exact, data.X_test[::10], data.y_test[::10], radius, "l2")

X, y = load_digits(return_X_y=True)
X, rows = X / 16, np.arange(len(y)) % 4 == 0
fitted = SVC(C=10.0, gamma=0.5).fit(X[~rows], y[~rows])
X, y = X[rows], y[rows]
for epsilon in (0.01, 8 / 255):
    certified = certify(fitted, X, y, epsilon, "linf")
    seconds = best_time(lambda size=epsilon: certify(fitted, X, y, size, "linf"), 1)
    report(
        "certificates_fitted",
        case=f"{epsilon:.4g}",
        section="Certificates",
        what=f"certifying scikit-learn's SVC on the ten digits (8 × 8 pixels), {len(X)} points, L∞ {epsilon:.3g}",
        against="SAVer's published 53.7 ms a point and 47.03 % (its own ten-class machine on MNIST, L∞ 0.01)",
        shown=f"{certified.mean():.2%} proved of {np.mean(fitted.predict(X) == y):.2%} right, "
        f"{1000 * seconds / len(X):.2f} ms a point",
        epsilon=epsilon,
        points=len(X),
        clean=float(np.mean(fitted.predict(X) == y)),
        certified=float(certified.mean()),
        ms_per_point=1000 * seconds / len(X),
    )
