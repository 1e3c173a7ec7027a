"""Ten-class MNIST: scikit-learn's SVC on all 60,000 rows, certified on 500 test points, beside SAVer if it is built.

    python benchmarks/known_ten_classes.py FOLDER [--saver PATH]

SAVer (Ranzato and Zanella, SAS 2019; github.com/abstract-machine-learning/saver, C, GPL) is no part of this project:
build it elsewhere and name its executable. It gets the same fitted machine, points and radii, in the same box [0, 1].
C and gamma are the best of C = 1, 3, 10, 30 and gamma = 0.01, 0.02, 0.03 on 4,000 held-out training rows, fitted on
8,000 others; of equals the smaller C. The fitted machine and every finished answer are kept in FOLDER.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from known_points import long_attacks, stored
from sklearn.svm import SVC

from attacks import PGD
from models import certify
from pipeline.data import load_dataset, read_settings

BEST: dict[str, Any] = {"C": 3.0, "gamma": 0.03, "cache_size": 1000}
RADII = (0.01, 8 / 255)
HARD = 20


def choose(X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The best C and gamma of the small grid; takes minutes."""
    order = np.random.default_rng(0).permutation(len(y))[:12000]
    ours, held = order[:8000], order[8000:]
    grid = [(C, gamma) for C in (1.0, 3.0, 10.0, 30.0) for gamma in (0.01, 0.02, 0.03)]
    scores = [SVC(C=C, gamma=gamma).fit(X[ours], y[ours]).score(X[held], y[held]) for C, gamma in grid]
    return grid[int(np.argmax(scores))]


def fitted(folder: Path, X: np.ndarray, y: np.ndarray) -> SVC:
    """The machine, from its arrays where it was fitted before: a fit takes ten minutes."""
    names = ("support_", "support_vectors_", "_n_support", "_dual_coef_", "dual_coef_", "_intercept_", "intercept_")
    model = SVC(**BEST)

    def fit() -> dict[str, np.ndarray]:
        start = time.perf_counter()
        one = SVC(**BEST).fit(X, y)
        print("fitted in", round(time.perf_counter() - start), "s", flush=True)
        return {name: getattr(one, name) for name in names}

    kept = stored(folder / "ten_classes-svc.npz", fit)
    model.fit(X[:500], y[:500])
    for name in names:
        setattr(model, name, kept[name])
    model._gamma, model.shape_fit_ = BEST["gamma"], X.shape
    return model


def answers(model: SVC, X: np.ndarray, y: np.ndarray, epsilon: float) -> dict[str, np.ndarray]:
    """Certified, broken by PGD with 40 steps and a restart, and the seconds of both."""
    start = time.perf_counter()
    quick = certify(model, X, y, epsilon, "linf", seconds=0.0)
    cheap = time.perf_counter()
    certified = certify(model, X, y, epsilon, "linf")
    proved = time.perf_counter()
    pgd = PGD(epsilon=epsilon, steps=40, step_size=epsilon / 8, restarts=2, dtype="float64")
    rest = np.flatnonzero(~certified)
    broken = np.zeros(len(y), dtype=bool)
    if len(rest):
        broken[rest] = pgd(model, X[rest], y[rest]).success
    ended = time.perf_counter()
    return {
        "quick": quick,
        "certified": certified,
        "broken": broken,
        "seconds": np.array([cheap - start, proved - cheap, ended - proved]),
    }


def for_saver(folder: Path, model: SVC, X: np.ndarray, y: np.ndarray) -> tuple[Path, Path]:
    """The machine and the points as SAVer reads them."""
    machine, points = folder / "saver-svc.dat", folder / "saver-points.csv"
    with machine.open("w") as out:
        out.write(f"ovo\n{X.shape[1]} {len(model.classes_)}\nrbf {model._gamma!r}\n")
        out.writelines(f"{label} {count}\n" for label, count in zip(model.classes_, model._n_support))
        np.savetxt(out, model.dual_coef_, fmt="%.17g")
        np.savetxt(out, model.support_vectors_, fmt="%.17g")
        np.savetxt(out, model.intercept_[None], fmt="%.17g")
    with points.open("w") as out:
        out.write(f"# {len(y)} {X.shape[1]}\n")
        for row, label in zip(X, y):
            out.write(f"{label}," + ",".join(f"{value:.17g}" for value in row) + "\n")
    return machine, points


def saver(path: Path, machine: Path, points: Path, epsilon: float) -> dict[str, Any]:
    """SAVer's summary, with the domain of its own example; the default, hybrid, takes longer."""
    command = [str(path), str(machine), str(points), "raf", "l_inf", repr(epsilon)]
    start = time.perf_counter()
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    seconds = time.perf_counter() - start
    size, _, milliseconds, correct, _, robust = [line.split()[1:] for line in lines if "[SUMMARY]" in line][-1][:6]
    told = {"points": int(size), "correct": int(correct), "robust": int(robust)}
    return {**told, "ms_per_point": float(milliseconds), "seconds": round(seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--saver", type=Path)
    parser.add_argument("--rows", type=int, default=60000, help="train on the first so many rows only")
    parser.add_argument("--choose", action="store_true", help="print the best of the small grid and stop")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    data = load_dataset({**read_settings("mnist_1v7"), "name": "mnist", "classes": "all"})
    if given.choose:
        print(choose(data.X_train, data.y_train))
        return
    model = fitted(given.folder, data.X_train[: given.rows], data.y_train[: given.rows])
    some = np.arange(0, len(data.y_test), len(data.y_test) // 500)[:500]
    X, y = data.X_test[some].astype(np.float64), data.y_test[some]
    table = given.folder / "known_ten_classes.json"
    lines: dict[str, Any] = {}

    def answered(epsilon: float) -> dict[str, np.ndarray]:
        return stored(given.folder / f"ten_classes-{epsilon:.4f}.npz", lambda: answers(model, X, y, epsilon))

    for epsilon in RADII:
        found = answered(epsilon)
        certified, broken = found["certified"], found["broken"]
        line = {
            "rows": given.rows,
            "points": len(y),
            "clean": float(model.score(X, y)),
            "first_order": float(found["quick"].mean()),
            "certified": float(certified.mean()),
            "attacked": float(1 - broken.mean()),
            "undecided": int((~certified & ~broken).sum()),
            "ms_per_point": float(1000 * found["seconds"][1] / len(y)),
        }
        if given.saver is not None:
            line["saver"] = saver(given.saver, *for_saver(given.folder, model, X, y), epsilon)
        lines[f"{epsilon:.4f}"] = line
        table.write_text(json.dumps(lines, indent=2, sort_keys=True) + "\n")
        print(json.dumps({f"{epsilon:.4f}": line}), flush=True)
    for epsilon in RADII:
        certified = answered(epsilon)["certified"]
        margins = np.sort(model.decision_function(X), axis=1)
        nearest = np.flatnonzero(certified)[np.argsort((margins[:, -1] - margins[:, -2])[certified])][:HARD]
        tried = {}
        for kind, attack in long_attacks(epsilon, "linf", dtype="float64").items():

            def outcome(attack: Any = attack, epsilon: float = epsilon, nearest: np.ndarray = nearest) -> Any:
                result = attack(model, X[nearest], y[nearest])
                return {"broken": result.success & (result.distortion_linf <= epsilon)}

            broke = stored(given.folder / f"ten_classes-{epsilon:.4f}-{kind}.npz", outcome)["broken"]
            tried[kind] = int(broke.sum())
            print(epsilon, kind, tried[kind], "of", len(nearest), flush=True)
        lines[f"{epsilon:.4f}"].update({"certified_and_attacked_hard": len(nearest), "broken_by": tried})
        table.write_text(json.dumps(lines, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
