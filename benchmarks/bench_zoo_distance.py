"""How near ZOO gets with 20,000 queries ÷ C&W, which sees gradients: MNIST 1v7, exact kernel, random features, SVC.

The original ZOO draws its coordinates by how much they mattered so far. What that could bring at best is what exact
gradients bring: where the ratio of the medians is 1 it has nothing to gain there, and the rows that stay behind (the
ratio of the means) are those whose walk ended in another valley of the boundary, which no choice of coordinates mends.
"""

import sys

import numpy as np
from sklearn.svm import SVC
from timing import report

from attacks import ZOO, CarliniWagner
from models import AdvSVM
from pipeline.data import load_dataset

POINTS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
QUERIES = 20_000

data = load_dataset("mnist_1v7")
train = slice(0, 4000)
MODELS = {
    "exact kernel": AdvSVM(expansion="support_vectors", C=8.0, step=0.0625),
    "random features": AdvSVM(C=8.0, step=0.0625),
    "SVC": SVC(C=8.0, gamma=0.02),
}
for name in sys.argv[2:] or MODELS:
    model = MODELS[name]
    model.fit(data.X_train[train], data.y_train[train])
    X, y = data.X_test[:POINTS], data.y_test[:POINTS]
    correct = model.predict(X) == y
    X, y = X[correct], y[correct]
    result, reference = ZOO(max_queries=QUERIES)(model, X, y), CarliniWagner()(model, X, y)
    ratios = result.distortion_l2 / reference.distortion_l2
    report(
        "zoo_distance",
        case=name,
        section="Attacks",
        what=f"median L2 of ZOO with {QUERIES:,} queries, {len(X)} points of MNIST 1v7, {name}",
        against="C&W, which sees gradients",
        ratio=float(np.median(result.distortion_l2) / np.median(reference.distortion_l2)),
        shown=f"ratio of the means {result.distortion_l2.mean() / reference.distortion_l2.mean():.3g}; "
        f"{np.mean(ratios > 1.03):.0%} of the points over 3 % farther; {np.median(result.queries):,.0f} queries",
        points=len(X),
        success=float(result.success.mean()),
        percentiles={p: float(np.percentile(ratios, p)) for p in (10, 50, 75, 90)},
    )
