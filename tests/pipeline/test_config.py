"""Configuration: every choice composes, and what is wrong stops before any work, in one line naming the setting."""

from __future__ import annotations

import inspect

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from pipeline.errors import UserError
from pipeline.paths import conf_dir
from pipeline.stages.build import build
from pipeline.validation import validate

GROUPS = ("dataset", "model", "attack", "tune", "tracking", "experiment", "model/kernel", "model/expansion")
CHOICES = [(group, file.stem) for group in GROUPS for file in sorted((conf_dir() / group).glob("*.yaml"))]
LABELS = {"name", "_target_"}


@pytest.mark.parametrize(("group", "choice"), CHOICES, ids=lambda value: value)
def test_every_choice_of_every_group_composes_and_validates(composed, group, choice):
    extra = ["tracking.uri=http://127.0.0.1:1"] if choice == "server" else []
    validate(composed(f"{group}={choice}", *extra))


@pytest.mark.parametrize("choice", [c for g, c in CHOICES if g == "model"])
def test_model_settings_are_the_constructors_arguments(composed, choice):
    model = composed(f"model={choice}").model
    arguments = set(inspect.signature(get_class(model._target_)).parameters)
    assert set(model) - LABELS <= arguments
    assert build(model, random_state=3) is not None


@pytest.mark.parametrize("choice", [c for g, c in CHOICES if g == "attack"])
def test_attack_settings_are_the_constructors_arguments(composed, choice):
    attack = composed(f"attack={choice}").attack
    arguments = set(inspect.signature(get_class(attack._target_)).parameters)
    assert set(attack) - LABELS <= arguments
    assert build(attack, random_state=3) is not None


@pytest.mark.parametrize("choice", ["none", "fgsm", "pgd", "cw", "zoo"])
def test_attack_defaults_in_yaml_are_the_library_defaults(composed, choice):
    settings = OmegaConf.to_container(composed(f"attack={choice}").attack)
    defaults = inspect.signature(get_class(settings["_target_"])).parameters
    for name in set(settings) - LABELS:
        assert settings[name] == pytest.approx(defaults[name].default), name


OUT_OF_RANGE = {
    "model.C=-1": "model.C must be greater than 0",
    "model.C=nan": "model.C must be a finite number",
    "model.step=0": "model.step must be greater than 0",
    "model.epsilon=-0.1": "model.epsilon must be at least 0",
    "model.batch_size=0": "model.batch_size must be at least 1",
    "model.schedule=konstant": "did you mean constant",
    "model.kernel.width_scale=0": "model.kernel.width_scale must be greater than 0",
    "attack.epsilon=-1": "attack.epsilon must be at least 0",
    "attack.steps=0": "attack.steps must be at least 1",
    "seed=-1": "seed must be at least 0",
    "tune.C=[]": "tune.C must list at least one value",
    "tune.step=[1,-2]": "tune.step must hold numbers greater than 0",
    "tune.folds=1": "tune.folds must be at least 2",
    "evaluation.max_attacked=0": "evaluation.max_attacked must be at least 1",
    "evaluation.certified_radius=-1": "evaluation.certified_radius must be at least 0",
    "compute.threads=0": "compute.threads must be at least 1",
    "on_existing=again": "on_existing must be one of",
    "tracking=server": "tracking.uri has no value",
}


@pytest.mark.parametrize(("override", "message"), OUT_OF_RANGE.items(), ids=OUT_OF_RANGE)
def test_a_value_out_of_range_is_named(composed, override, message):
    with pytest.raises(UserError, match=message):
        validate(composed(override))
