"""The report on a user's own files: they are told apart, and the commands it offers can be run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from attacks import PGD, NoAttack
from pipeline.checks.context import CheckContext
from pipeline.report.build import _own_file
from pipeline.report.content import _distinguish
from pipeline.report.variants import tune_label


def section(digest: str, **dataset: str) -> Any:
    run = SimpleNamespace(params={f"dataset.{key}": value for key, value in dataset.items()})
    setup = SimpleNamespace(kernel=(("width_scale", "4"),), tune=(("metric", "accuracy"),), digest=digest)
    return SimpleNamespace(dataset="csv", label="exact kernel", setup=setup, rows=[SimpleNamespace(runs=[run])])


def test_two_files_are_two_tables_named_after_what_differs():
    sections = [
        section("a" * 8, path="/data/one.csv", scale="minmax"),
        section("b" * 8, path="/data/two.csv", scale="minmax"),
    ]
    _distinguish(sections)
    assert [one.label for one in sections] == ["exact kernel · path = one.csv", "exact kernel · path = two.csv"]
    sections = [section("a" * 8, path="one.csv", scale=scale) for scale in ("minmax", "standard")]
    _distinguish(sections)
    assert [one.label for one in sections] == ["exact kernel · scale = minmax", "exact kernel · scale = standard"]
    sections = [section(digest * 8, path="one.csv") for digest in "ab"]  # another content under the same name
    _distinguish(sections)
    assert [one.label for one in sections] == ["exact kernel · data aaaaaaaa", "exact kernel · data bbbbbbbb"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"path": "my rows.csv", "label": "species", "scale": "standard", "classes": "None"},
         " 'dataset.path=my rows.csv' dataset.label=species dataset.scale=standard"),
        ({"id": "31", "path": "None", "classes": "None"}, " dataset.id=31"),
        ({"path": "None", "classes": "[1, 7]"}, ""),
    ],
)  # fmt: skip
def test_an_offered_command_names_the_users_file(params, words):
    assert _own_file([SimpleNamespace(section=section("a", **params))]) == words
    assert _own_file([]) == ""


def test_no_attack_is_not_blamed_for_moving_nothing():
    def parts(attack: Any) -> list[Any]:
        threat = SimpleNamespace(epsilon=attack.epsilon)
        only = SimpleNamespace(attack=attack, bounded=True, threat=threat)
        return CheckContext.parts.func(SimpleNamespace(results=[only]))

    assert parts(NoAttack(epsilon=0.3)) == []
    assert len(parts(PGD(epsilon=0.3))) == 1


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"model.path": "m.skops"}, "not tuned"),
        ({"model.C": "2.0"}, "not tuned (C = 2.0)"),
        ({"model.C": "2.0", "model.step": "0.5"}, "not tuned (C = 2.0, step = 0.5)"),
    ],
)
def test_only_settings_that_a_model_has_are_said_to_be_untuned(params, words):
    assert tune_label(params | {"tune.enabled": "False"}) == words
