"""Files of the size and sparsity that SVM users have run end to end, in bounded memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from runs import ENVIRONMENT
from stand_ins import write

MEASURED = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "pipeline.run", *sys.argv[1:]])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, "GiB")
sys.exit(done.returncode)
"""


@pytest.mark.parametrize("model", ["adv_linear_svm", pytest.param("svc", marks=pytest.mark.slow)])
def test_a_run_on_sparse_rows_says_what_stays_sparse(tmp_path, run_cli, model):
    path = write(tmp_path / "rows", "a9a", 800)
    done = run_cli("dataset=svmlight", f"dataset.path={path}", f"model={model}", "tune.folds=2", "attack=pgd")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "training rows stay sparse (0.11 of the values are not 0)" in done.stdout
    assert "test rows made dense: an attacker may change any of their values" in done.stdout
    assert "within L∞ 8/255: certified" in done.stdout
    assert "failed" not in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_of_many_test_rows_a_part_is_attacked_and_certified(tmp_path: Path) -> None:
    """The shape of covtype, whose 145,253 test rows would all be certified for an hour."""
    path = write(tmp_path / "rows", "covtype", 44_000)
    settings = ["dataset=svmlight", f"dataset.path={path}", "model=adv_svm_c", "tune=none"]
    command = [sys.executable, "-c", MEASURED, *settings]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "L2 radii of 5,000 of 11,000 test points, a stratified part" in done.stdout
    assert "5000 test points, a stratified part" in done.stdout
    assert "failed" not in done.stdout
    assert float(re.findall(r"peak ([\d.]+) GiB", done.stdout)[0]) < 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "model", "more"),
    [
        ("a9a", "adv_linear_svm", []),
        ("a9a", "adv_svm_c", []),
        ("ijcnn1", "adv_linear_svm", []),
        ("ijcnn1", "adv_svm_c", []),
        ("covtype", "adv_linear_svm", ["tune=none"]),  # its grid takes many minutes
    ],
)
def test_a_file_of_full_size_runs_end_to_end(tmp_path: Path, name: str, model: str, more: list[str]) -> None:
    path = write(tmp_path / name, name)
    command = [sys.executable, "-c", MEASURED, "dataset=svmlight", f"dataset.path={path}", f"model={model}", *more]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "within L∞ 8/255: certified" in done.stdout
    print(done.stdout)
    assert float(re.findall(r"peak ([\d.]+) GiB", done.stdout)[0]) < 3
