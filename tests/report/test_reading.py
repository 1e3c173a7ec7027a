"""Nothing in the reading contradicts the stored results, and the pages are what the stored results give."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import pytest

from pipeline.report.claims import FAILS, HOLDS, NOISE, PARTLY
from pipeline.report.docs import claims_in, render

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = json.loads((DOCS / "results.json").read_text())
ROBUST = json.loads((DOCS / "robust_tuning.json").read_text())
FOUND = " ".join((DOCS / "reading.md").read_text().split("## What was found")[1].split())
EXACT, RANDOM = "exact kernel", "doubly stochastic"
M17, M89, AT, DH, M8M = "mnist_1v7", "mnist_8v9", "cifar10_automobile_truck", "cifar10_dog_horse", "mnist8m_0v4"
KERNEL = ("natural", "adv_svm_d", "adv_svm_c")


def section(dataset: str, setup: str) -> dict:
    (found,) = (s for s in RESULTS["sections"] if s["dataset"] == dataset and s["label"].startswith(setup))
    return found


def cell(dataset: str, setup: str, model: str, attack: str) -> dict:
    (found,) = (c for c in section(dataset, setup)["cells"] if (c["model"], c["attack"]) == (model, attack))
    return found


def ours(dataset: str, setup: str, model: str, attack: str = "none") -> float:
    return cell(dataset, setup, model, attack)["accuracy"][0]


def paper(dataset: str, model: str, attack: str = "none") -> float:
    return cell(dataset, EXACT, model, attack)["paper"][0]


def span(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def all_of(setup: str, attacks: tuple[str, ...], *datasets: str, source: Callable = ours) -> tuple[float, float]:
    return span([source(d, setup, m, a) for d in datasets for m in KERNEL for a in attacks])


def of_paper(dataset: str, setup: str, model: str, attack: str) -> float:
    return paper(dataset, model, attack)


def claim(dataset: str, setup: str, id: str):
    return next(c for c in claims_in(section(dataset, setup)) if c.id == id)


def differences(id: str, setup: str, *datasets: str, wanted: Callable = lambda c: c.mean != 0) -> tuple[float, float]:
    told = [c for d in datasets for c in claim(d, setup, id).comparisons if c.measured and wanted(c)]
    return span([c.mean for c in told])


def difference(dataset: str, setup: str, id: str, label: str) -> float:
    (found,) = (c for c in claim(dataset, setup, id).comparisons if c.label == label)
    return found.mean


def tuned(radius: float, epsilon: float, by: str, kind: str) -> list[float]:
    tuning = {"accuracy": "tuned by accuracy", "certified": "tuned by certified accuracy at L2 0.878"}[by]
    key = (radius, pytest.approx(epsilon), tuning)
    (found,) = (p[kind] for p in RESULTS["tuning"][M17] if (p["radius"], p["epsilon"], p["tuning"]) == key)
    return found


def seconds(dataset: str) -> float:
    return next(s["training"] for s in section(dataset, EXACT)["seconds"] if s["row"] == "adv-linear-SVM")


def robust(model: str, kind: str, dataset: str = AT, by: str = "robust accuracy") -> list[float]:
    """By seed, tuned by robust accuracy at L∞ 8/255 or in another way."""
    wanted = (dataset, model, by)
    (found,) = (r[kind] for r in ROBUST["runs"] if (r["dataset"], r["model"], r["by"]) == wanted)
    return found


def ahead_of_natural(model: str, dataset: str) -> float:
    """Points under PGD, both tuned by robust accuracy."""
    return mean(a - b for a, b in zip(robust(model, "attacked", dataset), robust("natural", "attacked", dataset)))


def on_kernel(c) -> bool:
    return "linear" not in c.label


E = 8 / 255
PAIR = ("natural", "adv_svm_d")
RATIOS = [
    c.ratio
    for d in (M17, M89, AT, DH)
    for s in (EXACT, RANDOM)
    for c in claim(d, s, "linear_slow").comparisons
    if c.verdict == HOLDS
]
# Every sentence with numbers: the text with gaps, and what the stored results put into them.
QUOTES: list[tuple[str, list[float]]] = [
    (
        "ends on the same plateau there ({:.1f} at {:.1f} and {:.1f} at {:.1f} %); on 1 vs 7 it gains half a point "
        "({:.2f} instead of {:.2f} %)",
        [robust("svc", kind, d)[0] for d in (AT, DH) for kind in ("attacked", "clean")]
        + [robust("svc", "attacked", M17, by)[0] for by in ("robust accuracy", "accuracy")],
    ),
    (
        "MNIST 1 vs 7 {:.1f} and {:.1f} % ({:.2f}, {:.2f}), 8 vs 9 {:.1f} and {:.1f} ({:.2f}, {:.2f}), "
        "automobile / truck "
        "{:.1f} and {:.1f} ({:.2f}, {:.2f}), dog / horse {:.1f} and {:.1f} ({:.2f}, {:.2f})",
        [f(d, m) for d in (M17, M89, AT, DH) for f in (lambda d, m: ours(d, EXACT, m), paper) for m in PAIR],
    ),
    ("on MNIST 1 vs 7 ({:.1f} to {:.1f} %)", [*all_of(RANDOM, ("none",), M17)]),
    ("less on 8 vs 9 ({:.1f} to {:.1f})", [*all_of(RANDOM, ("none",), M89)]),
    (
        "not on CIFAR-10 ({:.1f} to {:.1f} and {:.1f} to {:.1f} %)",
        [*all_of(RANDOM, ("none",), AT), *all_of(RANDOM, ("none",), DH)],
    ),
    (
        "({:.1f} ± {:.1f} on 1 vs 7, {:.1f} and {:.1f} on CIFAR-10)",
        [*cell(M17, EXACT, "adv_svm_c", "none")["accuracy"], *(ours(d, EXACT, "adv_svm_c") for d in (AT, DH))],
    ),
    (
        "keeps {:.1f} to {:.1f} % under PGD on 1 vs 7 with the exact kernel and {:.1f} to {:.1f} % with doubly "
        "stochastic "
        "features, {:.1f} to {:.1f} against {:.1f} to {:.1f} on 8 vs 9, and on CIFAR-10 {:.1f} to {:.1f} % "
        "against **none**",
        [x for d in (M17, M89) for s in (EXACT, RANDOM) for x in all_of(s, ("pgd",), d)]
        + [*all_of(EXACT, ("pgd",), AT, DH)],
    ),
    (
        "FGSM and PGD leave {:.1f} to {:.1f} % of both pairs, where the paper reports {:.1f} to {:.1f} %",
        [*all_of(RANDOM, ("fgsm", "pgd"), AT, DH), *all_of(RANDOM, ("fgsm", "pgd"), AT, DH, source=of_paper)],
    ),
    (
        "leaves {:.1f} to {:.1f} against {:.1f} to {:.1f} % on 1 vs 7, and {:.1f} to {:.1f} against {:.1f} to "
        "{:.1f} % on CIFAR-10",
        [x for where in ((M17,), (AT, DH)) for s in (EXACT, RANDOM) for x in all_of(s, ("cw",), *where)],
    ),
    (
        "C is behind D under PGD by {:.2f} and {:.2f} points",
        [-difference(d, EXACT, "c_over_d", "under PGD") for d in (M17, M89)],
    ),
    (
        "(PGD: {:.1f}, {:.1f}, {:.1f} and {:.1f}, {:.1f}, {:.1f} %), at the price of {:.1f} and {:.1f} points of clean",
        [ours(d, EXACT, m, "pgd") for d in (AT, DH) for m in reversed(KERNEL)]
        + [difference(d, EXACT, "natural_clean", "over adv-SVM (C)") for d in (AT, DH)],
    ),
    (
        "(PGD: {:.2f} and {:.2f} points); C beats",
        [difference(d, RANDOM, "d_over_natural", "under PGD") for d in (M17, M89)],
    ),
    (
        "({:.2f} and {:.2f} points ahead under C&W and ZOO on 1 vs 7, {:.2f} behind under PGD on 8 vs 9)",
        [difference(M17, RANDOM, "c_over_d", f"under {a}") for a in ("C&W", "ZOO")]
        + [-difference(M89, RANDOM, "c_over_d", "under PGD")],
    ),
    (
        "exact kernel: {:.1f} to {:.1f} % under PGD, where it has {:.1f} to {:.1f}.",
        [*all_of(EXACT, ("pgd",), AT, DH), *all_of(EXACT, ("pgd",), AT, DH, source=of_paper)],
    ),
    (
        "by {:.2f} to {:.2f} points on CIFAR-10 with the exact kernel, {:.2f} to {:.2f} on MNIST with random",
        [*differences("pgd_over_fgsm", EXACT, AT, DH), *differences("pgd_over_fgsm", RANDOM, M17, M89)],
    ),
    ("stronger than PGD by {:.2f} to {:.2f} points", [*differences("strongest", RANDOM, M17, M89)]),
    (
        "the kernel machines {:.2f} to {:.2f} points, mostly within noise",
        [*differences("strongest", EXACT, M17, M89, AT, DH, wanted=on_kernel)],
    ),
    ("exact kernel ({:.2f} to {:.2f} points), not with random", [*differences("linear_weak", EXACT, M17, M89, AT, DH)]),
    (
        "(PGD {:.1f} and {:.1f} %, at {:.1f} and {:.1f} % clean; kernel machines at most {:.1f} and {:.1f})",
        [ours(d, EXACT, "adv_linear_svm", a) for a in ("pgd", "none") for d in (AT, DH)]
        + [all_of(EXACT, ("pgd",), d)[1] for d in (AT, DH)],
    ),
    ("{:.1f} to {:.0f} times in all tables but one", [*span(RATIOS)]),
    ("{:.1f} and {:.1f} s on MNIST, {:.1f} and {:.1f} s on CIFAR-10", [seconds(d) for d in (M17, M89, AT, DH)]),
    (
        "leaves {:.1f} ± {:.1f} instead of {:.1f} ± {:.1f} % at ε = 0 and {:.1f} ± {:.1f} instead of {:.1f} ± "
        "{:.1f} % at ε = 8/255",
        [x for e in (0.0, E) for by in ("certified", "accuracy") for x in tuned(1.5, e, by, "attacked")],
    ),
    (
        "the price is {:.1f} and {:.1f} points of clean accuracy",
        [tuned(1.5, e, "accuracy", "clean")[0] - tuned(1.5, e, "certified", "clean")[0] for e in (0.0, E)],
    ),
    (
        "({:.1f} instead of {:.1f}, {:.1f} instead of {:.1f}) and certifies more ({:.1f} instead of {:.1f}, "
        "{:.1f} instead of {:.1f})",
        [
            tuned(0.878, e, by, kind)[0]
            for kind in ("attacked", "certified")
            for e in (0.0, E)
            for by in ("certified", "accuracy")
        ],
    ),
    (
        "tuned by accuracy gives {:.1f} % at 1.5 and {:.1f} % clean",
        [tuned(1.5, 0.125, "accuracy", kind)[0] for kind in ("attacked", "clean")],
    ),
    *(
        (
            start + " {:.1f} instead of {:.1f} % under PGD, at {:.1f} instead of {:.1f} % clean",
            [
                number
                for kind, attack in (("attacked", "pgd"), ("clean", "none"))
                for number in (mean(robust("natural", kind, dataset)), ours(dataset, EXACT, "natural", attack))
            ],
        )
        for dataset, start in ((AT, "Natural keeps"), (DH, "on dog / horse"))
    ),
    (
        "(D minus Natural {:+.2f} points, C minus Natural {:+.2f})",
        [ahead_of_natural(model, AT) for model in ("adv_svm_d", "adv_svm_c")],
    ),
    (
        "D is {:.2f} and C {:.2f} points ahead of Natural",
        [ahead_of_natural(model, M89) for model in ("adv_svm_d", "adv_svm_c")],
    ),
    (
        "{:.2f} % clean, {:.2f} % under PGD, {:.2f} % certified at L2 0.5",
        [ours(M8M, EXACT, "adv_svm_d", a) for a in ("none", "pgd", "certificate")],
    ),
]
# Settings, not results.
SETTINGS = {"0.878", "1.5", "0.125", "0.5"}


@pytest.mark.parametrize("quote", QUOTES, ids=lambda q: q[0][:50])
def test_a_quoted_number_is_the_stored_one(quote: tuple[str, list[float]]) -> None:
    text, numbers = quote
    assert text.format(*numbers) in FOUND


def test_every_decimal_of_the_reading_is_checked() -> None:
    left = FOUND
    for text, numbers in QUOTES:
        left = left.replace(text.format(*numbers), "")
    assert set(re.findall(r"\d+\.\d+", left)) <= SETTINGS


@pytest.mark.parametrize(
    ("id", "setup", "datasets", "verdicts"),
    [
        ("d_over_natural", EXACT, (M17, M89), {NOISE}),
        ("c_over_d", EXACT, (M17, M89), {NOISE}),
        ("c_over_natural", RANDOM, (M17,), {NOISE}),
        ("c_over_natural", RANDOM, (M89,), {HOLDS}),
        ("d_over_natural", RANDOM, (AT, DH), {FAILS}),
        ("pgd_over_fgsm", EXACT, (AT, DH), {HOLDS}),
        ("pgd_over_fgsm", RANDOM, (M17, M89, AT, DH), {HOLDS}),
        ("pgd_over_fgsm", EXACT, (M17, M89), {NOISE}),
        ("strongest", RANDOM, (M17, M89), {HOLDS}),
        ("linear_weak", EXACT, (M17, M89, AT, DH), {HOLDS}),
        ("linear_weak", RANDOM, (M17, M89, AT, DH), {NOISE, FAILS}),
        ("linear_slow", EXACT, (M17, M89, AT, DH), {HOLDS}),
        ("linear_slow", RANDOM, (M17,), {FAILS}),
        ("c_over_d", EXACT, (AT, DH), {PARTLY}),
    ],
)
def test_prose_and_verdicts_agree(id: str, setup: str, datasets: tuple[str, ...], verdicts: set[str]) -> None:
    assert {claim(dataset, setup, id).verdict for dataset in datasets} == verdicts


def test_cifar_order_holds_under_fgsm_and_pgd_and_is_open_under_the_others() -> None:
    for dataset in (AT, DH):
        for id in ("c_over_d", "d_over_natural"):
            found = {c.label.removeprefix("under "): c.verdict for c in claim(dataset, EXACT, id).comparisons}
            assert found == {"FGSM": HOLDS, "PGD": HOLDS, "C&W": NOISE, "ZOO": NOISE}


def test_the_pages_are_what_the_stored_results_give(tmp_path: Path) -> None:
    for file in ("results.json", "reading.md"):
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / file).write_text((DOCS / file).read_text())
    render(tmp_path / "docs" / "results.md")
    written = sorted((tmp_path / "docs").rglob("*.md"))
    assert len(written) == 7
    for page in written:
        committed = DOCS / page.relative_to(tmp_path / "docs")
        assert committed.read_text() == page.read_text(), "python -m pipeline.report stored=true writes it"


def test_links_and_figures_of_the_pages_are_there() -> None:
    for page in (DOCS / "results.md", *(DOCS / "results").glob("*.md")):
        text = page.read_text()
        anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.M)}
        for address in re.findall(r"\]\(([^)]+)\)", text):
            if address.startswith("#"):
                assert address[1:] in anchors, (page.name, address)
            else:
                assert (page.parent / address).is_file(), (page.name, address)


def test_no_table_is_wider_than_a_page() -> None:
    """A page at 1280 px leaves about 980 px: at 16 px letters of 7.5 px and 27 px of padding per column."""
    for page in (DOCS / "results.md", *(DOCS / "results").glob("*.md")):
        for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), flags=re.M):
            rows = [line.strip("|\n").split("|") for line in table.strip().splitlines()]
            body = [rows[0], *rows[2:]]
            # Heads and words wrap at blanks; numbers with their deviation do not.
            widths = [
                max(len(w) for r in body for w in re.split(r" (?![±\d])", r[k].strip())) for k in range(len(rows[0]))
            ]
            assert sum(7.5 * w + 27 for w in widths) <= 980, (page.name, rows[0])
