"""Numbers, tables and figure of docs/reading.md's part about networks; scripts/networks_run.sh makes the runs.

    python scripts/networks_page.py rate mnist_1v7    # a learning rate chosen on training rows → docs/networks.json
python scripts/networks_page.py collect mlruns    # tracked runs of experiment=networks → docs/networks.json
python scripts/networks_page.py draw              # docs/networks.json → docs/figures/networks.png
python scripts/networks_page.py tables            # the tables in Markdown, to be pasted
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any

from pipeline.labels import model_name

DOCS = Path(__file__).parents[1] / "docs"
STORED = DOCS / "networks.json"
PAIRS = {
    "mnist_1v7": "MNIST 1 vs 7",
    "mnist_8v9": "MNIST 8 vs 9",
    "cifar10_automobile_truck": "automobile vs truck",
    "cifar10_dog_horse": "dog vs horse",
}
MODELS = ("natural_exact", "adv_svm_d_exact", "adv_svm_c_exact", "adv_linear_svm", "svc")
MODELS += tuple(f"dnn_{way}" for way in ("natural", "standard", "mart", "vat", "free", "fgsm_rs"))
# With the exact kernel: what every kernel machine of this page has.
NAMES = {model: model_name(model.removesuffix("_exact")) for model in MODELS}


def rate(dataset: str) -> dict[str, Any]:
    """FGSM-RS on 4,000 training rows, 8 epochs, judged by PGD on 1,000 others; the test rows are not looked at."""
    import numpy as np

    from attacks import PGD
    from models import AdvNetwork
    from pipeline.data import load_dataset, read_settings

    data = load_dataset(read_settings(dataset))
    order = np.random.default_rng(0).permutation(len(data.X_train))
    fit, held = order[:4000], order[4000:5000]
    X, y = data.X_train[held], data.y_train[held]
    tried = []
    for learning_rate in (0.02, 0.05, 0.1, 0.2):
        model = AdvNetwork("fgsm_rs", learning_rate=learning_rate, epochs=8, image_shape=data.image_shape)
        model.fit(data.X_train[fit], data.y_train[fit])
        robust = float(PGD(epsilon=8 / 255, steps=10)(model, X, y).robust_accuracy)
        clean = float(model.score(X, y))
        tried.append({"learning_rate": learning_rate, "clean": round(100 * clean, 2), "pgd": round(100 * robust, 2)})
    return {"tried": tried, "chosen": max(tried, key=lambda row: (row["pgd"], row["clean"]))["learning_rate"]}


def collect(folder: str) -> dict[str, Any]:
    """Percentages and seconds by pair, model and attack, one value per seed; diverged trainings are not among them."""
    from pipeline.report.tracked import Reader
    from pipeline.tracking.store import open_to_read

    tracking = SimpleNamespace(folder=folder, uri=None, experiment="advsvm")
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for run in sorted(Reader(open_to_read(tracking)).runs(), key=lambda run: run.seed):
        cell = cells.setdefault((run.dataset, run.model), {"dataset": run.dataset, "model": run.model})
        settings = {"tune": run.params["tune.name"]} | {
            name.removeprefix("model."): run.params[name]
            for name in ("model.learning_rate", "model.epochs", "model.training.steps", "model.training.replays")
            if name in run.params
        }
        cell.setdefault("settings", settings)
        cell.setdefault("clean", {})[str(run.seed)] = round(100 * run.metrics["clean_accuracy"], 2)
        cell.setdefault("train_seconds", {})[str(run.seed)] = round(run.metrics["train_seconds"], 2)
        if run.attack == "none":
            continue
        kind = "accuracy_at_l2_cap" if run.attack in ("cw", "zoo") else "attacked_accuracy"
        cell.setdefault(run.attack, {})[str(run.seed)] = round(100 * run.metrics[kind], 2)
        cell.setdefault("points", {})[run.attack] = int(run.metrics["n_attacked"])
        if run.attack == "pgd":
            cell.setdefault("certified", {})[str(run.seed)] = round(100 * run.metrics["certified_accuracy"], 2)
    order = [(d, m) for d in PAIRS for m in NAMES]
    return {"runs": [cells[key] for key in order if key in cells]}


def spread(values: dict[str, float] | None, digits: int = 2) -> str:
    """98.71 of one seed, 98.71 ± 0.20 of several, – of none."""
    if not values:
        return "–"
    numbers = list(values.values())
    return f"{mean(numbers):.{digits}f}" + (f" ± {stdev(numbers):.{digits}f}" if len(numbers) > 1 else "")


def row(run: dict[str, Any]) -> str:
    """One model in Markdown."""
    columns = [spread(run.get(name)) for name in ("clean", "fgsm", "certified", "pgd", "cw", "zoo")]
    return f"| {NAMES[run['model']]} | {' | '.join(columns)} | {mean(run['train_seconds'].values()):.2g} |"


def table(stored: dict[str, Any], dataset: str) -> list[str]:
    """The lines of one pair's table."""
    head = "| | clean | FGSM | PGD: certified | PGD: attacked | C&W ≤ L2 1 | ZOO ≤ L2 1 | training [s] |"
    return [head, "|---" * 8 + "|", *(row(run) for run in stored["runs"] if run["dataset"] == dataset)]


def draw(stored: dict[str, Any], file: Path) -> None:
    """Accuracy under PGD against the seconds of one training, one panel per pair."""
    from pipeline.figures.charts import Line, Panel, lines

    panels = []
    for dataset, title in PAIRS.items():
        points = []
        for run in (run for run in stored["runs"] if run["dataset"] == dataset and run.get("pgd")):
            seconds = mean(run["train_seconds"].values())
            name = NAMES[run["model"]]
            points.append(Line.of_groups(name, {seconds: list(run["pgd"].values())}, 1.0))
        if points:
            panels.append(Panel(title, "training [s]", "accuracy under PGD [%]", points, log_x=True))
    lines(panels).savefig(file, dpi=110, bbox_inches="tight")


def main(what: str, *arguments: str) -> None:
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if what == "rate":
        (dataset,) = arguments
        rates = stored.setdefault("rates", {})
        if dataset not in rates:
            rates[dataset] = rate(dataset)
        print(rates[dataset]["chosen"])
    if what == "collect":
        stored |= collect(*arguments)
    if what in ("rate", "collect"):
        STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    if what == "draw":
        draw(stored, DOCS / "figures" / "networks.png")
    if what == "tables":
        for dataset, title in PAIRS.items():
            print(f"\n### {title}\n", *table(stored, dataset), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
