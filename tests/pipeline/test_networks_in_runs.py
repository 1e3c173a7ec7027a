"""Networks are models like the others: the same stages, checks, tables and messages."""

from __future__ import annotations

import pytest

from pipeline.cache import StageStore
from pipeline.data import load_dataset
from pipeline.errors import UserError
from pipeline.stages.experiment import Experiment
from pipeline.validation import check_by_building, fix_axes, validate

NETWORKS = ("natural", "standard", "mart", "vat", "free", "fgsm_rs")


@pytest.fixture
def run(composed, tmp_path):
    def of(*overrides: str):
        cfg = composed(*overrides)
        fix_axes(cfg, list(overrides))
        validate(cfg)
        data = load_dataset(cfg.dataset)
        return Experiment.of(cfg, data.fingerprint).run(StageStore(tmp_path / "stages"), data)

    return of


@pytest.mark.parametrize("training", NETWORKS)
def test_every_network_runs_and_passes_the_checks(run, training):
    results = run(f"model=dnn_{training}", "tune=none", "model.epochs=8", "evaluation.max_attacked=40")
    metrics, model = results.evaluated.metrics, results.trained.model
    assert metrics["clean_accuracy"] > 0.9
    assert metrics["certified_accuracy"] <= metrics["attacked_accuracy"] <= metrics["clean_accuracy_attacked"]
    assert metrics["diverged"] == 0
    assert {check.id: check.message for check in results.evaluated.checks if check.status == "fail"} == {}
    assert tuple(model.image_shape) == results.data.image_shape
    assert tuple(model.box) == results.data.box
    assert len(results.evaluated.curves["test_error"]) == len(model.curve_["loss"])


def test_a_training_with_a_loss_that_is_no_number_is_marked_in_one_line(run):
    settings = ("model.learning_rate=1e18", "model.epochs=1", "tune=none", "checks=off", "evaluation.max_attacked=3")
    results = run("model=dnn_fgsm_rs", *settings)
    assert results.evaluated.metrics["diverged"] == 1
    (line,) = results.trained.messages
    assert line.startswith("training diverged with learning_rate=1e+18")


def test_the_grid_of_a_network_is_over_learning_rate_and_epochs(run):
    tuned = run("model=dnn_natural", "tune.learning_rate=[1e-6,0.05]", "model.epochs=4", "checks=off").tuned
    assert tuned.best == {"learning_rate": 0.05, "epochs": 4}
    assert tuned.table["learning_rate"] == [1e-6, 0.05]
    assert "one fold" in tuned.messages[0] or "first of the 5 folds" in tuned.messages[0]


@pytest.mark.parametrize(
    ("overrides", "norm", "epsilon"),
    [
        (["attack=pgd"], "linf", 0.0625),
        (["attack=pgd", "dataset=mnist_1v7"], "linf", 8 / 255),
        (["attack=pgd", "attack.epsilon=0.1"], "linf", 0.1),
        (["attack=pgd_l2"], "l2", 1.5),
        (["attack=cw"], "linf", 0.0625),
        (["attack=min_norm"], "linf", 0.0625),
        (["attack=none"], "linf", 0.0625),
        (["attack=pgd_l2", "model.epsilon=0.2", "model.norm=linf"], "linf", 0.2),
    ],
)
def test_what_is_trained_against_is_the_attacks_ball(composed, overrides, norm, epsilon):
    model = composed("model=dnn_standard", *overrides).model
    assert (model.norm, model.epsilon) == (norm, pytest.approx(epsilon))


def test_a_natural_network_is_trained_once_for_all_attacks(composed):
    keys = {Experiment.of(composed("model=dnn_natural", f"attack={a}"), "data").train.key for a in ("pgd_l2", "fgsm")}
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    {
        "model.epsilon=-1": "model.epsilon must be .* >= 0",
        "model.device=cuda": "model.device='cuda': torch finds no CUDA here",
        "model.device=tpu": "model.device must be one of cpu, cuda",
        "model.training.beta=0": r"model.training.beta must be .* > 0",
        "model.norm=l1": "model.norm must be one of",
        "model.epochs=0": "model.epochs must",
        "tune.epochs=[0]": "tune.epochs must hold numbers greater than 0",
        "+model.image_shape=[7,7]": "model.image_shape: AdvNetwork has no such setting",
        "tune.C=[1,2]": "tune.C: the model dnn_mart has no C to tune",
    }.items(),
)
def test_what_is_wrong_is_named(composed, monkeypatch, override, message):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cfg = composed("model=dnn_mart", override)

    def check() -> None:
        fix_axes(cfg, [override])
        validate(cfg)
        check_by_building(cfg)

    with pytest.raises(UserError, match=message):
        check()
