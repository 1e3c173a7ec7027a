"""What a grid costs in units of one fit and predict, exact kernel: by accuracy, with widths, and for a threat.

The ratio of ``tune=robust`` is reported with how much of it is the scoring under the threat, which no
one-pass trick shares.
    python benchmarks/bench_robust_grid.py [dataset]
"""

import sys

from omegaconf import OmegaConf
from timing import best_time, report

from models import AdvSVM, GridResult, grid_search
from pipeline.data import load_dataset
from pipeline.paths import conf_dir

POWERS = [2.0**power for power in range(-3, 4)]
WIDTHS = [0.25, 0.5, 1.0, 2.0, 4.0]


def main(dataset: str = "mnist_1v7") -> None:
    data = load_dataset(dataset)
    model = AdvSVM(expansion="support_vectors", schedule="diminishing", epsilon=0.0, dtype="float32")
    offered = OmegaConf.load(conf_dir() / "tune" / "robust.yaml")
    robust = {"C": list(offered.C), "step": list(offered.step), "width": list(offered.width_scale)}
    threat = {"metric": "robust_accuracy", "norm": "linf", "radius": 8 / 255, "box": data.box}
    paper = {"C": POWERS, "step": POWERS}
    grids = {
        "paper": (paper, {}),
        "paper, 5 widths": (paper | {"width": WIDTHS}, {}),
        "robust, by accuracy": (robust, {}),
        "robust, for the threat": (robust, threat),
    }
    model.fit(data.X_train, data.y_train)

    def one_fit() -> None:
        model.fit(data.X_train, data.y_train).predict(data.X_test)

    for name, (axes, how) in grids.items():
        found: list[GridResult] = []

        def search(axes: dict = axes, how: dict = how, found: list = found) -> None:
            found.append(grid_search(model, data.X_train, data.y_train, **axes, **how))

        # Before and after: the machine may be busier at one of the two.
        one = best_time(one_fit, 2)
        seconds = best_time(search, 1)
        one = min(one, best_time(one_fit, 1))
        report(
            "robust_grid",
            dataset=dataset,
            case=f"{dataset}, {name}",
            section="Choosing settings",
            what=f"{5 * len(found[0].table['C']):,} fits, exact kernel, grid {name}, {dataset}",
            against="one fit and prediction",
            ratio=seconds / one,
            shown=f"{seconds:.1f} s beside {one:.2f} s",
            fits=5 * len(found[0].table["C"]),
            grid_seconds=seconds,
            fit_predict_seconds=one,
            best=found[0].best,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
