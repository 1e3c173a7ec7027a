"""One store of invented runs for all tests of the report, and the report made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracked_store import add_run, open_empty

from pipeline.report.__main__ import main
from pipeline.tracking.store import TrackingStore

ATTACKS = ("none", "fgsm", "pgd", "cw", "zoo")


@pytest.fixture(scope="session")
def invented(tmp_path_factory: pytest.TempPathFactory) -> TrackingStore:
    """Most of the paper's table for one dataset with two seeds, an exact variant, and certified tuning."""
    store = open_empty(tmp_path_factory.mktemp("invented") / "mlruns")
    met = {"natural": ATTACKS, "adv_linear_svm": ("none", "cw"), "adv_svm_d": ("pgd",), "adv_svm_c": ATTACKS}
    for model, attacks in met.items():
        for attack in attacks:
            for seed in (0, 1):
                failed = {"12_bounds": "fail"} if (model, attack, seed) == ("adv_svm_c", "pgd", 1) else {}
                add_run(store, "dataset=mnist_1v7", f"model={model}", f"attack={attack}", f"seed={seed}", checks=failed)
    exact = ("dataset=mnist_1v7", "model=adv_svm_c_exact")
    add_run(store, *exact, "attack=pgd", robust_accuracy=0.25)
    add_run(store, "dataset=mnist_1v7", "model=adv_svm_c", "attack=pgd", "attack.epsilon=0.1", robust_accuracy=0.125)
    for tune in ("paper", "certified"):
        for epsilon in ("0.0", "0.25"):
            add_run(store, *exact, f"tune={tune}", "attack=pgd_l2", f"model.epsilon={epsilon}")
    return store


@pytest.fixture(scope="session")
def report(invented: TrackingStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the report that the command makes, with docs beside it."""
    output = tmp_path_factory.mktemp("output")
    (output / "docs").mkdir()
    (output / "docs" / "reading.md").write_text("## Reading\n\nA hand-written sentence.\n")
    docs = output / "docs" / "results.md"
    main([f"tracking.folder={invented.folder}", "name=trial", f"output={output}", f"docs={docs}"])
    return output / "trial"
