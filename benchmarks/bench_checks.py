"""The cheap checks of a run: their time ÷ the attack's.

The checks cost some forty small batches whatever the attack, so the share falls as the attack grows. `of_model` is what
is asked once per model and shared by all attacks on it; `ratio` counts it in full.
"""

import sys

from hydra import compose, initialize_config_dir
from timing import report

from pipeline import schema
from pipeline.data import load_dataset
from pipeline.paths import conf_dir
from pipeline.stages.attack import Attack
from pipeline.stages.certify import Certify
from pipeline.stages.evaluate import Evaluate
from pipeline.stages.train import Train
from pipeline.stages.tune import Tuned

RANDOM, EXACT = "adv_svm_d", "adv_svm_d_exact"
CASES = [
    ("digits_1v7", RANDOM, "pgd"),
    *[("mnist_1v7", model, attack) for model in (RANDOM, EXACT) for attack in ("fgsm", "pgd", "cw")],
    *[("cifar10_automobile_truck", model, "pgd") for model in (RANDOM, EXACT)],
]
REPEATS = 3


def configuration(*overrides: str):
    """The resolved configuration that a run with these overrides has."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("config", [*overrides, "tune=none", "model.C=8", "model.step=2"])


def measure(dataset: str, model: str, method: str) -> None:
    """One run's stages after training; of several repetitions the least disturbed."""
    cfg = configuration(f"dataset={dataset}", f"model={model}", f"attack={method}")
    data, tuned = load_dataset(cfg.dataset), Tuned()
    trained = Train(cfg).run(data, tuned)
    attacked = min((Attack(cfg).run(data, trained) for _ in range(REPEATS)), key=lambda a: a.seconds)
    certified = min((Certify(cfg).run(data, tuned, trained) for _ in range(REPEATS)), key=lambda c: c.checks_seconds)
    seconds = min(
        Evaluate(cfg).run(data, tuned, trained, certified, attacked).metrics["checks_seconds"] for _ in range(REPEATS)
    )
    report(
        "checks",
        case=f"{dataset}, {model}, {method}",
        section="What an evaluation adds",
        what=f"the cheap checks of a run: {dataset}, {model}, {method}",
        against="the attack itself",
        ratio=seconds / attacked.seconds,
        shown=f"{seconds:.2f} s beside {attacked.seconds:.2f} s",
        cheap=dataset == "digits_1v7",
        dataset=dataset,
        model=model,
        attack=method,
        attack_seconds=attacked.seconds,
        checks_seconds=seconds,
        of_model=certified.checks_seconds,
        per_attack_ratio=(seconds - certified.checks_seconds) / attacked.seconds,
    )


if __name__ == "__main__":
    schema.register()
    for case in CASES[: int(sys.argv[1]) if len(sys.argv) > 1 else None]:
        measure(*case)
