"""The identity of stages: what changes a key, and what must not."""

from __future__ import annotations

import pytest

from pipeline.stages.keys import code_version
from pipeline.stages.plan import attack_label, plan

DATA = "0" * 64
STAGES = ("tune", "train", "attack", "evaluate")
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
    before, after = plan(composed(), DATA), plan(composed(override), DATA)
    same = [getattr(before, stage) == getattr(after, stage) for stage in STAGES]
    cut = STAGES.index(first) if first else len(STAGES)
    assert same == [True] * cut + [False] * (len(STAGES) - cut)


@pytest.mark.parametrize(("override", "first"), FIRST_CHANGED.items(), ids=FIRST_CHANGED)
def test_certificates_belong_to_the_model_and_not_to_the_attack(composed, override, first):
    before, after = plan(composed(), DATA), plan(composed(override), DATA)
    assert (before.certify == after.certify) == (before.train == after.train)


def test_without_checks_the_certificates_are_another_stage(composed):
    assert plan(composed(), DATA).certify != plan(composed("checks=off"), DATA).certify


def test_other_data_is_another_experiment(composed):
    before, after = plan(composed(), DATA), plan(composed(), "1" * 64)
    assert all(getattr(before, stage) != getattr(after, stage) for stage in STAGES)


def test_without_tuning_c_is_part_of_the_identity(composed):
    one, other = plan(composed("tune=none"), DATA), plan(composed("tune=none", "model.C=3"), DATA)
    assert one.train != other.train


def test_natural_is_adv_svm_d_without_epsilon(composed):
    assert plan(composed("model=natural"), DATA) == plan(composed("model=adv_svm_d", "model.epsilon=0"), DATA)


def test_a_transferred_attack_says_where_its_examples_come_from(composed):
    assert attack_label(composed("model@surrogate=natural")) == "pgd from natural"


def test_comments_and_docstrings_do_not_count_as_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    texts = {
        "same_a": '"""One."""\n\n\ndef f(x):\n    """Doc."""\n    return x + 1  # why\n',
        "same_b": "def f(x):\n    return x + 1\n",
        "other": "def f(x):\n    return x + 2\n",
    }
    versions = {}
    for name, text in texts.items():
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text(text)
        versions[name] = code_version(name)
    assert versions["other"] != versions["same_b"]
    assert versions["same_a"] == versions["same_b"]
