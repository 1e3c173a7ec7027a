"""Promises of the named experiments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from tracked_store import compose_config

from pipeline.paths import conf_dir
from pipeline.stages.attack import attack_limit
from pipeline.stages.build import build
from pipeline.stages.experiment import Experiment
from pipeline.sweep import job_overrides

Jobs = Callable[..., list[dict[str, str]]]


def signature(cfg: DictConfig) -> str:
    return Experiment.of(cfg, "data").signature


@pytest.fixture
def jobs() -> Jobs:
    """The jobs of ``python -m pipeline.run -m …`` as dictionaries of overrides."""

    def of(*overrides: str) -> list[dict[str, str]]:
        compose_config()  # registers schemas and resolvers
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            composed = compose(
                "config", [o for o in overrides if "," not in o and "range" not in o], return_hydra_config=True
            )
        OmegaConf.set_readonly(composed.hydra, False)
        composed.hydra.overrides.task = list(overrides)
        return [dict(o.split("=", 1) for o in job) for job in job_overrides(composed)]

    return of


def test_paper_tables_is_the_papers_table(jobs: Jobs) -> None:
    found = jobs("experiment=paper_tables", "dataset=mnist_1v7")
    assert len(found) == 4 * 5 * 3
    assert {job["model"] for job in found} == {"natural", "adv_linear_svm", "adv_svm_d", "adv_svm_c"}
    assert {job["attack"] for job in found} == {"none", "fgsm", "pgd", "cw", "zoo"}
    assert {job["dataset"] for job in found} == {"mnist_1v7"}


def test_command_line_wins_over_the_experiment(jobs: Jobs) -> None:
    found = jobs("experiment=paper_tables", "dataset=mnist_1v7", "seed=range(10)", "attack=none,pgd", "model=natural")
    assert len(found) == 20
    assert {job["seed"] for job in found} == {str(seed) for seed in range(10)}


@pytest.mark.parametrize("model", ["natural", "adv_svm_d", "adv_svm_c"])
def test_paper_tables_have_the_papers_settings(model: str) -> None:
    cfg = compose_config("experiment=paper_tables", "dataset=mnist_1v7", f"model={model}", "attack=pgd")
    # On the paper's datasets, of 10,000 rows and more, "auto" is the paper's single pass of 500 rows.
    assert build(cfg.model).batching(10_000) == (500, 1)
    assert cfg.model.expansion.n_features == 1024
    assert cfg.model.epsilon == (0 if model == "natural" else pytest.approx(8 / 255))
    assert (cfg.attack.epsilon, cfg.attack.steps, cfg.attack.step_size) == (pytest.approx(8 / 255), 10, None)
    assert (cfg.tune.enabled, cfg.tune.folds, len(cfg.tune.C), len(cfg.tune.step)) == (True, 5, 7, 7)


def test_only_costly_attacks_are_limited() -> None:
    limits = {
        attack: attack_limit(compose_config("experiment=paper_tables", f"attack={attack}"))
        for attack in ("none", "fgsm", "pgd", "cw", "zoo")
    }
    assert limits == {"none": None, "fgsm": None, "pgd": None, "cw": 200, "zoo": 200}


def test_limit_that_does_not_apply_changes_no_identity() -> None:
    few, many = (signature(compose_config("attack=pgd", f"evaluation.max_attacked_costly={n}")) for n in (5, 50))
    assert few == many
    few, many = (signature(compose_config("attack=cw", f"evaluation.max_attacked_costly={n}")) for n in (5, 50))
    assert few != many


def test_exact_tables_keep_support_vectors_and_share_the_linear_runs(jobs: Jobs) -> None:
    models = sorted({job["model"] for job in jobs("experiment=paper_tables_exact", "dataset=mnist_1v7")})
    assert models == ["adv_linear_svm", "adv_svm_c_exact", "adv_svm_d_exact", "natural_exact"]
    for model in ("natural", "adv_svm_d", "adv_svm_c"):
        cfg = compose_config("experiment=paper_tables_exact", f"model={model}_exact")
        assert cfg.model.expansion._target_.endswith("SupportVectors")
        assert cfg.model.name == model
    one, other = (
        signature(compose_config(f"experiment={name}", "model=adv_linear_svm"))
        for name in ("paper_tables", "paper_tables_exact")
    )
    assert one == other


def test_certified_tunes_both_ways_over_training_radii(jobs: Jobs) -> None:
    found = jobs("experiment=certified", "dataset=mnist_1v7")
    assert {job["tune"] for job in found} == {"paper", "certified"}
    assert {float(job["model.epsilon"]) for job in found} >= {0.0, 0.25}
    cfg = compose_config("experiment=certified", "tune=certified")
    assert cfg.tune.metric == "certified_accuracy"
    assert (cfg.attack.norm, cfg.model.expansion._target_.rsplit(".", 1)[1]) == ("l2", "SupportVectors")
