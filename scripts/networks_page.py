"""Numbers, tables and figure of docs/networks.md; scripts/networks_run.sh makes the runs.

python scripts/networks_page.py rate mnist_1v7    # a learning rate chosen on training rows → docs/networks.json
python scripts/networks_page.py collect mlruns    # tracked runs of experiment=networks → docs/networks.json
python scripts/networks_page.py seconds mnist_8v9 # processor time of one training each, where other jobs were running
python scripts/networks_page.py write             # the tables of docs/networks.md, and docs/figures/networks.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from pages import fill, spread

from pipeline.labels import model_name

DOCS = Path(__file__).parents[1] / "docs"
STORED = DOCS / "networks.json"
PAGE = DOCS / "networks.md"
PAIRS = {
    "mnist_1v7": "MNIST 1 vs 7",
    "mnist_8v9": "MNIST 8 vs 9",
    "cifar10_automobile_truck": "automobile vs truck",
    "cifar10_dog_horse": "dog vs horse",
}
NETWORKS = tuple(f"dnn_{way}" for way in ("natural", "standard", "mart", "vat", "free", "fgsm_rs"))
# What results.md has of the exact kernel, tuned as the paper does.
KERNEL = ("natural", "adv_svm_d", "adv_svm_c", "adv_linear_svm")
HEAD = "| | tuned by | seeds | clean | FGSM | PGD: certified | PGD: attacked | C&W ≤ L2 1 | ZOO ≤ L2 1 | training [s] |"


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


def collect(folder: str, stored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Percentages and seconds by pair, model and attack, one value per seed; diverged trainings are not among them.

    A network that the store has under PGD takes the place of the stored one; of another its attacks are added.
    """
    from pipeline.report.tracked import Reader
    from pipeline.tracking.store import open_to_read

    tracking = SimpleNamespace(folder=folder, uri=None, experiment="advsvm")
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for run in sorted(Reader(open_to_read(tracking)).runs(), key=lambda run: run.seed):
        if run.dataset not in PAIRS or run.model not in NETWORKS:
            continue
        cell = cells.setdefault((run.dataset, run.model), {"dataset": run.dataset, "model": run.model})
        names = ("model.learning_rate", "model.epochs", "model.training.steps", "model.training.replays")
        settings = {name.removeprefix("model."): run.params[name] for name in names if name in run.params}
        if cell.setdefault("settings", settings) != settings:
            raise SystemExit(f"{run.dataset}, {run.model}: runs with {cell['settings']} and with {settings}")
        cell.setdefault("clean", {})[str(run.seed)] = round(100 * run.metrics["clean_accuracy"], 2)
        cell.setdefault("train_seconds", {})[str(run.seed)] = round(run.metrics["train_seconds"], 2)
        kind = "accuracy_at_l2_cap" if run.attack in ("cw", "zoo") else "attacked_accuracy"
        cell.setdefault(run.attack, {})[str(run.seed)] = round(100 * run.metrics[kind], 2)
        cell.setdefault("points", {})[run.attack] = int(run.metrics["n_attacked"])
        if run.attack == "pgd":
            cell.setdefault("certified", {})[str(run.seed)] = round(100 * run.metrics["certified_accuracy"], 2)
    found = {(cell["dataset"], cell["model"]): cell for cell in stored}
    for key, cell in cells.items():
        old = found.get(key, {})
        added = cell if "pgd" in cell else {attack: cell[attack] for attack in ("cw", "zoo") if attack in cell}
        found[key] = {**old, **added, "points": {**old.get("points", {}), **cell["points"]}}
    return [found[key] for key in ((d, m) for d in PAIRS for m in NETWORKS) if key in found]


def seconds(dataset: str, stored: list[dict[str, Any]]) -> None:
    """Puts the processor time of one training in place of the stored seconds, seed 0, on one core."""
    import time

    import torch

    from models import AdvNetwork
    from models.networks import Training
    from pipeline.data import load_dataset, read_settings

    torch.set_num_threads(1)
    data = load_dataset(read_settings(dataset))
    for cell in stored:
        if cell["dataset"] != dataset or cell["train_seconds"]:
            continue
        own = cell["settings"]
        kind = Training.registry[cell["model"].removeprefix("dnn_")]
        training = kind(**{n.removeprefix("training."): int(v) for n, v in own.items() if n.startswith("training.")})
        network = AdvNetwork(
            training, learning_rate=float(own["learning_rate"]), epochs=int(own["epochs"]), image_shape=data.image_shape
        )
        started = time.process_time()
        network.fit(data.X_train, data.y_train)
        cell["train_seconds"] = {"0": round(time.process_time() - started, 2)}


def seconds_of(values: list[float]) -> str:
    """Their median (a seed may have met another job), to two digits or the second."""
    return f"{median(values):.0f}" if median(values) >= 10 else f"{median(values):.2g}"


def of_network(run: dict[str, Any]) -> dict[str, str]:
    """The columns of a network: all of its seeds."""
    cells = {name: spread(list(run[name].values())) for name in HEADED[:-1] if name in run}
    seconds = list(run["train_seconds"].values())  # none where other jobs had most of the core
    cells |= {"train_seconds": seconds_of(seconds)} if seconds else {}
    return cells | {"seeds": str(len(run["clean"])), "tuned": "held-out rows"}


def of_results(section: dict[str, Any], model: str) -> dict[str, str]:
    """The columns of a kernel machine as docs/results.json has them."""
    found = {c["attack"]: c for c in section["cells"] if c["model"] == model}
    name = found["none"]["row"]
    seconds = next(entry["training"] for entry in section["seconds"] if entry["row"] == name)
    attacks = {"clean": "none", "fgsm": "fgsm", "pgd": "pgd", "cw": "cw", "zoo": "zoo"}
    cells = {
        column: "{:.2f} ± {:.2f}".format(*found[attack]["accuracy"])
        for column, attack in attacks.items()
        if attack in found
    }
    return cells | {"seeds": str(found["none"]["seeds"]), "tuned": "accuracy", "train_seconds": seconds_of([seconds])}


def of_robust_tuning(run: dict[str, Any]) -> dict[str, str]:
    """The columns of a machine whose settings were chosen for the threat."""
    by = "the threat" if run["by"] == "robust accuracy" else run["by"]
    cells = {"clean": spread(run["clean"]), "pgd": spread(run["attacked"]), "certified": spread(run["certified"])}
    return cells | {"seeds": str(len(run["clean"])), "tuned": by}


HEADED = ("clean", "fgsm", "certified", "pgd", "cw", "zoo", "train_seconds")


def rows(dataset: str) -> list[tuple[str, dict[str, str]]]:
    """(name, columns) of every model of a pair: as the paper tunes them, for the threat, networks."""
    results, robust, stored = (
        json.loads((DOCS / file).read_text()) for file in ("results.json", "robust_tuning.json", "networks.json")
    )
    (section,) = (s for s in results["sections"] if s["dataset"] == dataset and s["label"].startswith("exact"))
    found = [(model_name(model), of_results(section, model)) for model in KERNEL]
    found += [
        (model_name(run["model"]), of_robust_tuning(run))
        for run in robust["runs"]
        if run["dataset"] == dataset and "L∞ 8/255" in run["section"] and not run["by"].startswith("accuracy")
    ]
    found += [(model_name(run["model"]), of_network(run)) for run in stored["runs"] if run["dataset"] == dataset]
    return found


def table(dataset: str) -> str:
    """One pair's table in Markdown."""
    lines = [HEAD, "|---" * HEAD.count(" | ") + "|---|"]
    for name, columns in rows(dataset):
        shown = [columns.get(column, "–") for column in ("tuned", "seeds", *HEADED)]
        lines.append(f"| {' | '.join([name, *shown])} |")
    return "\n".join(lines)


def render(page: str) -> str:
    """The page with its tables made anew."""
    return fill(page, {f"table {dataset}": table(dataset) for dataset in PAIRS})


def draw(file: Path) -> None:
    """Accuracy under PGD against the seconds of one training, one panel per pair; networks are filled."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    from pipeline.figures.style import CYCLE, legend_beside, panels_of, tidy

    figure, row = panels_of(len(PAIRS))
    looks: dict[str, dict[str, Any]] = {}
    for axes, (dataset, title) in zip(row, PAIRS.items()):
        points = [(name, columns) for name, columns in rows(dataset) if {"train_seconds", "pgd"} <= columns.keys()]
        reached = [float(columns["pgd"].split(" ")[0]) for _, columns in points]
        # What is far below the others stands on the axis, with its number.
        floor = min(value for value in reached if value > max(reached) - 20) - 1
        for (name, columns), value in zip(points, reached):
            label = name + ("" if columns["tuned"] in ("accuracy", "held-out rows") else ", for the threat")
            colour, marker = CYCLE[len(looks) % len(CYCLE)], "osD^vPX"[len(looks) % 7]
            fill = {} if name.startswith("DNN") else {"markerfacecolor": "none"}
            look = looks.setdefault(label, {"color": colour, "marker": marker, "linestyle": "none", **fill})
            seconds = float(columns["train_seconds"])
            axes.plot(seconds, max(value, floor), label=label, clip_on=False, **look)
            if value < floor:
                axes.annotate(f"{value:.1f} % ↓", (seconds, floor), (4, 5), textcoords="offset points", fontsize=8)
        axes.set(title=title, xlabel="training [s]", ylabel="accuracy under PGD [%]", xscale="log")
        axes.set_ylim(floor, max(reached) + 1)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        tidy(axes)
    legend_beside(figure)
    figure.savefig(file, dpi=110)


def main(what: str, *arguments: str) -> None:
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if what == "rate":
        (dataset,) = arguments
        rates = stored.setdefault("rates", {})
        if dataset not in rates:
            rates[dataset] = rate(dataset)
        print(rates[dataset]["chosen"])
    if what == "collect":
        (folder,) = arguments
        stored["runs"] = collect(folder, stored.get("runs", []))
    if what == "seconds":
        seconds(*arguments, stored["runs"])
    if what in ("rate", "collect", "seconds"):
        STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    if what == "write":
        PAGE.write_text(render(PAGE.read_text()))
        draw(DOCS / "figures" / "networks.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
