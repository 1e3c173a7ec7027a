"""The card's sweep on a real slurmctld and slurmd (``make test-slurm``)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from runs import experiments, start, table, tracked, wait_until

SWEEP = ("-m", "hydra/launcher=slurm", "model=adv_svm_c,adv_svm_d", "attack=pgd,zoo", "evaluation.max_attacked=16")


def _no_cluster() -> str | None:
    if shutil.which("sinfo") is None:
        return "no SLURM on this machine: make test-slurm installs and starts a cluster"
    try:
        answer = subprocess.run(["sinfo", "-h"], capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return "SLURM's controller does not answer: make test-slurm starts a cluster"
    return None if answer.returncode == 0 else "no SLURM cluster answers: make test-slurm starts one"


pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(_no_cluster() is not None, reason=str(_no_cluster())),
]


@dataclass
class Story:
    """A sweep of which one job is cancelled and one killed, and the same command again."""

    folder: Path
    first: str
    first_code: int
    first_runs: list[dict]
    second: str
    second_code: int


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("sweep")
    driver = start(*SWEEP, cwd=folder)
    for model, how in (("adv_svm_c", []), ("adv_svm_d", ["--signal=KILL", "--full"])):
        (run,) = wait_until(
            lambda model=model: experiments(folder, model=model, attack="zoo"), 240, f"the start of {model} · zoo"
        )
        subprocess.run(["scancel", *how, run["tags"]["slurm_job_id"]], check=True)
    first, _ = driver.communicate(timeout=400)
    runs = experiments(folder)
    again = start(*SWEEP, cwd=folder)
    second, _ = again.communicate(timeout=400)
    return Story(folder, first, driver.returncode, runs, second, again.returncode)


def test_a_cancelled_job_is_reported_in_one_line_and_the_others_finish(story: Story) -> None:
    assert story.first_code == 1, story.first
    assert "Traceback" not in story.first
    assert "4 jobs: 2 finished, 2 failed" in story.first
    (line,) = [line for line in story.first.splitlines() if "failed: adv_svm_c · zoo" in line]
    assert "CANCELLED" in line
    assert "log " in line
    assert "the same command computes what is missing" in story.first


def test_a_job_killed_without_warning_is_reported_too(story: Story) -> None:
    (line,) = [line for line in story.first.splitlines() if "failed: adv_svm_d · zoo" in line]
    assert "the job ended as" in line


def test_cancelled_and_killed_runs_end_killed(story: Story) -> None:
    status = {(run["tags"]["model"], run["tags"]["attack"]): run["status"] for run in story.first_runs}
    assert status == {
        ("adv_svm_c", "pgd"): "FINISHED",
        ("adv_svm_d", "pgd"): "FINISHED",
        ("adv_svm_c", "zoo"): "KILLED",
        ("adv_svm_d", "zoo"): "KILLED",
    }


def test_the_same_command_resumes(story: Story) -> None:
    assert story.second_code == 0, story.second
    assert "4 jobs: 2 finished, 2 reused" in story.second
    assert sum("adv_svm_" in line for line in table(story.second)) == 2  # a row a model
    finished = [run for run in experiments(story.folder) if run["status"] == "FINISHED"]
    assert len(finished) == len({run["tags"]["run_signature"] for run in finished}) == 4


def test_runs_tell_their_sweep_job_node_and_log(story: Story) -> None:
    """The sweep's name travels in the environment, the store is in the working folder: both were carried over."""
    (summary,) = tracked(story.folder, role="summary")
    for run in experiments(story.folder):
        tags = run["tags"]
        assert tags["sweep"] == summary["tags"]["sweep"]
        assert tags["slurm_node"]
        assert Path(tags["log_path"]).is_file()
        assert tags["slurm_job_id"] in tags["log_path"]
        states = subprocess.run(["sacct", "-n", "-X", "-j", tags["slurm_job_id"]], capture_output=True, text=True)
        assert "advsvm" in states.stdout
    finished = [run for run in experiments(story.folder) if run["status"] == "FINISHED"]
    assert "result  clean" in Path(finished[0]["tags"]["log_path"]).read_text()


def test_ctrl_c_cancels_the_jobs_on_the_cluster(tmp_path: Path) -> None:
    driver = start(*SWEEP, cwd=tmp_path)
    (run, *_) = wait_until(lambda: experiments(tmp_path), 240, "the start of a job")
    os.kill(driver.pid, signal.SIGINT)
    output, _ = driver.communicate(timeout=120)
    assert driver.returncode == 130, output
    assert "Traceback" not in output
    array = run["tags"]["slurm_job_id"].split("_")[0]

    def gone() -> bool:
        left = subprocess.run(["squeue", "-h", "-j", array], capture_output=True, text=True)
        return not left.stdout.strip()

    wait_until(gone, 60, "the end of the array")
    wait_until(lambda: all(r["status"] != "RUNNING" for r in experiments(tmp_path)), 30, "the end of the runs")


def test_submit_and_return_then_the_same_command_collects(tmp_path: Path) -> None:
    quick = ("tune=none", "attack=fgsm", "evaluation.max_attacked=4", "figures=off", "checks=off")
    later = "+hydra.launcher.additional_parameters.begin=now+1hour"
    command = ("-m", "hydra/launcher=slurm", "hydra.launcher.wait=false", later, "seed=0,1", *quick)

    def driver() -> tuple[int, str]:
        process = start(*command, cwd=tmp_path)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def ids() -> list[str]:
        (note,) = (tmp_path / "multirun").glob("*/submitted-*.json")
        return json.loads(note.read_text())["jobs"]

    def queue(job: str, states: str = "all") -> str:
        shown = subprocess.run(["squeue", "-h", "-t", states, "-j", job], capture_output=True, text=True)
        return shown.stdout.strip()

    code, output = driver()
    assert code == 0, output
    assert "2 jobs submitted to SLURM as" in output
    assert "the same command later" in output
    assert "no result" not in output
    first, second = ids()
    code, output = driver()
    assert code == 0, output
    assert f"0 of 2 jobs ended; still waiting or running: {first}, {second}" in output
    assert experiments(tmp_path) == []
    subprocess.run(["scontrol", "update", f"JobId={first.split('_')[0]}", "StartTime=now"], check=True)
    wait_until(lambda: not queue(first.split("_")[0], "PENDING,RUNNING,COMPLETING"), 400, "the end of the jobs")
    code, output = driver()
    assert code == 0, output
    assert "2 jobs: 2 finished" in output
    assert table(output)
    (summary,) = tracked(tmp_path, role="summary")
    assert {run["tags"]["sweep"] for run in experiments(tmp_path)} == {summary["tags"]["sweep"]}
    assert not list((tmp_path / "multirun").glob("*/submitted-*.json"))


@pytest.mark.skipif("advsvm" not in os.environ.get("SLURM_CONF", ""), reason="not the cluster of scripts/slurm-up.sh")
def test_the_daemons_of_the_test_cluster_listen_on_loopback_only() -> None:
    sockets = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True).stdout.splitlines()
    ours = [line.split()[3] for line in sockets if line.split()[3].rsplit(":", 1)[1] in ("16817", "16818", "16819")]
    assert len(ours) == 3
    assert all(address.startswith("127.0.0.1:") for address in ours)
