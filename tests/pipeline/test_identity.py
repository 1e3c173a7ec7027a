"""One identity: what tells runs apart is computed in one place, from resolved settings, never from a name alone."""

from __future__ import annotations

import pytest
from hypothesis import given as each
from hypothesis import strategies as st

from pipeline.identity import decisive, distinguish, flat, run_name, words

START = "adv_svm_c · pgd · digits_1v7 · seed 0"
NAMES = {
    (): START,
    ("model=adv_svm_c_exact",): f"{START} · support_vectors",
    ("attack.epsilon=0.06274509803921569",): f"{START} · attack.epsilon=16/255",
    ("tune=none", "model.C=3"): f"{START} · tune=none · model.C=3.0",
    ("tune=certified",): f"{START} · tune=certified",
    ("dataset.classes=[3,8]",): f"{START} · classes=[3, 8]",
    ("dataset=csv", "dataset.box={age:[0,120]}"): "adv_svm_c · pgd · csv · seed 0 · box.age=[0, 120]",
    ("evaluation.l2_cap=2",): f"{START} · l2_cap=2.0",
    ("attack.chunk_size=64", "tracking.folder=elsewhere", "compute.threads=1"): START,
}


@pytest.mark.parametrize(("overrides", "name"), NAMES.items(), ids=" ".join)
def test_a_run_is_named_by_everything_that_is_not_as_usual(composed, overrides, name):
    assert run_name(composed(*overrides)) == name


def _told(composed, *jobs: tuple[str, ...]) -> list[list[str]]:
    return [words(d) for d in distinguish([flat(composed(*job)) for job in jobs])]


def test_two_configurations_of_one_model_are_told_apart(composed):
    told = _told(composed, ("model=adv_svm_c",), ("model=adv_svm_c_exact",))
    assert told == [["doubly_stochastic"], ["support_vectors"]]


def test_what_follows_from_a_name_is_not_said_twice(composed):
    assert _told(composed, ("model=natural",), ("model=svc",), ("model=adv_svm_c",)) == [[], [], []]
    assert _told(composed, (), ("tune=certified",)) == [["tune=accuracy"], ["tune=certified"]]


def test_a_swept_setting_is_said_where_it_varies(composed):
    told = _told(composed, (), ("attack.epsilon=0.1",), ("attack=fgsm",))
    assert told == [["attack.epsilon=0.0625"], ["attack.epsilon=0.1"], []]


def test_without_a_grid_its_axes_tell_nothing_apart(composed):
    assert _told(composed, ("tune=none",), ("tune=none", "tune.C=[1.0, 2.0]")) == [[], []]
    assert run_name(composed("tune=none", "tune.C=[1.0, 2.0]")) == run_name(composed("tune=none"))


def test_seeds_are_repetitions_of_one_experiment(composed):
    assert _told(composed, (), ("seed=1",)) == [[], []]
    assert _told(composed, ("tune.seed=${seed}",), ("seed=1", "tune.seed=${seed}")) == [[], []]


def test_a_setting_that_changes_with_the_seed_is_not_averaged_over(composed):
    assert _told(composed, (), ("seed=1", "attack.steps=20")) == [["attack.steps=10"], ["attack.steps=20"]]


KEYS = st.sampled_from(["model.C", "attack.epsilon", "evaluation.l2_cap", "tune.folds", "dataset.max_train"])
RUNS = st.lists(
    st.fixed_dictionaries(
        {"model.name": st.sampled_from("ab"), "attack.name": st.sampled_from("pq"), "seed": st.sampled_from("01")},
        optional={key: st.sampled_from("12") for key in KEYS.elements},
    ),
    min_size=1,
    max_size=6,
)


@each(RUNS)
def test_two_runs_look_alike_exactly_when_they_differ_in_nothing_but_the_seed(runs):
    shown = [(run["model.name"], run["attack.name"], tuple(d.items())) for run, d in zip(runs, distinguish(runs))]
    rest = [{key: value for key, value in decisive(run).items() if key != "seed"} for run in runs]
    for one, its in zip(shown, rest):
        for other, theirs in zip(shown, rest):
            assert (one == other) == (its == theirs)
