"""A result belongs to the content it was computed from: nothing stale, nothing mixed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.data import fingerprint, hold_to, load_dataset, summary
from pipeline.errors import UserError

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("HYDRA", "ADVSVM_SWEEP", "ADVSVM_FULL"))}


def _write(path: Path, seed: int, n: int = 40) -> Path:
    X = np.random.default_rng(seed).random((n, 4))
    np.savez(path, X=X, y=(X[:, 0] + X[:, 1] > 1).astype(int))
    return path


def _npz(path) -> dict[str, str]:
    return {"name": "npz", "path": str(path)}


def test_a_link_that_points_elsewhere_is_another_dataset(data_dir, tmp_path):
    first, second = _write(tmp_path / "v1.npz", 1), _write(tmp_path / "v2.npz", 2)
    link = tmp_path / "cur.npz"
    link.symlink_to(first)
    prints = [fingerprint(_npz(link))]
    link.unlink()
    link.symlink_to(second)
    prints.append(fingerprint(_npz(link)))
    assert prints == [load_dataset(_npz(path)).fingerprint for path in (first, second)]
    assert prints[0] != prints[1]


def test_a_linked_folder_is_another_dataset(data_dir, tmp_path):
    for number in (1, 2):
        (tmp_path / f"v{number}").mkdir()
        _write(tmp_path / f"v{number}" / "x.npz", number)
    link, prints = tmp_path / "cur", []
    for number in (1, 2):
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / f"v{number}")
        prints.append(fingerprint(_npz(link / "x.npz")))
    assert prints[0] != prints[1]


def test_a_variable_in_the_path_is_read_every_time(data_dir, tmp_path, monkeypatch):
    prints = []
    for number in (1, 2):
        folder = tmp_path / f"v{number}"
        folder.mkdir()
        _write(folder / "x.npz", number)
        monkeypatch.setenv("MY_DATA", str(folder))
        prints.append(fingerprint(_npz("$MY_DATA/x.npz")))
    assert prints[0] != prints[1]


def test_a_replaced_file_of_equal_size_and_time_is_noticed(data_dir, tmp_path):
    path = _write(tmp_path / "x.npz", 1)
    stat, first = path.stat(), fingerprint(_npz(path))
    _write(path, 2)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert summary(_npz(path)) is None
    assert fingerprint(_npz(path)) != first


def test_an_equal_copy_elsewhere_is_the_same_dataset(data_dir, tmp_path):
    path = _write(tmp_path / "x.npz", 1)
    first = fingerprint(_npz(path))
    os.utime(path, (1, 1))
    assert summary(_npz(path))["fingerprint"] == first
    assert fingerprint(_npz(_write(tmp_path / "y.npz", 1))) == first


def test_other_content_than_planned_is_refused_before_anything_is_computed(data_dir, tmp_path):
    path = _write(tmp_path / "x.npz", 1)
    planned = fingerprint(_npz(path))
    load_dataset(_npz(path), planned=planned)
    _write(path, 2)
    with pytest.raises(UserError, match=r"dataset\.path: .*changed since this run was planned"):
        load_dataset(_npz(path), planned=planned)


def test_a_file_that_changes_while_it_is_read_is_never_remembered(data_dir, tmp_path, monkeypatch):
    from pipeline.data import formats

    path, loader = _write(tmp_path / "x.npz", 1), formats.load_npz

    def replaced_after_reading(*arguments):
        made = loader(*arguments)
        _write(path, 2)
        return made

    monkeypatch.setattr(formats, "load_npz", replaced_after_reading)
    with pytest.raises(UserError, match="changed while it was read"):
        load_dataset(_npz(path))
    assert summary(_npz(path)) is None


def test_the_jobs_of_a_sweep_see_one_content(tmp_path):
    settings, other = {"name": "npz", "path": "x"}, {"name": "npz", "path": "x", "max_train": 9}
    hold_to(tmp_path / "sweep", settings, "a" * 64)
    hold_to(tmp_path / "sweep", settings, "a" * 64)
    hold_to(tmp_path / "sweep", other, "b" * 64)
    with pytest.raises(UserError, match="changed since the sweep began"):
        hold_to(tmp_path / "sweep", settings, "b" * 64)
    hold_to(tmp_path / "the next sweep", settings, "b" * 64)


_SETTINGS = ("dataset=npz", "model=adv_linear_svm", "tune=none", "attack=fgsm", "checks=off")


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "pipeline.run", *_SETTINGS, *arguments],
        cwd=folder, env=ENVIRONMENT | {"ADVSVM_DATA": str(folder / "data")}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_the_same_command_after_a_new_link_reports_the_new_file(tmp_path):
    _write(tmp_path / "v1.npz", 1, 200), _write(tmp_path / "v2.npz", 2, 100)
    (tmp_path / "cur.npz").symlink_to("v1.npz")
    assert "reused" not in _run(tmp_path, "dataset.path=cur.npz").stdout
    assert "reused" in _run(tmp_path, "dataset.path=cur.npz").stdout
    (tmp_path / "cur.npz").unlink()
    (tmp_path / "cur.npz").symlink_to("v2.npz")
    again = _run(tmp_path, "dataset.path=cur.npz")
    assert again.returncode == 0
    assert "reused" not in again.stdout


@pytest.mark.slow
def test_a_file_replaced_during_a_sweep_stops_the_remaining_jobs(tmp_path):
    """The first job's model replaces the file, as a colleague would."""
    _write(tmp_path / "v1.npz", 1, 200), _write(tmp_path / "v2.npz", 2, 200)
    (tmp_path / "cur.npz").symlink_to("v1.npz")
    (tmp_path / "swapping.py").write_text(
        "import os\n"
        "from models import AdvLinearSVM\n"
        "class Swapping(AdvLinearSVM):\n"
        "    def fit(self, *arguments, **options):\n"
        "        if len(arguments[0]) > 50:  # not when it is only tried on a few rows\n"
        "            os.symlink('v2.npz', 'new'); os.replace('new', 'cur.npz')\n"
        "        return super().fit(*arguments, **options)\n"
    )
    swept = subprocess.run(
        [sys.executable, "-m", "pipeline.run", "-m", *_SETTINGS, "dataset.path=cur.npz", "seed=0,1,2",
         "model._target_=swapping.Swapping"],
        cwd=tmp_path, capture_output=True, text=True,
        env=ENVIRONMENT | {"ADVSVM_DATA": str(tmp_path / "data"), "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert swept.returncode != 0
    assert swept.stdout.count("the data of npz changed since the sweep began") >= 2, swept.stdout + swept.stderr
    assert swept.stdout.count("  result  clean") == 1
