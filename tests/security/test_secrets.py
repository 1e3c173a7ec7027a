"""No secret of the environment or the command line in runs, folders, logs or messages."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.tracking.store import masked, take_credentials, without_credentials

SECRET = "hunter2-correct-horse"
ROOT = Path(__file__).parents[2]


def traces(folder: Path) -> list[Path]:
    """Files below ``folder`` that hold the secret, in their content or name."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if SECRET in str(path) or SECRET.encode() in path.read_bytes()]


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)
    yield
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        os.environ.pop(name, None)


def test_a_password_is_masked() -> None:
    assert masked(f"http://ann:{SECRET}@host:5000/x") == "http://ann:***@host:5000/x"
    assert masked("http://host:5000") == "http://host:5000"


@pytest.mark.usefixtures("clean_environment")
def test_credentials_move_from_the_address_to_mlflow_s_variables() -> None:
    assert take_credentials("http://ann:p%40ss@host:5000/x?y=1") == "http://host:5000/x?y=1"
    assert os.environ["MLFLOW_TRACKING_USERNAME"] == "ann"
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "p@ss"


@pytest.mark.usefixtures("clean_environment")
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_arguments_lose_their_password(quote: str) -> None:
    assert without_credentials(f"tracking.uri={quote}https://ann:{SECRET}@h{quote}") == (
        f"tracking.uri={quote}https://h{quote}"
    )
    assert without_credentials("notes=http://a:b@c") == "notes=http://a:b@c"


@pytest.mark.parametrize("mode", [[], ["-m", "seed=0,1"]], ids=["run", "sweep"])
def test_a_refused_server_s_password_is_written_nowhere(run_cli: Callable, tmp_path: Path, mode: list[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    result = run_cli(*mode, "tracking=server", f"tracking.uri=http://ann:{SECRET}@127.0.0.1:{port}", "tune=none")
    assert result.returncode == 1
    assert "tracking.uri: no MLflow server answers" in result.stderr
    assert SECRET not in result.stdout + result.stderr
    assert traces(tmp_path) == []


def test_a_password_in_a_config_file_is_not_copied(run_cli: Callable, tmp_path: Path) -> None:
    conf = tmp_path / "mine" / "tracking"
    conf.mkdir(parents=True)
    (conf / "ours.yaml").write_text(f"defaults: [server, _self_]\nname: server\nuri: http://ann:{SECRET}@127.0.0.1:9\n")
    work = tmp_path / "work"
    work.mkdir()
    for mode in ([], ["-m", "seed=0,1"]):
        result = run_cli(*mode, "tracking=ours", f"hydra.searchpath=[file://{conf.parent}]", "tune=none", cwd=work)
        assert result.returncode == 1
        assert SECRET not in result.stdout + result.stderr
    assert traces(work) == []


def test_secrets_of_the_environment_are_not_recorded(run_cli: Callable, tmp_path: Path) -> None:
    secrets = dict.fromkeys(("MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY", "MY_TOKEN"), SECRET)
    result = run_cli("-m", "tune=none", "evaluation.max_attacked=4", "attack=fgsm", **secrets)
    assert result.returncode == 0, result.stderr
    assert SECRET not in result.stdout + result.stderr
    assert traces(tmp_path) == []


def test_what_we_start_listens_on_this_machine_only() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for line in makefile.splitlines():
        if "/mlflow ui" in line or "/mlflow server" in line:
            assert "--host 127.0.0.1" in line
    for script in (ROOT / "scripts").glob("*.sh"):
        assert "0.0.0.0" not in script.read_text()
    assert "listen_addresses=127.0.0.1" in (ROOT / "scripts" / "postgres-up.sh").read_text()
    assert "--skip-networking" in (ROOT / "scripts" / "slurm-up.sh").read_text()
