"""MLflow's UI on our store, in a real browser: the runs table is useful without a click.

The shared view relies on an undocumented tag of MLflow; this test is what the version pin in pyproject.toml waits for.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from webdriver import Browser, missing

from mlflow_server import Server, free_port
from pipeline.tracking.view import table_link

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(400),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("ui")
    arguments = ("-m", "attack=fgsm,pgd", "tune=none", "evaluation.max_attacked=6")
    subprocess.run([sys.executable, "-m", "pipeline.run", *arguments], cwd=folder, check=True, timeout=200)
    server = Server(f"sqlite:///{folder}/mlruns/mlflow.db", folder / "files", free_port())
    try:
        server.start()
        yield server.uri
    finally:
        server.kill()


def test_the_runs_table_shows_models_attacks_and_accuracies(ui: str) -> None:
    with Browser() as browser:
        browser.open(table_link(ui, "1"), width=1900, height=1000)
        wanted = ("clean", "certified", "attacked", "undecided", "adv_svm_c", "pgd", "summary")
        text = ""
        for _ in range(120):
            text = browser.run("return document.body.innerText")
            if all(word in text for word in wanted):
                break
            time.sleep(0.5)
        assert [word for word in wanted if word not in text] == []
