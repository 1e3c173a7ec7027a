"""A full disk ends in one clear line, and with space again the same command goes on in the same store."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runs import experiments

SWEEP = (
    "-m", "model=adv_svm_c,natural", "attack=fgsm,pgd", "tune=none", "evaluation.max_attacked=8", "compute.threads=1"
)  # fmt: skip
MESSAGE = "no space left on the disk"

pytestmark = [pytest.mark.survival, pytest.mark.timeout(600)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """``small_disk("3m")`` mounts a tmpfs of that size, or gives the mounted one that size."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = False

    def size(space: str) -> Path:
        nonlocal mounted
        option = f"{'remount,' if mounted else ''}size={space}"
        answer = subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(place)], capture_output=True)
        if answer.returncode != 0:
            pytest.skip(f"cannot mount a small tmpfs ({answer.stderr.decode().strip()})")
        mounted = True
        return place

    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    yield size
    if mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("space", ["600k", "1700k", "2500k"], ids=["in the store", "in the stages", "in a later job"])
def test_a_full_disk_is_one_clear_line_and_the_store_stays_usable(
    small_disk: Callable[[str], Path], launch: Callable[..., Any], tmp_path: Path, space: str
) -> None:
    disk = small_disk(space)
    out, where = tmp_path / "out", (f"tracking.folder={disk / 'mlruns'}",)
    full = launch(out, *SWEEP, *where)
    full.join(200)
    output = (out / "log").read_text()
    assert full.exitcode == 1, output
    assert "Traceback" not in output
    assert MESSAGE in output
    assert "Logging error" not in output
    assert not [line for line in output.splitlines() if "No space left" in line and MESSAGE not in line]

    small_disk("64m")
    again = launch(out, *SWEEP, *where)
    again.join(200)
    output = (out / "log").read_text()
    assert again.exitcode == 0, output
    assert "4 jobs: " in output
    finished = Counter(run["tags"]["run_signature"] for run in experiments(disk) if run["status"] == "FINISHED")
    assert len(finished) == 4
    assert set(finished.values()) == {1}


def test_a_working_folder_on_a_full_disk_is_reported_too(
    small_disk: Callable[[str], Path], launch: Callable[..., Any], tmp_path: Path
) -> None:
    disk = small_disk("2200k")
    full = launch(disk, *SWEEP, log=str(tmp_path / "log"))
    full.join(200)
    output = (tmp_path / "log").read_text()
    assert full.exitcode == 1, output
    assert "Traceback" not in output
    assert "o space left on " in output
    small_disk("64m")
    again = launch(disk, *SWEEP, log=str(tmp_path / "log"))
    again.join(200)
    assert again.exitcode == 0, (tmp_path / "log").read_text()
