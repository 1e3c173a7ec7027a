"""Orthogonal instead of independent frequencies at equal number: what stands under PGD and what is certified.

Trained on all but 2,000 training rows, judged on the first 1,000 of those; no test row is used. Three seeds each.
    python benchmarks/bench_sampling.py [dataset ...]
"""

import sys
from dataclasses import replace

import numpy as np
from timing import best_time, report

from attacks import PGD
from models import AdvSVM, DoublyStochastic, FixedFeatures
from pipeline.data import load_dataset

EXPANSIONS = (FixedFeatures(n_features=1024), FixedFeatures(n_features=4096), DoublyStochastic(n_features=1024))
RADIUS, EPSILON, SEEDS = 0.5, 8 / 255, range(3)


def measured(expansion, X, y, X_held, y_held) -> dict[str, float]:
    """Percentages and seconds, mean over seeds."""
    rows = []
    for seed in SEEDS:
        model = AdvSVM("diminishing", expansion, epsilon=0.0, C=8.0, step=1.0, random_state=seed)
        seconds = best_time(lambda model=model: model.fit(X, y), 1)
        robust = PGD(epsilon=EPSILON)(model, X_held, y_held).robust_accuracy
        certified = np.mean(model.certified_radius(X_held, y_held) > RADIUS)
        rows.append((100 * model.score(X_held, y_held), 100 * robust, 100 * certified, seconds))
    return dict(zip(("clean", "pgd", "certified", "seconds"), np.mean(rows, axis=0).round(3).tolist()))


def main(*datasets: str) -> None:
    for dataset in datasets or ("mnist_1v7",):
        data = load_dataset(dataset)
        order = np.random.default_rng(0).permutation(len(data.X_train))
        rows = [part[chosen] for chosen in (order[2000:], order[:1000]) for part in (data.X_train, data.y_train)]
        for expansion in EXPANSIONS:
            theirs, ours = (measured(replace(expansion, sampling=s), *rows) for s in ("gaussian", "orthogonal"))
            report(
                "sampling",
                case=f"{dataset}, {expansion.name}, {expansion.n_features}",
                section="Training",
                what=f"orthogonal frequencies, {expansion.name} with {expansion.n_features:,}, {dataset}",
                against="independent ones",
                ratio=ours["seconds"] / theirs["seconds"],
                shown=f"certified at L2 {RADIUS}: {ours['certified']:.1f} instead of {theirs['certified']:.1f} %; "
                f"PGD L∞ 8/255 {ours['pgd']:.1f} and {theirs['pgd']:.1f} %; "
                f"clean {ours['clean']:.1f} and {theirs['clean']:.1f} % (held-out training rows, {len(SEEDS)} seeds)",
                gaussian=theirs,
                orthogonal=ours,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
