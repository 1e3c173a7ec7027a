"""Time for our machines to come level with the fastest SVC at hand ÷ that SVC's fit, float32, all cores.

Level: within 0.2 points of test accuracy on MNIST, 0.5 on CIFAR-10. Peers: scikit-learn-intelex and thundersvm-cpu
where they are installed; scikit-learn's own SVC (libsvm) only if asked for, it takes minutes on CIFAR-10.
Then the same for a tuned model: a 5-fold grid of 49 settings and the fit of its choice ÷ GridSearchCV of the peer.
    python benchmarks/bench_svc_time.py                                    both, all datasets
    python benchmarks/bench_svc_time.py [dataset ...] [libsvm | tuned]     one of them
"""

import sys

import numpy as np
from sklearn.model_selection import GridSearchCV
from timing import best_time, clock, report

from models import RBF, AdvSVM, KernelSVC, grid_search
from models.expansions import SupportVectors
from pipeline.data import load_dataset

# C, step, batches, passes and rank were chosen on training rows, never on test rows. On 8v9 by five random fifths held
# out (99.41 % on average, scikit-learn-intelex 99.47 %), and 1v7 has its settings; on automobile/truck by the 5-fold
# grid (six passes; eight do no better) and the rank by three fifths (78.9 to 79.0 % with 150 and 300 directions, theirs
# 79.1 %). The same was 0.6 points short of theirs on dog/horse; more passes, averaged, with the C of its 5-fold grid
# (`tuned`) are not.
MNIST = {
    "ours": {"schedule": "diminishing", "C": 128.0, "step": 2.0, "batch_size": 250, "passes": 3},
    "rank": 100,
    "width_scale": 4.0,
    "points": 0.2,
}
CIFAR = {
    "ours": {"schedule": "diminishing", "C": 32.0, "step": 0.5, "passes": 6},
    "rank": 150,
    "width_scale": 6.0,
    "points": 0.5,
}
DOG_HORSE = CIFAR | {"ours": CIFAR["ours"] | {"C": 64.0, "passes": 10, "averaging": "tail"}}
SETTINGS = {"mnist_1v7": MNIST, "mnist_8v9": MNIST, "cifar10_automobile_truck": CIFAR, "cifar10_dog_horse": DOG_HORSE}
PEER_C = 8.0
POWERS = [2.0**power for power in range(-3, 4)]
# C weighs the mean loss in ours and the sum in SVC: other numbers, wide enough that the grid chooses none at its edge.
OUR_C = [2.0**power for power in range(2, 9)]


def peers(with_libsvm: bool) -> dict:
    """Name → class of every SVC that is installed."""
    found = {}
    try:
        from sklearnex.svm import SVC as Intelex

        found["scikit-learn-intelex"] = Intelex
    except ImportError:
        pass
    try:
        from thundersvm import SVC as Thunder

        found["thundersvm"] = Thunder
    except (ImportError, OSError):
        pass
    if with_libsvm or not found:
        from sklearn.svm import SVC

        found["scikit-learn"] = SVC
    return found


def machine(settings: dict, **changes) -> AdvSVM:
    kernel = RBF(width_scale=settings["width_scale"])
    expansion = SupportVectors(rank=settings["rank"])
    own = {"expansion": expansion, "kernel": kernel, "epsilon": 0.0, "dtype": "float32"}
    return AdvSVM(**own | settings["ours"] | changes)


def accuracy(model, data) -> float:
    return float(np.mean(np.asarray(model.predict(data.X_test)) == data.y_test))


def compare(name: str, settings: dict, with_libsvm: bool) -> None:
    data, points = load_dataset(name), settings["points"]
    svc = KernelSVC(C=PEER_C, width_scale=settings["width_scale"], rank=150)
    ours = {"AdvSVM": machine(settings), "KernelSVC": svc}
    often = 5 if settings is MNIST else 2
    seconds = {
        kind: best_time(lambda m=model: m.fit(data.X_train, data.y_train), often) for kind, model in ours.items()
    }
    # Each peer gets the same kernel width and a cache that holds its whole kernel matrix.
    found = {}
    for peer, kind in peers(with_libsvm).items():
        fitted = kind(C=PEER_C, gamma=svc.gamma_, cache_size=2000)
        spent = best_time(
            lambda fitted=fitted: fitted.fit(data.X_train, data.y_train), often if peer == "scikit-learn-intelex" else 1
        )
        found[peer] = {"seconds": spent, "accuracy": accuracy(fitted, data)}
    fastest = min(found, key=lambda peer: found[peer]["seconds"])
    theirs = found[fastest]
    for kind, model in ours.items():
        reached = accuracy(model, data)
        level = reached >= theirs["accuracy"] - points / 100
        rank = settings["rank"] if kind == "AdvSVM" else svc.rank
        report(
            "svc_time",
            case=name if kind == "AdvSVM" else f"{name}, {kind}",
            section="Training",
            what=f"{kind}, exact kernel, rank={rank}, {'' if level else 'NOT '}within {points} points of SVC's "
            f"accuracy, {name}",
            against=f"fit of the fastest SVC of {', '.join(found)}",
            ratio=seconds[kind] / theirs["seconds"],
            shown=f"{reached:.2%} in {seconds[kind]:.2f} s; {fastest} {theirs['accuracy']:.2%} in "
            f"{theirs['seconds']:.2f} s",
            cheap=name == "mnist_1v7",
            level=level,
            seconds=seconds[kind],
            accuracy=reached,
            peers=found,
            support_vectors=model.expansion_.n_support,
        )


def tuned(name: str, settings: dict) -> None:
    """The grid and the fit of its choice. Of the peer's 49 settings seven are timed, one per C, for all."""
    data = load_dataset(name)
    kind = next(iter(peers(False).items()))
    start = clock()
    best = grid_search(machine(settings), data.X_train, data.y_train, C=OUR_C, step=POWERS).best
    ours = machine(settings, **best).fit(data.X_train, data.y_train)
    seconds = clock() - start
    widths = [ours.gamma_ * power for power in POWERS]
    counted, spent = 0, 0.0
    for C, gamma in zip(POWERS, widths):
        search = GridSearchCV(kind[1](cache_size=2000), {"C": [C], "gamma": [gamma]}, cv=5, refit=False)
        start = clock()
        search.fit(data.X_train, data.y_train)
        spent, counted = spent + clock() - start, counted + 1
    theirs = spent * 49 / counted
    usual = kind[1](C=PEER_C, gamma=ours.gamma_, cache_size=2000).fit(data.X_train, data.y_train)
    report(
        "svc_tuned",
        case=name,
        section="Training",
        what=f"exact kernel with its 5-fold grid of 49 settings, {name}",
        against=f"GridSearchCV of {kind[0]}'s SVC, 5 folds, 49 settings (7 of them timed)",
        ratio=seconds / theirs,
        shown=f"{accuracy(ours, data):.2%} in {seconds:.1f} s; about {theirs:.0f} s (its SVC of our width, C = 8: "
        f"{accuracy(usual, data):.2%})",
        seconds=seconds,
        peer_seconds_of_7_settings=spent,
        best=best,
    )


def main() -> None:
    asked = sys.argv[1:]
    names = [name for name in asked if name in SETTINGS] or list(SETTINGS)
    for name in names:
        if "tuned" not in asked:
            compare(name, SETTINGS[name], "libsvm" in asked)
        if "tuned" in asked or not asked:
            tuned(name, SETTINGS[name])


if __name__ == "__main__":
    main()
