"""What a user sees of the checks: tags, checks.json, the line on the terminal, and strict=true."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

import pipeline
from pipeline.checks.registry import all_checks

HERE = Path(__file__).parent
QUICK = ("tune=none", "model=adv_svm_c_exact", "model.C=1", "model.step=0.0625")


def test_a_failed_check_is_a_line_a_tag_and_with_strict_a_failed_run(run_cli, tmp_path):
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    idle = ("attack._target_=oracles_broken.IdlePGD", "attack.epsilon=0.2", "strict=true")
    done = run_cli(*QUICK, *idle, PYTHONPATH=path)
    assert done.returncode == 1
    assert "15_perturbation failed: pgd changed no point at all" in done.stdout + done.stderr
    assert "strict=true" in done.stderr
    with sqlite3.connect(tmp_path / "mlruns" / "mlflow.db") as store:
        tags = dict(store.execute("select key, value from tags"))
        metrics = dict(store.execute("select key, value from latest_metrics"))
        (status,) = store.execute("select status from runs").fetchone()
    assert status == "FAILED"
    assert tags["check.15_perturbation"] == "fail"
    assert tags["check.01_gradient"] == "pass"
    assert tags["check.18_refit"] == "skipped"
    assert metrics["checks_failed"] >= 1
    assert metrics["checks_seconds"] > 0
    assert {"bracket_gap_at_l2_cap", "certified_accuracy"} <= metrics.keys()
    (file,) = (tmp_path / "mlruns").rglob("checks.json")
    checks = {check["id"]: check for check in json.loads(file.read_text())}
    assert checks.keys() == {entry.id for entry in all_checks()}
    assert checks["15_perturbation"]["evidence"]["pgd_unchanged"] > 0


STRANGER = '''
"""Are the points of both classes attacked alike?"""

from pipeline.checks.registry import failed, of_attack, passed


@of_attack("90_both_classes")
def both_classes_are_attacked(context, part):
    share = float((context.y == context.model.classes_[1]).mean())
    return (passed if 0.1 < share < 0.9 else failed)(f"{part.name}: {share:.0%} of one class", share=share)
'''


@pytest.mark.slow  # outside the package: tests/pipeline/test_extending.py
def test_a_check_of_ones_own_is_one_file(run_cli, tmp_path):
    """In a copy of the project: no list to edit, and results found without it are not taken for results with it."""
    root = Path(pipeline.__file__).parents[2]
    for folder in ("src", "conf"):
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    arguments = (*QUICK, "attack=fgsm")
    before = run_cli(*arguments, PYTHONPATH=str(tmp_path / "src"))
    (tmp_path / "src" / "pipeline" / "checks" / "both_classes.py").write_text(STRANGER)
    after = run_cli(*arguments, PYTHONPATH=str(tmp_path / "src"))
    assert before.returncode == after.returncode == 0, after.stdout + after.stderr
    assert "reused run" not in after.stdout
    files = sorted((tmp_path / "mlruns").rglob("checks.json"), key=lambda file: file.stat().st_mtime)
    first, second = ({check["id"]: check for check in json.loads(file.read_text())} for file in files[:2])
    assert second.keys() - first.keys() == {"90_both_classes"}
    assert second["90_both_classes"]["status"] == "pass"
    assert 0.1 < second["90_both_classes"]["evidence"]["fgsm_share"] < 0.9
