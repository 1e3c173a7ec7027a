"""What a user sees of the checks: tags, checks.json, the line on the terminal, and strict=true."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

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
    assert len(checks) == 22
    assert checks["15_perturbation"]["evidence"]["pgd_unchanged"] > 0
