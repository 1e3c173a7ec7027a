"""Numbers and tables of docs/robust_tuning.md; scripts/robust_tuning_run.sh makes the runs.

python scripts/robust_tuning_page.py collect mlruns   # tracked runs → docs/robust_tuning.json
python scripts/robust_tuning_page.py write            # the tables of docs/robust_tuning.md
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any

from pages import fill, spread

from pipeline.labels import model_name

DOCS = Path(__file__).parents[1] / "docs"
STORED = DOCS / "robust_tuning.json"
PAGE = DOCS / "robust_tuning.md"
LINF, L2 = "L∞ 8/255", "L2 1.5"
SECTIONS = {
    ("cifar10_automobile_truck", LINF): "CIFAR-10 automobile vs. truck, L∞ 8/255",
    ("cifar10_dog_horse", LINF): "CIFAR-10 dog vs. horse, L∞ 8/255",
    ("mnist_1v7", LINF): "MNIST 1 vs 7, L∞ 8/255",
    ("mnist_8v9", LINF): "MNIST 8 vs 9, L∞ 8/255",
    ("mnist_1v7", L2): "MNIST 1 vs 7, L2 1.5",
}
MODELS = ("natural", "adv_linear_svm", "adv_svm_d", "adv_svm_c", "adv_svm_examples", "svc")
AXES = {"C": "C", "step": "step", "kernel.width_scale": "width", "width_scale": "width", "C_f": "C_f"}
FRONTS = (
    ("cifar10_automobile_truck", "natural"),
    ("cifar10_automobile_truck", "adv_svm_c"),
    ("cifar10_automobile_truck", "svc"),
    ("cifar10_dog_horse", "natural"),
    ("cifar10_dog_horse", "adv_svm_c"),
    ("cifar10_dog_horse", "svc"),
)
MEASURED = ("clean", "certified", "attacked")
HEAD = "| model | tuned by, chosen | seeds | clean [%] | PGD [certified, attacked] [%] |"


def collect(folder: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`runs` with those of a store; seeds of the same setting join, another setting replaces what was chosen before."""
    from pipeline.report.tracked import Reader
    from pipeline.tracking.store import open_to_read

    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    tracking = SimpleNamespace(folder=folder, uri=None, experiment="advsvm")
    for run in sorted(Reader(open_to_read(tracking)).runs(), key=lambda run: run.seed):
        threat = LINF if run.params["threat.norm"] == "linf" else L2
        section, by = SECTIONS[run.dataset, threat], run.params["tune.metric"].replace("_", " ")
        by += ", one_se" if run.params["tune.select"] == "one_se" else ""
        chosen = {
            short: float(run.params[f"model.{name}"]) for name, short in AXES.items() if f"model.{name}" in run.params
        }
        model = run.model.removesuffix("_exact")
        entry = found.setdefault(
            (section, model, by),
            {"dataset": run.dataset, "section": section, "model": model, "by": by, "seeds": [], "chosen": chosen}
            | {name: [] for name in MEASURED},
        )
        if run.seed in entry["seeds"] or entry["chosen"] != chosen:
            raise SystemExit(f"{section}, {model}, {by}, seed {run.seed}: twice, or settings that differ")
        entry["seeds"].append(run.seed)
        for name in MEASURED:
            entry[name].append(round(100 * run.metrics[f"{name}_accuracy"], 2))
    kept = []
    for run in runs:
        now = found.get((run["section"], run["model"], run["by"]))
        if now is None:
            kept.append(run)
        elif now["chosen"] == run["chosen"]:
            join(now, run)
    order = list(SECTIONS.values())
    return sorted(
        [*kept, *found.values()], key=lambda r: (order.index(r["section"]), MODELS.index(r["model"]), r["by"])
    )


def join(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Add the seeds that only `before` has, in order."""
    rows = {
        seed: [of[name][place] for name in MEASURED] for of in (before, now) for place, seed in enumerate(of["seeds"])
    }
    now["seeds"] = sorted(rows)
    for place, name in enumerate(MEASURED):
        now[name] = [rows[seed][place] for seed in now["seeds"]]


def collect_fronts(folder: str, fronts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fronts that a store's grids found for the threat, in place of the older ones of the same model and pair."""
    from pipeline.report.tracked import Reader
    from pipeline.tracking.store import open_to_read

    found = {(front["dataset"], front["model"]): front for front in fronts}
    tracking = SimpleNamespace(folder=folder, uri=None, experiment="advsvm")
    for run in Reader(open_to_read(tracking)).runs():
        key = run.dataset, run.model.removesuffix("_exact")
        if key not in FRONTS or run.params["tune.metric"] != "robust_accuracy":
            continue
        file = Path(folder, "artifacts", run.id, "artifacts", "tuning", "front.csv")
        points = [
            [{short: float(line[name]) for name, short in AXES.items() if name in line}]
            + [round(100 * float(line[f"mean_{kind}"]), 2) for kind in ("accuracy", "robust_accuracy")]
            for line in csv.DictReader(file.read_text().splitlines())
        ]
        # Seeds that were given the settings of an earlier grid have nothing to choose from.
        if len(points) > 1:
            found[key] = {"dataset": run.dataset, "model": key[1], "points": points}
    return [found[key] for key in FRONTS if key in found]


def front(of: dict[str, Any]) -> str:
    """One front in Markdown."""
    lines = ["| setting | held-out, clean [%] | held-out, under descent [%] |", "|---|---|---|"]
    for chosen, clean, attacked in of["points"]:
        settings = ", ".join(f"{name} = {value:g}" for name, value in chosen.items())
        lines.append(f"| {settings} | {clean:.1f} | {attacked:.1f} |")
    return "\n".join(lines)


def row(run: dict[str, Any]) -> str:
    """One model, tuned in one way, in Markdown."""
    chosen = ", ".join(f"{name} = {value:g}" for name, value in run["chosen"].items())
    bracket = f"[{spread(run['certified'])}, {spread(run['attacked'])}]"
    by = f"{run['by']}: {chosen}" if chosen else run["by"]
    return f"| {model_name(run['model'])} | {by} | {len(run['clean'])} | {spread(run['clean'])} | {bracket} |"


def published_row(results: dict[str, Any], dataset: str, model: str) -> str:
    """The same model with the paper's grid, as docs/results.json has it."""
    (section,) = (s for s in results["sections"] if s["dataset"] == dataset and s["label"].startswith("exact"))
    cells = {c["attack"]: c for c in section["cells"] if c["model"] == model}
    clean, attacked = ("{:.2f} ± {:.2f}".format(*cells[attack]["accuracy"]) for attack in ("none", "pgd"))
    return f"| {model_name(model)} | accuracy (results.md) | {cells['none']['seeds']} | {clean} | {attacked} |"


def table(section: str) -> str:
    """All rows of a section, those of results.md first where the threat is the one measured there."""
    stored, results = json.loads(STORED.read_text()), json.loads((DOCS / "results.json").read_text())
    (dataset, threat) = next(key for key, title in SECTIONS.items() if title == section)
    lines = [HEAD, "|---|---|---|---|---|"]
    for model in MODELS:
        if threat == LINF and model in ("natural", "adv_linear_svm", "adv_svm_d", "adv_svm_c"):
            lines.append(published_row(results, dataset, model))
        lines += [row(run) for run in stored["runs"] if (run["section"], run["model"]) == (section, model)]
    return "\n".join(lines)


def comparisons(stored: dict[str, Any], first: str, second: str, by: str) -> Iterator[str]:
    """`first` minus `second` over the seeds that both have, a line per section."""
    from scipy.stats import ttest_rel

    for section in SECTIONS.values():
        pair = [
            r
            for name in (first, second)
            for r in stored["runs"]
            if (r["section"], r["model"], r["by"]) == (section, name, by)
        ]
        if len(pair) != 2:
            continue
        seeds = sorted(set(pair[0]["seeds"]) & set(pair[1]["seeds"]))
        values = {
            kind: [[run[kind][run["seeds"].index(seed)] for seed in seeds] for run in pair]
            for kind in ("clean", "attacked")
        }
        parts = []
        for kind, words in (("attacked", "under PGD"), ("clean", "clean")):
            ours, theirs = values[kind]
            differences = [a - b for a, b in zip(ours, theirs)]
            # The t-test has nothing to say of one seed, or where all differ alike.
            decided = len(seeds) > 1 and stdev(differences) > 1e-9
            p = f" (p = {ttest_rel(ours, theirs).pvalue:.2g})" if decided else ""
            parts.append(f"{mean(differences):+.2f} points {words}{p}")
        count = "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds, paired"
        yield f"- {section}, {count}: {', '.join(parts)}."


def render(page: str) -> str:
    """The page with its tables and comparisons made anew."""
    stored = json.loads(STORED.read_text())
    parts = {f"table {title}": table(title) for title in SECTIONS.values()}
    parts |= {f"front {of['dataset']} {of['model']}": front(of) for of in stored["fronts"]}
    for model in ("adv_svm_d", "adv_svm_c"):
        parts[f"{model} minus natural"] = "\n".join(comparisons(stored, model, "natural", "robust accuracy"))
    return fill(page, parts)


def main(what: str, *arguments: str) -> None:
    if what == "collect":
        stored = json.loads(STORED.read_text())
        stored["runs"] = collect(*arguments, stored["runs"])
        stored["fronts"] = collect_fronts(*arguments, stored["fronts"])
        STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    if what == "write":
        PAGE.write_text(render(PAGE.read_text()))


if __name__ == "__main__":
    main(*sys.argv[1:])
