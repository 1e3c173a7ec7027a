"""The user's settings win or are refused: what was given explicitly is never ignored."""

from __future__ import annotations

import pytest

from pipeline.errors import UserError
from pipeline.identity import distinguish, flat, run_name, words
from pipeline.stages.experiment import Experiment
from pipeline.validation import fix_axes


def _fixed(composed, *overrides: str):
    cfg = composed(*overrides)
    return cfg, fix_axes(cfg, list(overrides))


@pytest.mark.parametrize(
    ("overrides", "axis", "value"),
    [
        (("model.C=1",), "C", 1.0),
        (("model=svc", "model.C=100"), "C", 100.0),
        (("model.step=0.5",), "step", 0.5),
        (("model.kernel.width_scale=2",), "width_scale", 2.0),
        (("model=svc", "model.width_scale=1"), "width_scale", 1.0),
        (("model=adv_svm_d", "tune=robust", "tune.epsilon=[0,1]", "model.C=3"), "C", 3.0),
        (("model=adv_linear_svm", "tune=robust", "model.C_f=0.2"), "C_f", 0.2),
        (("model.kernel.width_scale=2", "tune.width_scale=[1,4]"), None, None),
        (("model.expansion.n_features=64", "tune.n_features=[64,128]"), None, None),
        (("model.epsilon=0.1", "tune.epsilon=[0,0.1]"), None, None),
        (("experiment=convergence", "tune=paper"), "step", 1.0),  # given in a YAML file
    ],
    ids=str,
)
def test_a_setting_given_fixes_its_axis_of_the_grid(composed, overrides, axis, value):
    if axis is None:
        with pytest.raises(UserError, match="both given: leave one of them out"):
            _fixed(composed, *overrides)
        return
    cfg, notes = _fixed(composed, *overrides)
    assert list(cfg.tune[axis]) == [value]
    assert any("is given: the grid does not vary it" in note for note in notes)


def test_nothing_given_leaves_the_grid_alone(composed):
    for overrides in ((), ("model=adv_svm_c_exact",), ("model=natural", "seed=3"), ("model.batch_size=7",)):
        cfg, notes = _fixed(composed, *overrides)
        assert (notes, len(cfg.tune.C), len(cfg.tune.step)) == ([], 7, 7)


def test_a_given_default_is_given(composed):
    cfg, notes = _fixed(composed, "model.C=1.0")  # the value that the model would have anyway
    assert list(cfg.tune.C) == [1.0]
    assert notes


def test_two_values_of_c_are_two_runs_with_names_of_their_own(composed):
    jobs = [_fixed(composed, "model=svc", f"model.C={C}")[0] for C in (1, 100)]
    assert [words(d) for d in distinguish([flat(cfg) for cfg in jobs])] == [["model.C=1.0"], ["model.C=100.0"]]
    assert len({Experiment.of(cfg, "0" * 64).signature for cfg in jobs}) == 2
    assert [run_name(cfg).rsplit(" · ", 1)[1] for cfg in jobs] == ["model.C=1.0", "model.C=100.0"]


def test_a_given_gamma_takes_the_width_out_of_the_grid(composed):
    for overrides in (("model.kernel.gamma=3",), ("model=svc", "model.gamma=3")):
        cfg, notes = _fixed(composed, *overrides)
        assert cfg.tune.width_scale is None
        assert any("gamma=3 is given: the grid does not vary the width" in note for note in notes)


def test_what_the_grid_decides_is_not_part_of_the_models_identity(composed):
    usual = composed("tune=robust", "tune.n_features=[64,128]", "tune.epsilon=[0,0.1]")
    other = usual.copy()
    other.model.C, other.model.kernel.width_scale, other.model.epsilon, other.model.expansion.n_features = 3, 9, 1, 7
    assert Experiment.of(usual, "0" * 64).signature == Experiment.of(other, "0" * 64).signature


REFUSED = {
    ("model=svc", "tune.epsilon=[0,1]"): "tune.epsilon: the model svc has no epsilon to tune",
    ("model=svc", "tune.C_f=[0.1]"): "tune.C_f: the model svc has no C_f to tune",
    ("model=adv_svm_c_exact", "tune.n_features=[64]"): "tune.n_features: the model adv_svm_c has no n_features to tune",
    ("model=natural", "tune.epsilon=[0,1]"): "tune.epsilon: a natural model has no epsilon to tune",
    ("model=adv_linear_svm", "tune.width_scale=[1,4]"): "tune.width_scale: the model adv_linear_svm has no width_scale",
    ("model=svc", "tune.step=[1]"): "tune.step: the model svc has no step to tune",
    ("model.C=1", "tune.C=[1,2]"): "model.C and tune.C are both given",
    ("model.kernel.gamma=3", "tune.width_scale=[1,4]"): "model.kernel.gamma fixes the kernel's width",
    ("model@surrogate=natural", "surrogate.C=1"): "surrogate.C: the grid of tune chooses it",
}


@pytest.mark.parametrize(("overrides", "message"), REFUSED.items(), ids=str)
def test_what_would_be_ignored_is_refused(composed, overrides, message):
    with pytest.raises(UserError, match=message):
        _fixed(composed, *overrides)


def test_without_a_grid_there_is_nothing_to_fix(composed):
    assert _fixed(composed, "tune=none", "model.C=3")[1] == []
