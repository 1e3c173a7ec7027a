"""Every check fails on a run that breaks its promise: a check that cannot fail is a defect."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import oracles_broken as broken
import pytest
import torch

from attacks import FGSM, PGD, CarliniWagner
from pipeline.checks import strength
from pipeline.checks.gradients import Slopes
from pipeline.checks.registry import all_checks
from pipeline.data.windows import row_digests
from pipeline.stages.tune import Tune, Tuned

STRONG = 0.2  # an L∞ radius at which the digits models lose a good part of their accuracy


@pytest.mark.parametrize("model", [broken.StretchedGradient, broken.ShuffledGradient, broken.HingeGradient])
def test_broken_gradients_fail_01(make, judge, model):
    check = judge("01", make(model=model))
    assert check.status == "fail"
    assert max(check.evidence["relative_error_along_gradient"], check.evidence["relative_error_by_coordinate"]) > 5e-3


@pytest.mark.parametrize("model", [broken.MostlyRightGradient, broken.RightAtDataGradient, broken.HalfGradient])
@pytest.mark.parametrize("kind", ["model/expansion=support_vectors", "model/expansion=doubly_stochastic", "model=svc"])
def test_gradients_that_are_right_in_part_fail_01(make, judge, monkeypatch, model, kind):
    monkeypatch.setattr(broken.RightAtDataGradient, "known", make().data.X_test)
    assert judge("01", make(kind, model=model)).status == "fail"


def test_a_wrong_gradient_of_a_very_wide_kernel_fails_01(make, judge, flowers):
    """Where differences are taken in float64 it is still the model's own gradient that is judged."""
    settings = {"data": flowers(), "retrain": True}
    honest = make("model=svc", "model.gamma=0.0003", **settings)
    assert judge("01", honest).status == "pass"
    stretched = broken.StretchedSVC.from_state(*honest.model.get_state())
    assert judge("01", make("model=svc", "model.gamma=0.0003", victim=stretched, **settings)).status == "fail"


def test_scores_that_jump_from_point_to_point_fail_01(make, judge):
    check = judge("01", make(model=broken.HashedNoise))
    assert check.status == "fail"
    assert "jump" in check.message


def test_noisy_scores_fail_02(make, judge):
    assert judge("02", make(model=broken.NoisyScores)).status == "fail"


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (torch.nn.Dropout(0.1), "dropout"),
        (torch.nn.BatchNorm1d(128), "batch statistics that are not frozen"),
    ],
    ids=["dropout", "batch_norm"],
)
def test_a_network_left_in_training_mode_fails_02(make, judge, layer, reason):
    altered = broken.LeftInTraining(make("model=dnn_natural").model, layer)
    check = judge("02", make("model=dnn_natural", victim=altered))
    assert check.status == "fail"
    assert reason in check.message
    altered.network.eval()
    assert judge("02", make("model=dnn_natural", victim=altered)).status == "pass"


def test_an_attack_that_ignores_the_box_fails_03(make, judge):
    check = judge("03", make(by=broken.OutsidePGD(epsilon=STRONG)))
    assert check.status == "fail"
    assert "outside [0, 1]" in check.message
    assert "is left" in check.message


def test_a_suite_that_counts_what_lies_outside_its_ball_fails_03(make, judge):
    """Once all did: an unbounded member broke every point somewhere, and robust accuracy was always 0."""
    honest = make("attack=suite", "attack.epsilon=0.2", "evaluation.max_attacked=30")
    assert judge("03", honest).status == "pass"
    result, anywhere = honest.attacked.result, CarliniWagner(steps=20)(honest.model, honest.X, honest.y)
    names = ("examples", "scores", "success", "distortion_l2", "distortion_linf")
    everything = {name: getattr(anywhere, name) for name in names}
    for changed in (
        replace(result, **everything),
        replace(result, results=result.results | {"cw": replace(anywhere, threat=result.threat)}),
    ):
        check = judge("03", replace(honest, attacked=replace(honest.attacked, result=changed)))
        assert check.status == "fail"
        assert "is left" in check.message


def test_misstated_distortions_fail_03(make, judge):
    def understate(attacked):
        return replace(attacked, result=replace(attacked.result, distortion_l2=0.5 * attacked.result.distortion_l2))

    assert "misstated" in judge("03", make(alter=understate)).message


def test_accuracy_above_clean_fails_04(make, judge):
    """As in the paper's table, where an attacked accuracy is above the clean one."""
    X_wrong = np.zeros(91, dtype=bool)
    X_wrong[:3] = True

    def repair(attacked):
        return replace(attacked, clean_wrong=X_wrong)

    context = make(alter=repair)
    check = judge("04", replace(context, correct=~X_wrong))
    assert check.status == "fail"
    assert check.evidence["repaired"] == 3


def test_a_run_with_other_wrong_points_than_the_model_fails_04(make, judge):
    """Points the attack broke, said to have been wrong before: the attack's success rate would be 0."""
    honest = make("attack.epsilon=0.2")
    assert judge("04", honest).status == "pass"
    assert honest.attacked.result.success.any()
    told = replace(honest.attacked, clean_wrong=honest.attacked.result.success)
    assert "others than the model's" in judge("04", replace(honest, attacked=told)).message


def test_a_model_that_predicts_by_another_threshold_than_it_is_attacked_fails_04(make, judge):
    context = make("attack.epsilon=0.2", model=broken.OtherThreshold)
    told = replace(context.attacked, clean_wrong=context.attacked.result.already_misclassified)
    check = judge("04", replace(context, attacked=told, correct=~told.clean_wrong))
    assert check.status == "fail"
    assert "predict names other classes" in check.message


def test_examples_that_count_only_where_the_model_is_sure_fail_04(make, judge):
    """One row among those not scored again is enough: the attack's own scores tell."""
    honest = make("attack.epsilon=0.2")
    result, looked = honest.attacked.result, honest.spread(32)
    forgotten = np.setdiff1d(np.flatnonzero(result.success), looked)[:1]
    success = result.success.copy()
    success[forgotten] = False
    check = judge("04", replace(honest, attacked=replace(honest.attacked, result=replace(result, success=success))))
    assert check.status == "fail"
    assert check.evidence["uncounted"] == 1
    assert judge("04", make(by=broken.DoubtfulPGD(epsilon=0.2))).status == "fail"


def test_an_attack_in_a_box_of_its_own_fails_03(make, judge):
    """Between the smallest and largest values of the test rows: pixels that are always 0 cannot be touched."""
    X = make().data.X_test
    check = judge("03", make(by=PGD(epsilon=STRONG, box=(X.min(axis=0), X.max(axis=0)))))
    assert check.status == "fail"
    assert "another box" in check.message


def test_success_that_is_none_fails_04(make, judge):
    def boast(attacked):
        return replace(attacked, result=replace(attacked.result, success=np.ones_like(attacked.result.success)))

    assert judge("04", make(alter=boast)).status == "fail"


def test_a_pgd_that_hardly_moves_fails_05(make, judge):
    weak = PGD(epsilon=STRONG, steps=2, step_size=1e-4)
    check = judge("05", make(by=weak))
    assert check.status == "fail"
    assert check.evidence["pgd_broken_by_the_other"] > 1


def test_an_attack_that_tires_fails_06(make, judge):
    assert judge("06", make(by=broken.TiringPGD(epsilon=STRONG))).status == "fail"


def test_an_attack_weaker_in_a_larger_ball_fails_07(make, judge):
    assert judge("07", make(by=broken.TimidPGD(epsilon=STRONG))).status == "fail"


def test_an_attack_that_moves_at_epsilon_zero_fails_08(make, judge):
    assert judge("08", make(by=broken.StubbornFGSM(epsilon=STRONG))).status == "fail"


def test_an_examples_free_of_charge_fail_08(make, judge):
    def free(attacked):
        return replace(attacked, result=replace(attacked.result, distortion_l2=0.0 * attacked.result.distortion_l2))

    assert judge("08", make(by=CarliniWagner(steps=5, binary_search_steps=1), alter=free)).status == "fail"


def test_the_last_bit_of_a_division_does_not_fail_08(make, judge, monkeypatch):
    """1 - 39/200 and 161/200 differ by an ulp; that was once reported as a failure."""
    import attacks

    honest = attacks.accuracy_at
    monkeypatch.setattr(attacks, "accuracy_at", lambda result, cap: np.nextafter(honest(result, cap), 2.0))
    assert judge("08", make(by=CarliniWagner(steps=5, binary_search_steps=1))).status == "pass"


def test_a_model_of_one_class_fails_09(make, judge):
    assert judge("09", make(model=broken.OneClass)).status == "fail"


def test_an_attack_that_leaves_nothing_standing_passes_10_and_11(make, judge):
    """An exception inside a check counts as a failure: no points to try must not raise one."""
    everything = PGD(epsilon=1.0, steps=20)

    def all_broken(attacked):
        return replace(attacked, result=replace(attacked.result, success=np.ones_like(attacked.result.success)))

    for number in ("05", "10", "11"):
        assert judge(number, make(by=everything, alter=all_broken)).status == "pass"


def test_masked_gradients_fail_10(make, judge):
    check = judge("10", make("attack.epsilon=0.3", model=broken.HingeGradient))
    assert check.status == "fail"
    assert "score queries" in check.message


def test_a_black_box_stronger_than_gradients_fails_10(make, judge):
    class BlackBox(CarliniWagner):
        needs_gradients = False

    honest = make("evaluation.l2_cap=2.0", by=BlackBox(steps=5, binary_search_steps=1))
    blind = replace(honest, trained=replace(honest.trained, model=broken.HingeGradient(honest.model)))
    check = judge("10", blind)
    assert check.status == "fail"
    assert "gradients miss" in check.message


@pytest.mark.parametrize("attacked", [91, 2163, 100_000])
def test_a_few_tried_points_can_fail_however_many_were_attacked(attacked):
    """A tolerance in points of accuracy is more than all that were tried once the test set is large."""
    context = SimpleNamespace(y=np.zeros(attacked))
    statuses = [strength.judge("PGD", np.arange(16) < n, context, tolerance=0.01).status for n in (0, 1, 3, 16)]
    assert statuses == ["pass", "warn", "fail", "fail"]


def test_an_idle_attack_is_beaten_by_noise_11(make, judge):
    check = judge("11", make(by=broken.IdlePGD(epsilon=0.6)))
    assert check.status == "fail"
    assert "noise" in check.message


def test_a_minimum_norm_attack_that_goes_far_fails_12(make, judge):
    check = judge("12", make("evaluation.l2_cap=2.0", by=broken.FarCarliniWagner(steps=5, binary_search_steps=1)))
    assert check.status == "fail"
    assert "PGD-L2" in check.message


def test_unreported_failures_fail_12(make, judge):
    def hide(attacked):
        success = attacked.result.success.copy()
        success[:5] = False
        return replace(attacked, result=replace(attacked.result, success=success))

    check = judge("12", make(by=CarliniWagner(steps=5, binary_search_steps=1), alter=hide))
    assert check.status == "fail"
    assert "does not say so" in check.message


def test_hinge_gradients_fail_13(make, judge):
    assert judge("13", make(model=broken.HingeGradient)).status == "fail"


def test_a_few_masked_rows_fail_13(make, judge):
    """A row without a slope leaves after one look, a healthy one takes every step: shares are of rows."""
    check = judge("13", make(model=broken.FewDeadRows))
    assert check.status == "fail"


def test_a_budget_too_small_fails_14(make, judge):
    assert judge("14", make(by=PGD(epsilon=STRONG, steps=4, step_size=STRONG / 20))).status == "fail"


def test_an_attack_that_does_nothing_fails_15(make, judge):
    """As a leading toolbox does on an SVC, reporting full robustness without a word."""
    check = judge("15", make(by=broken.IdlePGD(epsilon=STRONG)))
    assert check.status == "fail"
    assert "no point" in check.message


@pytest.mark.parametrize(
    "kind",
    [
        "model/expansion=support_vectors",
        "model/expansion=fixed_features",
        "model/expansion=doubly_stochastic",
        "model=svc",
        "model=adv_linear_svm",
    ],
)
def test_a_certificate_ten_percent_too_large_fails_16(make, judge, kind):
    check = judge("16", make(kind, model=broken.InflatedCertificate))
    assert check.status == "fail"
    assert check.evidence["beaten_by_search"] > 0


@pytest.mark.parametrize("kind", ["model/expansion=support_vectors", "model/expansion=doubly_stochastic", "model=svc"])
def test_a_certificate_too_large_fails_16_where_one_class_is_rare(make, judge, kind):
    """The points between the classes give the check its power: a rare class must not hide them."""
    digits = make().data
    negative, positive = (np.flatnonzero(side) for side in (digits.y_test < 0, digits.y_test > 0))
    rows = np.insert(np.tile(negative, 3), [20, 21, 22, 23], positive[:4])
    data = replace(digits, X_test=digits.X_test[rows], y_test=digits.y_test[rows], test_ids=digits.test_ids[rows])
    context = make(kind, model=broken.InflatedCertificate, data=data)
    assert (context.sample_scores < 0).all()
    check = judge("16", context)
    assert check.status == "fail"
    assert check.evidence["near_boundary"] == 4


def test_an_example_inside_its_radius_fails_16(make, judge):
    def inside(attacked):
        return replace(attacked, result=replace(attacked.result, success=np.ones_like(attacked.result.success)))

    assert judge("16", make(alter=inside)).evidence["beaten_by_the_run"] > 0


@pytest.mark.parametrize("norm", [("attack.epsilon=0.2",), ("attack.epsilon=1.2", "attack.norm=l2")])
@pytest.mark.parametrize("kind", ["model/expansion=support_vectors", "model=svc", "model=adv_linear_svm"])
def test_a_certificate_in_the_runs_own_threat_is_held_to_it_16(make, kind, norm):
    """In L∞ as in L2: points broken there and called certified, or certified and broken by a search, are told."""
    honest = make(kind, *norm)
    (entry,) = [entry for entry in all_checks() if entry.id.startswith("16")]
    assert entry.of_run(honest).status == "pass"
    broken_there, all_certified = honest.verdicts.broken, np.ones_like(honest.verdicts.certified)
    assert broken_there.any()
    boast = replace(honest, verdicts=replace(honest.verdicts, certified=all_certified))
    assert entry.of_run(boast).evidence["certified_and_broken"] == broken_there.sum()
    # The run's attack is blind to it: it broke nothing at all.
    blind = replace(honest, verdicts=replace(honest.verdicts, certified=all_certified, broken=~all_certified))
    check = entry.of_run(blind)
    assert check.status == "fail"
    assert "a search breaks" in check.message


def test_a_suite_that_forgets_an_attack_fails_17(make, judge):
    def forget(attacked):
        return replace(attacked, result=replace(attacked.result, success=attacked.result.already_misclassified))

    strong = ("attack.epsilon=0.3", "attack.attacks.zoo.max_queries=2000", "attack.attacks.cw.steps=5")
    check = judge("17", make("attack=suite", *strong, "evaluation.max_attacked=30", alter=forget))
    assert check.status == "fail"
    assert check.evidence["disagreeing"] > 0


def test_an_unseeded_fit_fails_18(make, judge):
    check = judge("18", make("model._target_=oracles_broken.UnseededSVM"))
    assert check.status == "fail"
    assert check.evidence["differing"]


def test_test_rows_leaked_into_training_fail_19(make, judge):
    honest = make()
    data = honest.data
    leaked = replace(
        data,
        X_train=np.concatenate([data.X_train, data.X_test[:5]]),
        y_train=np.concatenate([data.y_train, data.y_test[:5]]),
        train_ids=np.concatenate([data.train_ids, data.test_ids[:5]]),
    )
    check = judge("19", make(data=leaked))
    assert check.status == "fail"
    assert check.evidence["of_these_with_the_same_id"] == 5


def test_copies_under_other_ids_fail_19(make, judge):
    data = make().data
    copied = np.concatenate([data.X_test[:20], data.X_train[20:]])
    assert "copies" in judge("19", make(data=replace(data, X_train=copied))).message


@pytest.mark.parametrize(("part", "left"), [("fingerprint", 10), ("train_ids", 0)])
def test_missing_provenance_fails_19(make, judge, part, left):
    data = make().data
    assert judge("19", make(data=replace(data, **{part: getattr(data, part)[:left]}))).status == "fail"


def test_a_grid_that_saw_test_rows_fails_20(make, judge):
    """The rows are recorded where the grid runs, so a leak on the way to it shows."""
    honest = make("tune=paper", "tune.C=[1.0,4.0]", "tune.step=[0.0625]", "tune.folds=2")
    data = honest.data
    leaky = replace(
        data,
        X_train=np.concatenate([data.X_train, data.X_test]),
        y_train=np.concatenate([data.y_train, data.y_test]),
    )
    check = judge("20", replace(honest, tuned=Tune(honest.cfg).run(leaky)))
    assert check.status == "fail"
    assert check.evidence["test_rows"] == len(data.X_test)


@pytest.mark.parametrize("seen", [None, "half"])
def test_a_grid_with_unknown_rows_fails_20(make, judge, seen):
    honest = make("tune=paper")
    rows = None if seen is None else row_digests(honest.data.X_train[::2])
    assert judge("20", replace(honest, tuned=Tuned(seen=rows))).status == "fail"


def test_scores_summed_without_decay_fail_21(make, judge):
    """With a small C every row violates its margin, and the published code's scores cannot depend on epsilon at all."""
    check = judge("21", make("model._target_=oracles_broken.UndecayedSVM", "model.C=0.01"))
    assert check.status == "fail"
    assert "changes no score" in check.message


def test_reported_scores_without_decay_fail_21(make, judge):
    check = judge("21", make("model._target_=oracles_broken.UndecayedScoresSVM"))
    assert check.status == "fail"
    assert "last iterate" in check.message


def test_a_hidden_epsilon_fails_21(make, judge):
    check = judge("21", make("model._target_=oracles_broken.NeverNaturalSVM"))
    assert check.status == "fail"
    assert "natural" in check.message


def test_an_idle_attack_fails_the_positive_control_22(make, judge):
    check = judge("22", make(by=broken.IdlePGD(epsilon=STRONG)))
    assert check.status == "fail"
    assert "plain SVC" in check.message


def test_a_stronger_fgsm_beside_a_weak_pgd_is_compared_on_all_rows_05(make, judge):
    honest = make(by=PGD(epsilon=STRONG, steps=2, step_size=1e-4))
    from pipeline.checks.context import Part

    fgsm = FGSM(epsilon=STRONG)
    beside = Part("fgsm", fgsm, fgsm(honest.model, honest.X, honest.y), 0.5)
    honest.__dict__["parts"] = [*honest.parts, beside]
    check = judge("05", honest)
    assert check.status == "fail"
    assert check.evidence["pgd_tried"] > 32


@pytest.mark.parametrize(("stated", "judged"), [(1e-30, False), (1e-3, True)], ids=["far from all data", "masked"])
def test_equal_scores_contradict_a_slope_that_they_would_show_and_no_other(stated, judged):
    X, directions = np.full((4, 2), 0.5), np.tile([1.0, 0.0], (4, 1))
    slopes = Slopes(X, directions, np.full(4, stated), np.full(4, stated), 1.0)
    flat = SimpleNamespace(scores=lambda points: np.full(len(points), -0.5))
    errors, known = slopes.errors(flat, (1 / 32, 1 / 128, 1 / 512))
    assert known.tolist() == [judged] * 4
    assert not judged or (errors == 1.0).all()
