"""Promises of ``python -m pipeline.report``: what its files hold."""

from __future__ import annotations

import csv
import platform
import re
from itertools import product
from pathlib import Path

import pytest
from tracked_store import add_run, open_empty

from pipeline.report.__main__ import main
from pipeline.report.paper import SOURCE_ERRORS, published
from pipeline.tracking.store import TrackingStore


@pytest.fixture(scope="module")
def page(report: Path) -> str:
    return (report / "index.html").read_text()


def test_page_fetches_nothing(page: str) -> None:
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    sources = re.findall(r'(?:src|srcset|href)="([^"]{0,30})', page)
    assert len(sources) > 20
    assert [s for s in sources if not s.startswith(("data:image/", "data:,", "#"))] == []


def test_a_dataset_without_a_paper_gets_brackets_figures_and_no_claims(tmp_path: Path) -> None:
    store = open_empty(tmp_path / "mlruns")
    for model, attack in product(("natural", "adv_svm_c"), ("pgd", "zoo")):
        add_run(store, "dataset=digits_1v7", f"model={model}", f"attack={attack}", undecided=0.1)
    add_run(store, "dataset=digits_1v7", "model=adv_svm_c", "attack=pgd", "attack.epsilon=0.1", undecided=0.1)
    main([f"tracking.folder={store.folder}", f"output={tmp_path}", "name=own", "log=false"])
    page = (tmp_path / "own" / "index.html").read_text()
    for column in ("PGD L∞ 0.0625, 10 steps", "PGD L∞ 0.1, 10 steps", "ZOO ≤ L2 0.5"):
        assert column in page
    assert "How to read it" in page
    assert "claims" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    assert "Wu, Hu" not in page
    names = " ".join(path.name for path in (tmp_path / "own" / "figures").iterdir())
    assert all(kind in names for kind in ("brackets", "over_iterations", "grid"))


def test_paper_numbers_stand_beside_ours(page: str, report: Path) -> None:
    paper = published()["mnist_1v7", "adv_svm_c", "pgd"]
    assert f"{paper.mean:.2f} ± {paper.std:.2f}" in page
    rows = list(csv.DictReader((report / "table.csv").open()))
    pgd = [r for r in rows if (r["model"], r["attack"], r["seeds"]) == ("adv_svm_c", "pgd", "0 1")]
    assert len(pgd) == 1
    assert float(pgd[0]["paper_mean"]) == paper.mean
    assert 0 < float(pgd[0]["robust_accuracy_mean"]) < 100
    assert pgd[0]["failed_checks"] == "12_bounds"


def test_failed_check_is_printed_next_to_its_number(page: str, report: Path) -> None:
    cell = re.search(
        r"<td[^>]*>\[[\d.]+ ± [\d.]+, [\d.]+ ± [\d.]+\]"
        r"(?:<span class=\"below\">[^<]*</span>)?<span class=\"failed\">[^<]*",
        page,
    )
    assert cell is not None
    assert "12_bounds failed (seed 1)" in cell[0]
    assert "12_bounds says why" in page
    assert "check 12_bounds failed" in (report / "table.md").read_text()


def test_every_attack_has_one_bracket_in_its_own_threat(page: str) -> None:
    for column in ("FGSM L∞ 8/255", "PGD L∞ 8/255", "C&amp;W ≤ L2 0.5", "ZOO ≤ L2 0.5"):
        assert f'class="group">{column}</th>' in page
    assert "no bound" not in page
    assert "The paper states no budget" in page
    # The invented C&W breaks every point; what is shown is the accuracy within the cap, above the certificate.
    low, high = map(float, re.search(r"\[(50\.00) ± 0\.00, ([\d.]+) ±", page).groups())
    assert low < high


def test_variants_are_told_apart(report: Path) -> None:
    rows = list(csv.DictReader((report / "table.csv").open()))
    exact = [r for r in rows if "exact kernel" in r["setup"] and (r["model"], r["attack"]) == ("adv_svm_c", "pgd")]
    assert [float(r["robust_accuracy_mean"]) for r in exact] == [25.0]
    other = [r for r in rows if r["attack_label"] == "PGD L∞ 0.1, 10 steps"]
    assert [float(r["robust_accuracy_mean"]) for r in other] == [12.5]
    assert other[0]["paper_mean"] == ""


def test_every_kind_of_figure_is_drawn_as_png_and_svg(report: Path) -> None:
    names = [path.name for path in (report / "figures").iterdir()]
    kinds = ("against_paper", "over_steps", "over_epsilon", "over_iterations", "brackets", "gallery", "grid")
    for kind in (*kinds, "certified_tuning"):
        assert any(name.endswith(f"{kind}.png") for name in names), kind
        assert any(name.endswith(f"{kind}.svg") for name in names), kind


def test_verdicts_and_the_test_they_rest_on_are_stated(page: str) -> None:
    assert "Holm" in page
    # The invented linear model needs 40 s, the others 1 s.
    claim = r"adv-linear-SVM takes longer to train than adv-SVM \(C\)</th>"
    assert re.search(claim + r"\s*<td><span class=\"badge good\">holds", page)
    assert "one seed: no verdict" in page


def test_errors_of_the_sources_are_said(page: str) -> None:
    assert "PGD 98.81 above clean 98.39" in page
    assert len(SOURCE_ERRORS) >= 3


def test_latex_table_is_balanced(report: Path) -> None:
    text = (report / "table.tex").read_text()
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") > 0
    assert r"$\pm$" in text
    assert not re.search(r"(?<!\\)[&%_](?=[a-z])", text.replace(" & ", " "))


def test_docs_hold_reading_date_machine_and_figures(report: Path) -> None:
    docs = report.parent / "docs"
    text = (docs / "results.md").read_text()
    assert "A hand-written sentence." in text
    assert re.search(r"Made \d{4}-\d\d-\d\d", text)
    assert "cores" in text
    assert "scikit-learn" in text
    assert platform.node() not in text
    for figure in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (docs / figure).is_file()


def test_report_is_kept_in_mlflow(report: Path, invented: TrackingStore) -> None:
    found = invented.client.search_runs([invented.experiment_id], "tags.role = 'report'")
    assert [run.info.status for run in found] == ["FINISHED"]
    names = {item.path for item in invented.client.list_artifacts(found[0].info.run_id)}
    assert {"index.html", "table.md", "table.csv", "table.tex", "figures"} <= names


def test_no_runs_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([f"tracking.folder={tmp_path / 'nothing'}"]) == 1
    message = capsys.readouterr().err.strip()
    assert "python -m pipeline.run -m experiment=paper_tables" in message
    assert "\n" not in message
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["dataset=mnist_9v9"], "there are runs of mnist_1v7"),
        (["sweep=none-such"], "sweep none-such"),
        (["name=../up"], "name: "),
        (["sweep=a'b"], "sweep: "),
    ],
)
def test_bad_arguments_are_named(
    invented: TrackingStore, capsys: pytest.CaptureFixture, arguments: list[str], word: str
) -> None:
    assert main([f"tracking.folder={invented.folder}", *arguments]) == 1
    assert word in capsys.readouterr().err
