"""Promises on which runs share a mean."""

from __future__ import annotations

from tracked_store import invented_run

from pipeline.report.content import sections_of


def test_another_expansion_or_tuning_is_another_table() -> None:
    variants = (["model=adv_svm_c"], ["model=adv_svm_c_exact"], ["model=adv_svm_c_exact", "tune=certified"])
    labels = [section.label for section in sections_of(invented_run("attack=pgd", *more) for more in variants)]
    assert len(set(labels)) == 3
    assert any("doubly stochastic" in label for label in labels)
    assert sum("exact kernel" in label for label in labels) == 2


def test_another_training_radius_is_another_row() -> None:
    (section,) = sections_of(invented_run(f"model.epsilon={epsilon}") for epsilon in ("0.25", "0.5"))
    assert [row.label for row in section.rows] == ["adv-SVM (C), ε = 0.25", "adv-SVM (C), ε = 0.5"]
    assert section.paper_rows == []


def test_another_budget_is_another_cell_and_not_the_papers() -> None:
    runs = [
        invented_run("dataset=mnist_1v7", "attack=pgd", *more, **metrics)
        for more, metrics in (
            ((), {"robust_accuracy": 0.9}),
            (("attack.epsilon=0.1",), {"robust_accuracy": 0.1}),
            ((), {"robust_accuracy": 0.5, "n_attacked": 7}),
        )
    ]
    (section,) = sections_of(runs)
    (row,) = section.rows
    assert len(row.cells) == 3
    cell = row.cell("pgd")
    assert cell is not None
    assert cell.values("robust_accuracy") == {0: 0.9}


def test_the_latest_of_equal_runs_counts() -> None:
    runs = [invented_run(started=started, robust_accuracy=started / 10) for started in (1, 3, 2)]
    (section,) = sections_of(runs)
    assert section.rows[0].cells[0].values("robust_accuracy") == {0: 0.3}


def test_linear_model_stands_in_every_table_of_its_data() -> None:
    sections = sections_of(invented_run(f"model={model}") for model in ("adv_linear_svm", "natural", "natural_exact"))
    assert len(sections) == 2
    assert all(section.row("adv_linear_svm") for section in sections)


def test_a_machine_that_makes_examples_stands_beside_one_that_makes_none() -> None:
    models = ("natural_exact", "adv_svm_examples", "adv_svm_examples model.attack_steps=3")
    (section,) = sections_of(invented_run(*f"model={model}".split()) for model in models)
    assert [row.label for row in section.rows] == [
        "Natural",
        "adv-SVM (examples)",
        "adv-SVM (examples), 3 attack steps",
    ]


def test_what_the_grid_chose_does_not_split_runs_but_a_fixed_C_does() -> None:
    (section,) = sections_of(invented_run(f"seed={seed}", f"model.C={C}") for seed, C in ((0, 1.0), (1, 2.0)))
    assert len(section.rows) == 1
    assert len(sections_of(invented_run("tune=none", f"model.C={C}") for C in (1.0, 2.0))) == 2


def test_a_width_that_the_grid_chose_is_no_remark() -> None:
    chosen, given = invented_run("model=svc"), invented_run("model=svc", "model.width_scale=2.0")
    chosen.params.update({"model.width_scale": "1.0", "chosen": "model.C,model.width_scale"})
    (section,) = sections_of([chosen])
    assert [row.label for row in section.rows] == ["SVC"]
    given.params.update({"model.width_scale": "2.0", "chosen": "model.C"})
    (section,) = sections_of([given])
    assert [row.label for row in section.rows] == ["SVC, width scale 2.0"]
