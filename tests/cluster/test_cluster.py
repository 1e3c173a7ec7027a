"""A sweep on two nodes and a tracking server, while a node dies, the server restarts and the network is cut.

Head and nodes are network namespaces of this machine (``scripts/cluster-up.sh``), so that a cable can be pulled. They
share a folder. ``make test-cluster JOBS=200`` for the whole story; without a number there are 24 jobs. Up to 25 of them
share a task: the start of Python takes five times as long as one of them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlflow_server import Server
from runs import start, table, wait_until

SCRIPTS = Path(__file__).parents[2] / "scripts"
HEAD = ("nsenter", "--net=/run/netns/advsvm-head")
JOBS = int(os.environ.get("CLUSTER_JOBS", "24"))
PER_TASK = max(1, min(25, JOBS // 4))
CUT_SECONDS = 60
# No dear proofs: the clock decides over no certificate, and half of a job is saved.
SWEEP = (
    "-m", "model=natural,svc", "attack=fgsm", f"seed=range(0,{JOBS // 2})", "tune=none", "checks=off", "figures=off",
    "dataset.max_train=60", "evaluation.max_attacked=4", "evaluation.certify_seconds=0",
)  # fmt: skip

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(14400)]


@dataclass
class Cluster:
    """The hosts, the server and its database."""

    folder: Path
    environment: dict[str, str]
    server: Server
    database: str
    events: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.events.append(f"{time.strftime('%H:%M:%S')} {text}")
        print(self.events[-1], flush=True)

    def runs(self) -> list[tuple[str, str, str]]:
        """Signature, status and node of every experiment's run, from the database itself."""
        import psycopg

        query = """select s.value, r.status, n.value from runs r
                   join tags s on s.run_uuid = r.run_uuid and s.key = 'run_signature'
                   join tags n on n.run_uuid = r.run_uuid and n.key = 'slurm_node'
                   join tags k on k.run_uuid = r.run_uuid and k.key = 'role' and k.value = 'experiment'"""
        user, password, port = re.search(r"//(\w+):(\w+)@[\d.]+:(\d+)/", self.database).groups()  # type: ignore[union-attr]
        # Through its socket: the network of the head is not ours.
        where = {"host": str(self.folder / "postgres"), "port": port, "dbname": "mlflow"}
        with psycopg.connect(user=user, password=password, **where) as connection:
            return connection.execute(query).fetchall()

    def runs_on(self, node: str) -> list[str]:
        """Signatures of the runs that are RUNNING on a node."""
        return [signature for signature, status, where in self.runs() if status == "RUNNING" and where == node]

    def kill_node(self, name: str) -> None:
        """As a power cut: every process of the host at once."""
        pids = subprocess.run(["ip", "netns", "pids", f"advsvm-{name}"], capture_output=True, text=True, check=True)
        for pid in pids.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def cable(self, name: str, state: str) -> None:
        subprocess.run([*HEAD, "ip", "link", "set", name, state], check=True)

    def up(self) -> None:
        """Start what does not run."""
        done = subprocess.run(
            [str(SCRIPTS / "cluster-up.sh"), str(self.folder / "slurm")], capture_output=True, text=True, timeout=400
        )
        if done.returncode == 3:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        self.environment["SLURM_CONF"] = done.stdout.strip().split("=", 1)[1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("psycopg", reason="needs the extra: pip install 'advsvm[server]'")
    folder = Path("/var/tmp") / f"advsvm-cluster-{os.getpid()}"
    (folder / "share").mkdir(parents=True)
    postgres = [*HEAD, str(SCRIPTS / "postgres-up.sh"), str(folder / "postgres"), "5434"]
    found = Cluster(folder, {}, Server("", folder / "artifacts", 5000, host="10.77.0.1", on=HEAD), "")
    try:
        found.up()
        database = subprocess.run(postgres, capture_output=True, text=True, timeout=400)
        assert database.returncode == 0, database.stderr
        found.database = found.server.backend = database.stdout.strip()
        found.server.start()
        yield found
    finally:
        found.server.kill()
        subprocess.run([*postgres[:-2], "--stop", str(folder / "postgres")], capture_output=True)
        subprocess.run([str(SCRIPTS / "cluster-up.sh"), "--stop", str(folder / "slurm")], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Story:
    local: str
    first: str
    first_code: int
    second: str
    second_code: int
    left: list[str]
    """Signatures of the runs that died with their node."""
    runs: list[tuple[str, str, str]]


def _ended(folder: Path) -> int:
    return len(list(folder.glob("multirun/*/*/*/result.json")))


def _counted(output: str) -> str:
    """The line that says how many jobs ended how."""
    return next((line for line in output.splitlines() if re.match(r"\d+ jobs: ", line)), "?")


@pytest.fixture(scope="module")
def story(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Story:
    share = cluster.folder / "share"
    there = (
        "hydra/launcher=slurm",
        f"hydra.launcher.jobs_per_task={PER_TASK}",
        "tracking=server",
        f"tracking.uri={cluster.server.uri}",
    )
    # Beside it the same on this machine. Both are read all the time: a full pipe would stop them.
    alone = start(*SWEEP, cwd=tmp_path_factory.mktemp("alone"))
    driver = start(*SWEEP, *there, cwd=share, on=HEAD, **cluster.environment)
    readers = ThreadPoolExecutor(2)
    locally, sweep = (readers.submit(process.communicate, timeout=7200) for process in (alone, driver))
    try:
        wait_until(lambda: _ended(share) >= 1, 600, "the end of a job")
        # In the middle of a job: its run is there, and will not be ended by the job itself.
        wait_until(lambda: cluster.runs_on("n1"), 600, "a run on n1")
        cluster.kill_node("n1")
        left = cluster.runs_on("n1")
        cluster.say(f"n1 is dead, {len(left)} run(s) of it are RUNNING")
        before = _ended(share)
        wait_until(lambda: _ended(share) > before or driver.poll() is not None, 600, "another job")
        cluster.server.kill()
        cluster.say("the server is dead")
        time.sleep(5)
        cluster.server.start()
        cluster.say("the server is back")
        cluster.cable("n2", "down")
        cluster.say("n2 is cut off")
        time.sleep(CUT_SECONDS)
        cluster.cable("n2", "up")
        cluster.say("n2 is back")
        first, _ = sweep.result()
        cluster.say("the first sweep ended: " + _counted(first))
        local, _ = locally.result()
        cluster.say("on this machine: " + _counted(local))
        assert alone.returncode == 0, local
    finally:
        for process in (alone, driver):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        readers.shutdown()
    cluster.up()
    again = start(*SWEEP, *there, cwd=share, on=HEAD, **cluster.environment)
    second, _ = again.communicate(timeout=5400)
    cluster.say("the second sweep ended: " + _counted(second))
    return Story(local, first, driver.returncode, second, again.returncode, left, cluster.runs())


def test_every_job_finished_or_is_reported(story: Story) -> None:
    assert "Traceback" not in story.first, story.first
    (line,) = re.findall(rf"^{JOBS} jobs: (.*)$", story.first, re.M)
    ended = {how: int(number) for number, how in re.findall(r"(\d+) (\w+)", line)}
    assert sum(ended.values()) == JOBS
    assert story.first.count("failed: ") == ended.get("failed", 0)
    assert story.first_code == (1 if ended.get("failed") else 0)


def test_the_same_command_computes_the_rest_and_its_table_is_the_local_one(story: Story) -> None:
    assert story.second_code == 0, story.second
    assert f"{JOBS} jobs: " in story.second
    assert table(story.second) == table(story.local)
    assert table(story.local)


def test_every_job_finished_once_and_nothing_runs(story: Story) -> None:
    finished = Counter(signature for signature, status, _ in story.runs if status == "FINISHED")
    assert len(finished) == JOBS
    assert set(finished.values()) == {1}
    assert not [run for run in story.runs if run[1] == "RUNNING"]
    # The run that died with its node is put right, and its job ran elsewhere; or all of its results lay in the shared
    # folder, waiting for their upload, and another job sent them.
    for signature in story.left:
        assert {(signature, "KILLED", "n1"), (signature, "FINISHED", "n1")}.intersection(story.runs)
