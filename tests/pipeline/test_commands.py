"""The small commands share one convention: ``key=value``, the names of ``pipeline.run``, examples in ``--help``."""

import importlib
import os
import re
import subprocess
import sys

import pytest

COMMANDS = {
    "data": "pipeline.data.__main__",
    "report": "pipeline.report.__main__",
    "cache": "pipeline.cache.__main__",
    "sync": "pipeline.sync",
}


@pytest.fixture(params=COMMANDS)
def command(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return importlib.import_module(COMMANDS[request.param]).main


def test_help_lists_every_setting_and_shows_examples(command, capsys):
    assert command(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name}=" in shown for name in command.settings)
    assert f"  python -m pipeline.{command.name}" in shown.split("examples:")[1]


def test_a_misspelt_setting_is_named_with_the_nearest_one(command, capsys, tmp_path):
    name = next(iter(command.settings))
    assert command([f"{name[:-1]}=1"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"did you mean {name}?" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("argument", ["--folder", "mlruns", "-x=1"])
def test_what_is_not_key_value_is_refused_in_one_line(command, capsys, argument):
    assert command([argument]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {argument}: write settings as key=value")
    assert re.search(r"such as python -m pipeline\.\w+ [\w.]+=", error)
    assert error.count("\n") == 1


def test_a_value_that_cannot_be_read_names_its_setting(capsys):
    report = importlib.import_module(COMMANDS["report"]).main
    assert report(["log=maybe"]) == 1
    assert "error: log: must be true or false; got maybe" in capsys.readouterr().err


def test_a_reader_that_goes_away_costs_nothing():
    script = f"{sys.executable} -m pipeline.data | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {script}"], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0
    assert done.stderr == ""
