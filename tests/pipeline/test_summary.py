"""Promises of a sweep's table: what differs is told apart, and a bracket has one threat."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pipeline.job import Outcome
from pipeline.summary import picture, placed, sweep_tables
from pipeline.tables import Entry, Table, name

MODELS = {
    "adv_svm_c": {"model.expansion._target_": "models.DoublyStochastic"},
    "adv_svm_c_exact": {"model.name": "adv_svm_c", "model.expansion._target_": "models.SupportVectors"},
    "natural": {"model.expansion._target_": "models.DoublyStochastic", "model.epsilon": "0.0"},
}
ATTACKS = {
    "none": {"attack._target_": "attacks.NoAttack"},
    "pgd": {"attack._target_": "attacks.PGD", "attack.epsilon": str(8 / 255), "attack.norm": "linf"},
    "zoo": {"attack._target_": "attacks.ZOO"},
}


def outcome(model: str = "adv_svm_c", attack: str = "pgd", seed: int = 0, metrics=None, **more: str) -> Outcome:
    own = {"dataset.name": "digits_1v7", "model.name": model, "attack.name": attack, "seed": str(seed)}
    own |= (
        {"evaluation.l2_cap": "0.5"}
        | MODELS[model]
        | ATTACKS[attack]
        | {k.replace("__", "."): v for k, v in more.items()}
    )
    labels = {"dataset": "digits_1v7", "model": own["model.name"], "attack": attack, "seed": seed}
    usual = {"clean_accuracy": 1.0, "robust_accuracy": 0.9, "accuracy_at_l2_cap": 0.8, "certified_accuracy": 0.7}
    usual |= {"undecided": 0.2, "n_attacked": 91, "n_test": 91}
    return Outcome("finished", labels, own, metrics=usual | (metrics or {}))


def only(results: list[Outcome]) -> Table:
    (table,) = sweep_tables(results).values()
    return table


def texts(table: Table) -> list[list[str]]:
    return [[entry.text for entry in row] for row in table.rows]


def test_models_with_one_name_are_two_rows() -> None:
    table = only([outcome("adv_svm_c"), outcome("adv_svm_c_exact", metrics={"clean_accuracy": 0.5})])
    assert [row[:2] for row in texts(table)] == [
        ["adv_svm_c doubly_stochastic", "100.00"],
        ["adv_svm_c support_vectors", "50.00"],
    ]


def test_the_threat_stands_in_the_header_and_both_ends_of_the_bracket_in_the_cell() -> None:
    table = only([outcome(), outcome(attack="zoo", metrics={"robust_accuracy": 0.0})])
    assert table.flat_columns[2:] == ["PGD L∞ 8/255\n[certified, attacked]", "ZOO ≤ L2 0.5\n[certified, attacked]"]
    assert texts(table) == [["adv_svm_c", "100.00", "[70.00, 90.00]", "[70.00, 80.00]"]]
    assert [entry.below for entry in table.rows[0][2:]] == ["20.00 undecided", "10.00 undecided"]
    assert "lies between the two" in table.notes[0]


def test_swept_radii_and_caps_are_columns_of_their_own() -> None:
    table = only([outcome(attack__epsilon=e) for e in ("0.1", "0.2")])
    assert [c.split("\n")[0] for c in table.columns[2:]] == ["PGD L∞ 0.1", "PGD L∞ 0.2"]
    table = only([outcome(attack="zoo", evaluation__l2_cap=cap) for cap in ("1.0", "2.0")])
    assert ["ZOO ≤ L2 1" in table.columns[2], "ZOO ≤ L2 2" in table.columns[3]] == [True, True]


def test_a_list_keeps_its_brackets() -> None:
    tables = sweep_tables([outcome(dataset__classes=classes) for classes in ("['1', '7']", "['3', '8']")])
    shown = "\n".join([*tables, *(table.markdown() for table in tables.values())]).replace("\\", "")
    assert "['1', '7']" in shown
    assert "['3', '8']" in shown


def test_a_certificate_in_another_threat_is_not_shown_as_a_bound() -> None:
    older = outcome()
    del older.metrics["undecided"]
    assert texts(only([older]))[0][2] == "[–, 90.00]"
    assert texts(only([older, outcome(seed=1)]))[0][2] == "[–, 90.00 ± 0.00]"


def test_seeds_share_a_cell_and_the_caption_counts_them() -> None:
    table = only([outcome(seed=s, metrics={"robust_accuracy": r}) for s, r in ((0, 0.8), (1, 1.0))])
    assert texts(table) == [["adv_svm_c", "100.00 ± 0.00", "[70.00 ± 0.00, 90.00 ± 14.14]"]]
    assert "mean ± std over 2 seeds" in table.title


def test_fewer_attacked_points_are_said() -> None:
    assert "PGD L∞ 8/255: 20 of 91 test points" in only([outcome(metrics={"n_attacked": 20})]).notes


SETTINGS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(sorted(MODELS)),
        "attack": st.sampled_from(["pgd", "zoo"]),
        "seed": st.integers(0, 2),
        "model__C": st.sampled_from(["1.0", "2.0"]),
        "attack__steps": st.sampled_from(["10", "40"]),
        "evaluation__max_attacked": st.sampled_from(["None", "20"]),
    }
)


@given(st.lists(SETTINGS, min_size=2, max_size=8))
@settings(max_examples=40, deadline=None)
def test_two_jobs_share_a_cell_exactly_when_only_their_seeds_differ(jobs: list[dict]) -> None:
    found = placed([outcome(**job) for job in jobs])
    without_seed = [{k: v for k, v in job.items() if k != "seed"} for job in jobs]
    for (first, a), (second, b) in product(zip(found, without_seed), repeat=2):
        assert ((first.row, first.column) == (second.row, second.column)) == (a == b)


NAMES = ("[red]x[/red]", "a|b", "<b>c</b>", "*d*", "[e](f)", "back\\slash")


def test_names_are_shown_as_they_are() -> None:
    table = Table("t", ["model", "[bold]x"], [[name(text), Entry("1.00")] for text in NAMES])
    screen = Console(width=120, file=io.StringIO())
    screen.print(table.rich())
    assert [text for text in (*NAMES, "[bold]x") if text not in screen.file.getvalue()] == []
    rows = table.markdown().splitlines()[2:]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)
    assert not re.search(r"(?<!\\)[<*]|(?<!\\)\]\(", "\n".join(rows))


def test_the_picture_has_a_size_and_needs_no_network() -> None:
    svg = picture("sweep", sweep_tables([outcome()]))
    head = svg[: svg.index(">")]
    assert float(re.search(r'width="([\d.]+)"', head)[1]) > 300
    assert float(re.search(r'height="([\d.]+)"', head)[1]) > 100
    assert "url(http" not in svg.replace('"', "")
    assert "@font-face" not in svg
    assert "certified" in svg


@pytest.mark.commands
@pytest.mark.timeout(300)
def test_a_reader_that_goes_away_costs_no_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.run", "-m", "attack=none,fgsm", "model=svc"]
    command += ["tune=none", "figures=off", "checks=off"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    from runs import tracked

    assert {run["status"] for run in tracked(tmp_path)} == {"FINISHED"}
    assert len(tracked(tmp_path, role="experiment")) == 2
    assert len(tracked(tmp_path, role="summary")) == 1


def test_a_lost_terminal_costs_no_run(tmp_path: Path) -> None:
    """What nohup is for: the terminal goes, and every write to it fails from then on."""
    command = [sys.executable, "-m", "pipeline.run", "-m", "attack=none,fgsm", "model=svc"]
    command += ["tune=none", "figures=off", "checks=off"]
    terminal, end = os.openpty()
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=end, stderr=end,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ) as process:  # fmt: skip
        os.close(end)
        assert os.read(terminal, 1)
        os.close(terminal)
        assert process.wait(240) == 0
    from runs import tracked

    assert {run["status"] for run in tracked(tmp_path)} == {"FINISHED"}
    assert len(tracked(tmp_path, role="experiment")) == 2


def test_a_run_that_two_jobs_asked_for_counts_once() -> None:
    twice = [outcome(), outcome()]
    for one in twice:
        one.run_id = "the same"
    assert texts(only(twice)) == [["adv_svm_c", "100.00", "[70.00, 90.00]"]]


def test_a_diverged_training_is_named_and_not_averaged() -> None:
    converged, diverged = outcome(seed=0, metrics={"diverged": 0.0}), outcome(seed=1, metrics={"diverged": 1.0})
    diverged.metrics["clean_accuracy"] = 0.5
    table = only([converged, diverged])
    assert table.rows[0][1].text == only([converged]).rows[0][1].text
    assert table.notes[-1] == "Not in the table, because the training diverged: adv_svm_c, seed 1."
