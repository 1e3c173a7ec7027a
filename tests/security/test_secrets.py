"""No secret of the environment or the command line in runs, folders, logs or messages."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.tracking.credentials import masked, take_credentials, without_credentials

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
def test_what_is_no_address_is_refused_without_its_password() -> None:
    for function in (masked, take_credentials):
        with pytest.raises(UserError, match=r"^tracking\.uri=http://\*\*\*@\[x: not an address") as refusal:
            function("http://ann:hunter2@[x")
        assert "hunter2" not in str(refusal.value)


def test_credentials_move_from_the_address_to_mlflow_s_variables() -> None:
    assert take_credentials("http://ann:p%40ss@host:5000/x?y=1") == "http://host:5000/x?y=1"
    assert os.environ["MLFLOW_TRACKING_USERNAME"] == "ann"
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "p@ss"


LOGIN = f"ann:{SECRET}@"
ARGUMENTS = {
    f"tracking.uri=https://{LOGIN}h": "tracking.uri=https://h",
    f"tracking.uri='https://{LOGIN}h'": "tracking.uri='https://h'",
    f'tracking.uri="HTTP://{LOGIN}h:5000/x"': 'tracking.uri="http://h:5000/x"',
    f"+tracking.uri= http://{LOGIN}h": "+tracking.uri= http://h",
    f"tracking={{name:server,uri:http://{LOGIN}h}}": "tracking={name:server,uri:http://h}",
    f"tracking.uri=http://{LOGIN}a,http://{LOGIN}b": "tracking.uri=http://a,http://b",
    f"tracking.uri=http://ann:@/{SECRET}@h": "tracking.uri=http://h",
    f"tracking.uri=postgresql+psycopg://{LOGIN}h/db": "tracking.uri=postgresql+psycopg://h/db",
    f"notes=see ftp://{LOGIN}h and s3://{SECRET}@h": "notes=see ftp://h and s3://h",
    "tracking.uri=http://h:5000/a@b": "tracking.uri=http://h:5000/a@b",
    "notes=mail ann@h about http://h/x": "notes=mail ann@h about http://h/x",
}


@pytest.mark.usefixtures("clean_environment")
@pytest.mark.parametrize(("given", "shown"), ARGUMENTS.items(), ids=range(len(ARGUMENTS)))
def test_arguments_lose_their_password(given: str, shown: str) -> None:
    assert without_credentials(given) == shown
    to_server = given.lstrip("+").startswith("tracking") and "http" in given.lower() and SECRET in given
    assert (os.environ.get("MLFLOW_TRACKING_USERNAME") == "ann") == to_server
    assert (SECRET in os.environ.get("MLFLOW_TRACKING_PASSWORD", "")) == to_server


@pytest.mark.usefixtures("clean_environment")
def test_one_servers_password_is_not_sent_to_another() -> None:
    with pytest.raises(UserError, match="different logins") as refusal:
        without_credentials(f"tracking.uri=http://{LOGIN}a,http://bob:x@b")
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("mode", [[], ["-m", "seed=0,1"]], ids=["run", "sweep"])
def test_a_refused_server_s_password_is_written_nowhere(run_cli: Callable, tmp_path: Path, mode: list[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    uri = f" HTTP://ann:{SECRET}@127.0.0.1:{port}"
    notes = f"notes='of postgresql://ann:{SECRET}@h/db'"
    result = run_cli(*mode, "tracking=server", f"tracking.uri={uri}", notes, "tune=none")
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
    result = run_cli(
        "-m", "tune=none", "evaluation.max_attacked=4", "attack=fgsm", "model=svc", "checks=off", **secrets
    )
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
