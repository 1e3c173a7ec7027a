"""Slow, obvious versions of what ``attacks`` relies on, and small models to attack."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from models import AdvLinearSVM, AdvSVM, DoublyStochastic, FixedFeatures, KernelSVC


def digits_1v7():
    """Handwritten 1 against 7, 8×8 pixels in [0, 1], labels -1 and +1: training rows, training labels, test rows, …"""
    digits = load_digits()
    rows = np.isin(digits.target, [1, 7])
    X = (digits.data[rows] / 16).astype(np.float32)
    y = np.where(digits.target[rows] == 7, 1, -1)
    return X[80:], y[80:], X[:80], y[:80]


def finite_differences(scores, X, h=1e-5):
    """Gradient of the scores, one coordinate and one row at a time."""
    X = np.asarray(X, dtype=np.float64)
    gradients = np.empty_like(X)
    for j in range(X.shape[1]):
        step = np.zeros(X.shape[1])
        step[j] = h
        gradients[:, j] = (scores(X + step) - scores(X - step)) / (2 * h)
    return gradients


def explicit_probe(scores, X, coords, h):
    """Every one-coordinate query asked by itself."""
    plus, minus = np.empty((len(X), len(coords))), np.empty((len(X), len(coords)))
    for i in range(len(X)):
        for k, j in enumerate(coords):
            step = np.zeros((1, X.shape[1]))
            step[0, j] = h
            plus[i, k] = scores(X[i : i + 1] + step)[0]
            minus[i, k] = scores(X[i : i + 1] - step)[0]
    return plus, minus


def linear_worst_margin_linf(weights, intercept, X, signs, epsilon, box=(0.0, 1.0)):
    """The smallest margin of a linear model in the L∞ ball and the box: every pixel moves as far as it can."""
    X = np.asarray(X, dtype=np.float64)
    worst = np.clip(X - epsilon * np.sign(np.outer(signs, weights)), *box)
    return signs * (worst @ weights + intercept)


class LinearModel:
    """``w·x + b`` behind the attacks' protocol."""

    classes_ = np.array([-1, 1])

    def __init__(self, weights, intercept=0.0):
        self.weights, self.intercept = np.asarray(weights, dtype=np.float64), intercept

    def scores(self, X):
        return np.asarray(X, dtype=np.float64) @ self.weights + self.intercept

    def scores_and_gradients(self, X):
        return self.scores(X), np.tile(self.weights, (len(X), 1))

    def probe(self, X, coords, h):
        return explicit_probe(self.scores, X, coords, h)

    def predict(self, X):
        return np.where(self.scores(X) > 0, 1, -1)


class VanishingRBF:
    """A narrow RBF expansion without intercept: the score is almost 0 a short way from the data.

    This is where textbook C&W stalls, because wandering off lowers the margin without ever changing its sign.
    """

    classes_ = np.array([-1, 1])

    def __init__(self, centres, coefficients, gamma):
        self.centres = np.asarray(centres, dtype=np.float64)
        self.coefficients, self.gamma = np.asarray(coefficients, dtype=np.float64), gamma

    def _weighted(self, X):
        squared = np.square(np.asarray(X, dtype=np.float64)[:, None] - self.centres).sum(axis=2)
        return np.exp(-self.gamma * squared) * self.coefficients

    def scores(self, X):
        return self._weighted(X).sum(axis=1)

    def scores_and_gradients(self, X):
        weighted = self._weighted(X)
        scores = weighted.sum(axis=1)
        return scores, 2 * self.gamma * (weighted @ self.centres - scores[:, None] * np.asarray(X, dtype=np.float64))

    def probe(self, X, coords, h):
        return explicit_probe(self.scores, X, coords, h)

    def predict(self, X):
        return np.where(self.scores(X) > 0, 1, -1)


def adv_svm(expansion, kernel="rbf"):
    return AdvSVM(expansion=expansion, kernel=kernel, epsilon=1e-3, C=1.0, step=0.125, batch_size=50, passes=4)


MAKERS = {
    "svc_rbf": lambda: SVC(C=8.0, gamma=0.2),
    "svc_linear": lambda: SVC(C=1.0, kernel="linear"),
    "svc_poly": lambda: SVC(C=1.0, kernel="poly", degree=3, coef0=1.0),
    "svc_sigmoid": lambda: SVC(C=1.0, kernel="sigmoid", gamma=0.02),
    "linear_svc": lambda: LinearSVC(C=0.1, random_state=0),
    "scaled_svc": lambda: make_pipeline(StandardScaler(), SVC(C=4.0)),
    "pca_svc": lambda: make_pipeline(StandardScaler(), PCA(n_components=20, whiten=True, random_state=0), SVC(C=4.0)),
    "doubly_stochastic": lambda: adv_svm(DoublyStochastic(n_features=128)),
    "fixed_features": lambda: adv_svm(FixedFeatures(n_features=1024)),
    "support_vectors": lambda: adv_svm("support_vectors"),
    "laplacian": lambda: adv_svm("support_vectors", kernel="laplacian"),
    "adv_linear_svm": lambda: AdvLinearSVM(C=1.0, C_f=0.1),
    "kernel_svc": lambda: KernelSVC(C=4.0),
}
MODEL_NAMES = list(MAKERS)
