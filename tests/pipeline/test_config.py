"""Configuration: every choice composes, and what is wrong stops before any work, in one line naming the setting."""

from __future__ import annotations

import inspect

import pytest
from hydra.utils import get_class

from pipeline.data import load_dataset
from pipeline.errors import UserError
from pipeline.paths import conf_dir
from pipeline.schema import NOT_SETTINGS, constructor
from pipeline.stages.build import build, build_model
from pipeline.validation import check_by_building, validate

GROUPS = ("dataset", "model", "attack", "tune", "tracking", "experiment", "model/kernel", "model/expansion")
CHOICES = [(group, file.stem) for group in GROUPS for file in sorted((conf_dir() / group).glob("*.yaml"))]
LABELS = {"name", "units", "_target_"}


@pytest.mark.parametrize(("group", "choice"), CHOICES, ids=lambda value: value)
def test_every_choice_of_every_group_composes_and_validates(composed, tmp_path, group, choice):
    (tmp_path / "model.json").touch()
    extra = {"server": ["tracking.uri=http://127.0.0.1:1"], "fitted": [f"model.path={tmp_path}"]}
    validate(composed(f"{group}={choice}", *extra.get(choice, [])))


@pytest.mark.parametrize(("group", "choice"), [(g, c) for g, c in CHOICES if g in ("model", "attack")])
def test_settings_are_the_constructors_arguments(composed, group, choice):
    settings = composed(f"{group}={choice}", *(["model.path=model.skops"] if choice == "fitted" else []))[group]
    arguments = inspect.signature(get_class(settings._target_)).parameters
    assert set(arguments) - set(NOT_SETTINGS) == set(settings) - LABELS
    assert build(settings, random_state=3) is not None


@pytest.mark.parametrize("target", ["attacks.PGD", "attacks.ZOO", "models.AdvSVM", "models.KernelSVC", "models.RBF"])
def test_the_defaults_read_from_the_text_are_those_of_the_running_code(target):
    settings = constructor(target)
    for name, parameter in inspect.signature(get_class(target)).parameters.items():
        if name not in NOT_SETTINGS:
            assert settings[name] == parameter.default, name


OUT_OF_RANGE = {
    "model.batch_size=many": "model.batch_size must be an integer .* or one of auto",
    "model.C=-1": "model.C must be a finite number > 0",
    "model.C=nan": "model.C must be a finite number",
    "model.step=0": "model.step must be a finite number > 0",
    "model.epsilon=-0.1": "model.epsilon must be a finite number >= 0",
    "model.batch_size=0": "model.batch_size must be an integer >= 1",
    "model.schedule=konstant": "model.schedule must be one of constant, diminishing, got .konstant",
    "model.kernel.width_scale=0": "model.kernel.width_scale must be a finite number > 0, got 0",
    "model.kernel.width_scale=1e308": "model.kernel.width_scale must be at most 1e.09, got 1e.308",
    "model.kernel.gamma=1e308": "model.kernel.gamma must be at most 1e.30, got 1e.308",
    "attack.epsilon=-1": "attack.epsilon must be a finite number >= 0, got -1",
    "attack.steps=0": "attack.steps must be an integer >= 1 .*, got 0",
    "+model.random_state=3": "model.random_state: AdvSVM has no such setting; the pipeline gives it",
    "attack.restarts=4294967296": "attack.restarts must be .* <= 10,000,000, got 4294967296",
    "seed=-1": "seed must be at least 0",
    "tune.C=[]": "tune.C must list at least one value",
    "tune.step=[1,-2]": "tune.step must hold numbers greater than 0",
    "tune.folds=1": "tune.folds must be at least 2",
    "tune.epsilon=[-1]": "tune.epsilon must hold numbers at least 0",
    "tune.C_f=[0,2]": "tune.C_f must hold numbers at most 1",
    "tune.n_features=[0]": "tune.n_features must hold numbers greater than 0",
    "tune.metric=robust": "tune.metric must be one of accuracy, certified_accuracy, robust_accuracy",
    "tune.radius=1": "tune.radius: tuning by accuracy knows no threat",
    "tune.within=2": "tune.within must be at most 1",
    "evaluation.max_attacked=0": "evaluation.max_attacked must be at least 1",
    "evaluation.certified_radius=-1": "evaluation.certified_radius must be at least 0",
    "compute.threads=0": "compute.threads must be at least 1",
    "on_existing=again": "on_existing must be one of",
    "tracking=server": "tracking.uri has no value",
}


@pytest.mark.parametrize(("override", "message"), OUT_OF_RANGE.items(), ids=OUT_OF_RANGE)
def test_a_value_out_of_range_is_named(composed, override, message):
    cfg = composed(override)

    def check() -> None:
        validate(cfg)
        check_by_building(cfg)

    with pytest.raises(UserError, match=message):
        check()


def test_the_optimum_s_solver_is_an_extra_and_asked_for_before_a_run(composed, monkeypatch):
    import importlib.util

    validate(composed("evaluation.convergence=true"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"evaluation\.convergence needs cvxpy: pip install 'advsvm\[convergence\]'"):
        validate(composed("evaluation.convergence=true"))


@pytest.mark.parametrize(
    ("model", "box"),
    [("adv_linear_svm", None), ("adv_svm_c", None), ("adv_svm_examples", (0.0, 1.0)), ("dnn_standard", (0.0, 1.0))],
)
def test_only_a_model_that_moves_rows_is_told_their_box(composed, model, box):
    cfg = composed(f"model={model}")
    told = build_model(cfg.model, load_dataset(cfg.dataset), 0).box
    assert told == box if box is None else tuple(told) == box
