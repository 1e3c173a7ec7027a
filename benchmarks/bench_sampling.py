"""Orthogonal instead of independent frequencies at equal number: what stands under PGD and what is certified.

Trained on all but 2,000 training rows, judged on the first 1,000 of those; no test row is used. Three seeds each.
    python benchmarks/bench_sampling.py [dataset ...]
"""

import sys

import numpy as np
from timing import best_time, report

from attacks import PGD
from models import AdvSVM, DoublyStochastic, FixedFeatures
from pipeline.data import load_dataset

EXPANSIONS = (FixedFeatures(n_features=1024), FixedFeatures(n_features=4096), DoublyStochastic(n_features=1024))
RADIUS, EPSILON, SEEDS = 0.5, 8 / 255, range(3)


def main(*datasets: str) -> None:
    for dataset in datasets or ("mnist_1v7",):
        data = load_dataset(dataset)
        order = np.random.default_rng(0).permutation(len(data.X_train))
        judged, kept = order[:1000], order[2000:]
        X, y = data.X_train[judged], data.y_train[judged]
        for expansion in EXPANSIONS:
            found: dict[str, dict[str, float]] = {}
            for sampling in ("gaussian", "orthogonal"):
                rows = []
                for seed in SEEDS:
                    settings = type(expansion)(n_features=expansion.n_features, sampling=sampling)
                    model = AdvSVM("diminishing", settings, epsilon=0.0, C=8.0, step=1.0, random_state=seed)
                    seconds = best_time(lambda model=model: model.fit(data.X_train[kept], data.y_train[kept]), 1)
                    robust = PGD(epsilon=EPSILON)(model, X, y).robust_accuracy
                    certified = np.mean(model.certified_radius(X, y) > RADIUS)
                    rows.append((100 * model.score(X, y), 100 * robust, 100 * certified, seconds))
                found[sampling] = dict(zip(("clean", "pgd", "certified", "seconds"), np.mean(rows, axis=0)))
            theirs, ours = found["gaussian"], found["orthogonal"]
            report(
                "sampling",
                case=f"{dataset}, {expansion.name}, {expansion.n_features}",
                section="Training",
                what=f"orthogonal frequencies, {expansion.name} with {expansion.n_features:,}, {dataset}",
                against="independent ones",
                ratio=float(ours["seconds"] / theirs["seconds"]),
                shown=f"certified at L2 {RADIUS}: {ours['certified']:.1f} instead of {theirs['certified']:.1f} %; PGD L∞ "
                f"8/255 {ours['pgd']:.1f} and {theirs['pgd']:.1f} %; clean {ours['clean']:.1f} and {theirs['clean']:.1f} % "
                f"(held-out training rows, mean of {len(SEEDS)} seeds)",
                **{name: {key: float(value) for key, value in values.items()} for name, values in found.items()},
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
