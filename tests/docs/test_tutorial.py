"""Every command of docs/tutorial.md is run, in order, as a reader would; printed numbers must match."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fenced import blocks, numbers, printed, script, words

REPOSITORY = Path(__file__).resolve().parents[2]
TUTORIAL = REPOSITORY / "docs" / "tutorial.md"


def commands() -> list[tuple[str, str]]:
    """Shell lines with what is expected of them: ``works``, ``fails`` or ``server``."""
    return [
        (line, block.words[0] if block.words else "works")
        for block in blocks(TUTORIAL)
        if block.language == "sh"
        for line in block.text.splitlines()
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a fresh checkout whose environment is installed already."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, folder / name)
    # Links instead of a second installation of two gigabytes; the stamp tells make that it is up to date.
    (folder / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.startswith("."):
            (folder / ".venv" / entry.name).symlink_to(entry)
    (folder / ".venv" / ".installed").touch()
    return folder


@pytest.fixture(scope="module")
def environment(project: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HYDRA", "ADVSVM_SWEEP", "ADVSVM_FULL"))}
    return kept | {"PATH": f"{project / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}", "PORT": str(_free_port())}


def test_tutorial_covers_the_tour() -> None:
    text = TUTORIAL.read_text()
    tour = (
        "make run",
        "make ui",
        "SVC(",
        "certified_radius",
        "model.epsilon=",
        "hydra/launcher=slurm",
        "pipeline.report",
    )
    for stop in tour:
        assert stop in text


def test_every_block_is_run_or_compared() -> None:
    assert {block.language for block in blocks(TUTORIAL)} == {"sh", "python", "text"}
    assert all(expected in ("works", "fails", "server") for _, expected in commands())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_shell_command_works(project: Path, environment: dict[str, str]) -> None:
    for line, expected in commands():
        if expected == "server":
            _serve(line, project, environment)
            continue
        answer = _shell(_here(line), project, environment)
        told = f"$ {line}\n{answer.stdout}{answer.stderr}"
        assert (answer.returncode == 0) == (expected == "works"), told
        assert "Traceback" not in answer.stderr, told
    assert (project / "reports" / "all" / "index.html").is_file()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_python_block_prints_what_the_tutorial_shows(project: Path, environment: dict[str, str]) -> None:
    """Runs after the shell commands: one block loads a model that they tracked."""
    shown = blocks(TUTORIAL)
    file = project / "tutorial.py"
    file.write_text(script(shown))
    answer = _shell("python tutorial.py", project, environment)
    assert answer.returncode == 0, answer.stderr
    assert numbers(answer.stdout) == pytest.approx(numbers(printed(shown)), abs=2.5), answer.stdout
    assert words(answer.stdout) == words(printed(shown))


def _here(line: str) -> str:
    """Where no cluster answers, the sweep for it goes the same way through local processes."""
    return line if _cluster_answers() else line.replace("launcher=slurm", "launcher=submitit_local")


def _cluster_answers() -> bool:
    if shutil.which("sinfo") is None:
        return False
    return subprocess.run(["sinfo", "--noheader"], capture_output=True, timeout=60).returncode == 0


def _shell(line: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


def _serve(line: str, folder: Path, environment: dict[str, str]) -> None:
    """Start the server, wait until its page answers, stop it."""
    with _process_group(line, folder, environment) as process:
        address = f"http://127.0.0.1:{environment['PORT']}/"
        deadline = time.monotonic() + 400
        while time.monotonic() < deadline:
            assert process.poll() is None, f"{line} ended"
            try:
                with urllib.request.urlopen(address, timeout=5) as page:
                    assert page.status == 200
                    return
            except OSError:
                time.sleep(1)
        pytest.fail(f"{line}: nothing answers at {address}")


@contextmanager
def _process_group(line: str, folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command with all its children, which are stopped at the end."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        line, shell=True, cwd=folder, env=environment, start_new_session=True, stdout=quiet, stderr=quiet
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
