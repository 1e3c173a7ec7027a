"""docs/robust_tuning.md says what docs/robust_tuning.json and docs/results.json hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean, stdev

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "robust_tuning.md").read_text()
STORED = json.loads((DOCS / "robust_tuning.json").read_text())
RESULTS = json.loads((DOCS / "results.json").read_text())
NAMES = {
    "natural": "Natural",
    "adv_svm_d": "adv-SVM (D)",
    "adv_svm_c": "adv-SVM (C)",
    "adv_linear_svm": "adv-linear-SVM",
}
RUN_NAMES = NAMES | {"adv_svm_examples": "adv-SVM (examples)"}


def spread(values: list[float]) -> str:
    """98.71 of one seed, 98.71 ± 0.20 of several."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def tuned_row(run: dict) -> str:
    chosen = ", ".join(f"{name} = {value:g}" for name, value in run["chosen"].items())
    bracket = f"[{spread(run['certified'])}, {spread(run['attacked'])}]"
    name, clean = RUN_NAMES[run["model"]], run["clean"]
    return f"| {name} | {run['by']}: {chosen} | {len(clean)} | {spread(clean)} | {bracket} |"


def published_row(dataset: str, model: str) -> str:
    def cell(attack: str) -> list[float]:
        (section,) = (s for s in RESULTS["sections"] if s["dataset"] == dataset and s["label"].startswith("exact"))
        (found,) = (c for c in section["cells"] if (c["model"], c["attack"]) == (model, attack))
        return [*found["accuracy"], found["seeds"]]

    (clean, deviation, seeds), (attacked, about, _) = cell("none"), cell("pgd")
    clean_text, attacked_text = f"{clean:.2f} ± {deviation:.2f}", f"{attacked:.2f} ± {about:.2f}"
    return f"| {NAMES[model]} | accuracy (results.md) | {seeds} | {clean_text} | {attacked_text} |"


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("run", STORED["runs"], ids=lambda r: f"{r['dataset']}-{r['model']}-{r['by']}")
def test_a_row_is_the_stored_run(run: dict) -> None:
    assert tuned_row(run) in section(run["section"]).splitlines()


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("dataset", ["cifar10_automobile_truck", "cifar10_dog_horse"])
def test_a_row_tuned_by_accuracy_is_that_of_the_results(dataset: str, model: str) -> None:
    assert published_row(dataset, model) in PAGE.splitlines()


def test_no_row_of_a_measured_table_is_without_a_stored_run() -> None:
    told = {tuned_row(run) for run in STORED["runs"]}
    told |= {published_row(d, m) for d in ("cifar10_automobile_truck", "cifar10_dog_horse") for m in NAMES}
    rows = [
        line for line in PAGE.splitlines() if re.match(rf"\| ({'|'.join(map(re.escape, RUN_NAMES.values()))}) \|", line)
    ]
    assert rows
    assert set(rows) <= told


@pytest.mark.parametrize("front", STORED["fronts"], ids=lambda f: f["model"])
def test_a_front_is_the_stored_one(front: dict) -> None:
    for chosen, clean, attacked in front["points"]:
        settings = ", ".join(f"{name} = {value:g}" for name, value in chosen.items())
        assert f"| {settings} | {clean:.1f} | {attacked:.1f} |" in PAGE.splitlines()


@pytest.mark.parametrize("quote", STORED["quotes"], ids=lambda q: q["text"][:40])
def test_a_quoted_number_is_the_stored_one(quote: dict) -> None:
    page = " ".join((DOCS / quote.get("page", "robust_tuning.md")).read_text().split())
    assert quote["text"].format(*quote["numbers"]) in page
