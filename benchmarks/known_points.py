"""What is known of real models on real data: certified, broken or undecided, and an attempt to break what is certified.

    python benchmarks/known_points.py FOLDER                    # everything; hours on two cores
    python benchmarks/known_points.py FOLDER 1v7_exact cifar    # names that begin so

Points are worked through in parts, and every finished part is a file in FOLDER: the same command goes on where it was
stopped. At the end FOLDER/known_points.json has one entry per model and threat; docs/known_points.json is such a file.
Settings are those that folds of the training rows picked, by accuracy or, on CIFAR-10, for the threat
(docs/robust_tuning.md).
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from attacks import APGD, PGD, Auto, MinNorm, bracket
from models import RBF, AdvSVM
from pipeline.data import load_dataset

LINF = 8 / 255


@dataclass(frozen=True)
class Case:
    """A model, points and a threat.

    `every` takes every so-many-th test point, `part` is how many are done between two files, and `hard` how many of the
    certified ones, those with the smallest margins, the long attacks are tried on.
    """

    dataset: str
    model: AdvSVM
    norm: str
    epsilon: float
    every: int = 1
    part: int = 250
    hard: int = 200
    offset: int = 0


def exact(schedule: str, C: float, step: float, width: float = 4.0, **more: Any) -> AdvSVM:
    kernel = RBF(width_scale=width)
    return AdvSVM(schedule=schedule, expansion="support_vectors", kernel=kernel, C=C, step=step, **more)


def random_features(schedule: str, C: float, step: float, **more: Any) -> AdvSVM:
    return AdvSVM(schedule=schedule, expansion="doubly_stochastic", kernel=RBF(width_scale=4.0), C=C, step=step, **more)


ONE_SEVEN = exact("diminishing", 8.0, 2.0)
CIFAR = {
    "automobile_truck_natural": ("cifar10_automobile_truck", exact("diminishing", 2.0**-7, 0.5, 1.0, epsilon=0.0)),
    "automobile_truck_d": ("cifar10_automobile_truck", exact("diminishing", 2.0**-7, 0.5, 1.0)),
    "automobile_truck_c": (
        "cifar10_automobile_truck",
        exact("constant", 2.0**-7, 0.125, 0.0625, averaging="tail"),
    ),
    "dog_horse_natural": ("cifar10_dog_horse", exact("diminishing", 32.0, 0.125, 0.25, epsilon=0.0)),
    "dog_horse_d": ("cifar10_dog_horse", exact("diminishing", 32.0, 0.125, 0.25)),
}
FEATURES = {
    "natural": random_features("diminishing", 4.0, 2.0, epsilon=0.0),
    "c": random_features("constant", 2.0, 0.125),
    "d": random_features("diminishing", 4.0, 2.0),
}
CASES = {
    "1v7_exact_linf": Case("mnist_1v7", ONE_SEVEN, "linf", LINF, hard=2163),
    "1v7_exact_l2_0.878": Case("mnist_1v7", ONE_SEVEN, "l2", 0.878, part=100),
    "1v7_exact_l2_1.5": Case("mnist_1v7", ONE_SEVEN, "l2", 1.5, part=50),
    **{f"cifar_{name}": Case(data, model, "linf", LINF, 4, 25, 12) for name, (data, model) in CIFAR.items()},
    **{f"1v7_features_{name}": Case("mnist_1v7", model, "l2", 0.5, 10, 20, 10) for name, model in FEATURES.items()},
}


@cache
def points(dataset: str) -> Any:
    return load_dataset(dataset)


def part_of(case: Case, model: AdvSVM, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The three answers for some test rows, and what each half took."""
    data = points(case.dataset)
    X, y = data.X_test[rows], data.y_test[rows]
    pgd = PGD(epsilon=case.epsilon, norm=case.norm, steps=40, step_size=case.epsilon / 8, restarts=2)
    start = time.perf_counter()
    broken = pgd(model, X, y).success
    attacked = time.perf_counter()
    known = bracket(model, X, y, case.epsilon, case.norm)
    ended = time.perf_counter()
    wrong = model.predict(X) != y
    assert not (known.certified & broken).any(), "a certified point was broken"
    return {
        "certified": known.certified,
        "broken": known.broken | broken,
        "wrong": wrong,
        "margins": np.abs(model.scores(X)),
        "seconds": np.array([ended - attacked, attacked - start]),
    }


def long_attacks(epsilon: float, norm: str, dtype: str = "float32") -> dict[str, Any]:
    """Ten times the steps, restarts, other ways to step, the nearest point, random search."""
    threat: dict[str, Any] = {"epsilon": epsilon, "norm": norm, "random_state": 7, "dtype": dtype}
    return {
        "pgd_400": PGD(steps=400, step_size=epsilon / 40, restarts=3, **threat),
        "apgd_500": APGD(steps=500, restarts=3, **threat),
        "auto": Auto(**threat),
        "min_norm": MinNorm(norm=norm, dtype=dtype),
    }


def hardest(case: Case, model: AdvSVM, rows: np.ndarray, attack: Any) -> dict[str, np.ndarray]:
    """Which certified rows an attack breaks."""
    data = points(case.dataset)
    found = attack(model, data.X_test[rows], data.y_test[rows])
    sizes = found.distortion_l2 if case.norm == "l2" else found.distortion_linf
    return {"rows": rows, "broken": found.success & (sizes <= case.epsilon)}


def stored(path: Path, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What the file holds, or what `make` returns, kept in it."""
    if not path.exists():
        made = make()
        partial = path.with_suffix(".part.npz")
        np.savez(partial, **made)
        partial.rename(path)
    with np.load(path) as kept:
        return dict(kept)


def known_points(name: str, case: Case, folder: Path) -> dict[str, Any]:
    """One line of the table; models are fitted only for parts that are not there yet."""
    data = points(case.dataset)
    rows = np.arange(case.offset, len(data.y_test), case.every)

    @cache
    def model() -> AdvSVM:
        return case.model.fit(data.X_train, data.y_train)

    parts = []
    for start in range(0, len(rows), case.part):
        some = rows[start : start + case.part]
        parts.append(stored(folder / f"{name}-{start}.npz", lambda some=some: part_of(case, model(), some)))
        done = {key: np.concatenate([part[key] for part in parts]) for key in ("certified", "broken")}
        open_rows = int((~done["certified"] & ~done["broken"]).sum())
        print(name, len(done["broken"]), "certified", int(done["certified"].sum()), "open", open_rows, flush=True)
    whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    certified, broken = whole["certified"], whole["broken"]
    nearest = np.flatnonzero(certified)[np.argsort(whole["margins"][certified])][: case.hard]
    tried = {}
    for kind, attack in long_attacks(case.epsilon, case.norm).items():
        outcome = stored(
            folder / f"{name}-{kind}.npz", lambda attack=attack: hardest(case, model(), rows[nearest], attack)
        )
        tried[kind] = int(outcome["broken"].sum())
        print(name, kind, "broke", tried[kind], "of", len(nearest), flush=True)
    seconds = np.stack([part["seconds"] for part in parts]).sum(0)
    return {
        "dataset": case.dataset,
        "norm": case.norm,
        "epsilon": case.epsilon,
        "points": len(rows),
        "clean": float(1 - whole["wrong"].mean()),
        "certified": float(certified.mean()),
        "attacked": float(1 - broken.mean()),
        "undecided": int((~certified & ~broken).sum()),
        "certified_share_of_surviving": float(certified.sum() / (~broken).sum()),
        "bracket_seconds": round(float(seconds[0]), 1),
        "pgd_40_seconds": round(float(seconds[1]), 1),
        "certified_and_attacked_hard": len(nearest),
        "broken_by": tried,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=[""])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    table = given.folder / "known_points.json"
    for name, case in CASES.items():
        if any(name.startswith(wanted) for wanted in given.names):
            found = known_points(name, case, given.folder)
            known = json.loads(table.read_text()) if table.exists() else {}
            table.write_text(json.dumps({**known, name: found}, indent=2, sort_keys=True) + "\n")
            print(json.dumps({name: found}), flush=True)


if __name__ == "__main__":
    main()
