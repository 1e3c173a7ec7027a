"""The identity of stages: what changes a key, and what must not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipeline.identity import core, flat
from pipeline.stages.experiment import Experiment

DATA = "0" * 64
STAGES = ("tune", "train", "attack", "evaluate")


def keys(cfg, fingerprint: str) -> SimpleNamespace:
    return SimpleNamespace(**Experiment.of(cfg, fingerprint).entries)


# Override → the first stage whose key it changes; None: no stage.
FIRST_CHANGED = {
    "attack=fgsm": "attack",
    "attack.epsilon=0.1": "attack",
    "attack.chunk_size=64": None,
    "model@surrogate=natural": "attack",
    "evaluation.max_attacked=5": "attack",
    "evaluation.certified_radius=0.7": "evaluate",
    "checks=full": "evaluate",
    "seed=1": "train",
    "tune=wide": "tune",
    "tune.seed=1": "tune",
    "model.epsilon=0.2": "tune",
    "model/expansion=support_vectors": "tune",
    "model.expansion.cache_mb=1": None,
    "model.C=3": None,  # the grid decides C
    "compute.threads=1": None,
    "tracking.folder=elsewhere": None,
    "notes=hello": None,
}


@pytest.mark.parametrize(("override", "first"), FIRST_CHANGED.items(), ids=FIRST_CHANGED)
def test_a_setting_changes_the_keys_from_its_own_stage_on(composed, override, first):
    before, after = keys(composed(), DATA), keys(composed(override), DATA)
    same = [getattr(before, stage) == getattr(after, stage) for stage in STAGES]
    cut = STAGES.index(first) if first else len(STAGES)
    assert same == [True] * cut + [False] * (len(STAGES) - cut)


@pytest.mark.parametrize(("override", "first"), FIRST_CHANGED.items(), ids=FIRST_CHANGED)
def test_certificates_belong_to_the_model_and_not_to_the_attack(composed, override, first):
    before, after = keys(composed(), DATA), keys(composed(override), DATA)
    assert (before.certify == after.certify) == (before.train == after.train)


def test_without_checks_the_certificates_are_another_stage(composed):
    assert keys(composed(), DATA).certify != keys(composed("checks=off"), DATA).certify


def test_other_data_is_another_experiment(composed):
    before, after = keys(composed(), DATA), keys(composed(), "1" * 64)
    assert all(getattr(before, stage) != getattr(after, stage) for stage in STAGES)


def test_without_tuning_c_is_part_of_the_identity(composed):
    one, other = keys(composed("tune=none"), DATA), keys(composed("tune=none", "model.C=3"), DATA)
    assert one.train != other.train


def test_natural_is_adv_svm_d_without_epsilon(composed):
    assert keys(composed("model=natural"), DATA) == keys(composed("model=adv_svm_d", "model.epsilon=0"), DATA)


def test_a_transferred_attack_says_where_its_examples_come_from(composed):
    assert core(flat(composed("model@surrogate=natural")))["attack"] == "pgd from natural"
