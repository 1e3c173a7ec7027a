"""``hydra/sweeper=optuna``: what can be searched, the same trials again, and the best of them by name."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf

from hydra_plugins.advsvm.sweepers import OptunaSweeper, search_space, written
from pipeline import sweep
from pipeline.errors import UserError
from pipeline.job import Outcome
from pipeline.summary import best_job
from runs import experiments, tracked

optuna = pytest.importorskip("optuna")


def space_of(*overrides: str):
    return search_space(OverridesParser.create().parse_overrides(list(overrides)))


def test_hydras_ways_of_saying_many_values_are_distributions() -> None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    space, fixed = space_of(
        "a=interval(0.5,2)", "b=tag(log,interval(0.01,100))", "c=int(interval(1,9))", "d=range(10,50,10)",
        "e=choice(x,y)", "f=1,2", "g=range(0.5,2.0,0.5)", "model=natural",
    )  # fmt: skip
    assert fixed == ["model=natural"]
    assert space == {
        "a": FloatDistribution(0.5, 2.0),
        "b": FloatDistribution(0.01, 100.0, log=True),
        "c": IntDistribution(1, 9),
        "d": IntDistribution(10, 40, step=10),
        "e": CategoricalDistribution(["x", "y"]),
        "f": CategoricalDistribution(["1", "2"]),
        "g": CategoricalDistribution(["0.5", "1.0", "1.5"]),
    }


def test_a_later_setting_wins_over_an_earlier_one() -> None:
    assert space_of("model.C=interval(1,2)", "model.C=3") == ({}, ["model.C=3"])


@pytest.mark.parametrize("text", ["a=interval(2,1)", "a=tag(log,interval(0,1))", "a=tag(log,choice(1,2))", "a=glob(*)"])
def test_what_cannot_be_searched_is_named(text: str) -> None:
    with pytest.raises(UserError, match=r"^a: "):
        space_of(text)


def _config(folder: Path, *task: str, objective: str | None = "robust_accuracy", **settings):
    own = {"_target_": "hydra_plugins.advsvm.sweepers.OptunaSweeper", "params": {}, "n_trials": 6}
    own |= {"direction": "maximize", "batch": 1, "startup": 3, "seed": 0} | settings
    hydra = {"sweeper": own, "launcher": {}, "sweep": {"dir": str(folder)}, "overrides": {"task": list(task)}}
    return OmegaConf.create({"objective": objective, "hydra": hydra})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"objective": None}, "objective=cv_score"),
        ({"direction": "up"}, "hydra.sweeper.direction"),
        ({"n_trials": 0}, "hydra.sweeper.n_trials"),
        ({"batch": "two"}, "hydra.sweeper.batch"),
    ],
)
def test_wrong_settings_are_told_before_the_first_trial(tmp_path: Path, changes: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        OptunaSweeper.plan(_config(tmp_path, "model.C=interval(1,2)", **changes))
    unwaiting = _config(tmp_path, "model.C=interval(1,2)")
    unwaiting.hydra.launcher.wait = False
    with pytest.raises(UserError, match="wait=false"):
        OptunaSweeper.plan(unwaiting)
    with pytest.raises(UserError, match="nothing to search"):
        OptunaSweeper.plan(_config(tmp_path, "model=natural"))


class Counting:
    """Stands in for a launcher: a job's value is a function of its overrides, or a failure."""

    def __init__(self, fails: int | None = None) -> None:
        self.jobs: list[list[str]] = []
        self.fails = fails

    def launch(self, jobs, initial_job_idx):
        assert initial_job_idx == len(self.jobs)
        returns = []
        for job in jobs:
            C = float(job[-1].split("=")[1])
            value = math.nan if len(self.jobs) == self.fails else -((math.log10(C) - 1) ** 2)
            self.jobs.append(list(job))
            returns.append(JobReturn(_return_value=value, status=JobStatus.COMPLETED))
        return returns


class _Context:
    config_loader = None


def _trials(folder: Path, fails: int | None = None, **settings) -> list[list[str]]:
    config = _config(folder, **settings)
    own = {key: value for key, value in config.hydra.sweeper.items() if key != "_target_"}
    sweeper = OptunaSweeper(**own)
    sweeper.config, sweeper.hydra_context, sweeper.launcher = config, _Context(), Counting(fails)
    sweeper.validate_batch_is_legal = lambda batch: None
    sweeper.sweep(["model=natural", "model.C=tag(log,interval(0.01,1000))"])
    return sweeper.launcher.jobs


def test_the_same_command_asks_for_the_same_trials_and_goes_on(tmp_path: Path) -> None:
    first = _trials(tmp_path, n_trials=4)
    assert len(first) == 4
    assert all(job[0] == "model=natural" for job in first)
    assert len({job[1] for job in first}) == 4
    assert _trials(tmp_path, n_trials=12)[:4] == first
    assert _trials(tmp_path, n_trials=4, seed=1) != first


def test_it_learns_from_what_the_jobs_return(tmp_path: Path) -> None:
    def distance(jobs):
        return [abs(math.log10(float(job[1].split("=")[1])) - 1) for job in jobs]

    found = distance(_trials(tmp_path, n_trials=40))
    # The best C is 10; drawn at random from these five decades, it is missed by one and a half of them on average.
    assert sum(found[-20:]) / 20 < 1.0
    other = distance(_trials(tmp_path, n_trials=40, direction="minimize"))
    assert sum(other[-20:]) / 20 > 1.5


def test_a_failed_trial_does_not_stop_the_search_and_batches_are_kept(tmp_path: Path) -> None:
    assert len(_trials(tmp_path, fails=2, n_trials=7, batch=3)) == 7


def test_numbers_of_trials_stay_readable() -> None:
    assert [written(v) for v in (0.123456789, 3, "rbf", 1e-7)] == ["0.123457", "3", "rbf", "1e-07"]


def test_the_best_job_is_named_by_what_it_has_of_its_own(tmp_path: Path) -> None:
    cfg = OmegaConf.create({"objective": "robust_accuracy"})
    jobs = [["model=svc", f"model.C={C}"] for C in (1, 2, 3, 4)]
    values = [0.5, 0.7, math.nan, 0.6]
    results = [Outcome("finished", {}, run_id=str(C), metrics={"robust_accuracy": v}) for C, v in enumerate(values)]
    results[3].status = "failed"
    best = best_job(sweep.Sweep("s", tmp_path, jobs, cfg), results)
    assert str(best) == "best robust_accuracy 0.7: job 2, model.C=2"
    worst = best_job(sweep.Sweep("s", tmp_path, jobs, cfg, maximize=False), results)
    assert worst is not None
    assert (worst.number, worst.run_id) == (0, "0")
    assert best_job(sweep.Sweep("s", tmp_path, jobs, OmegaConf.create({"objective": None})), results) is None


def test_more_trials_go_on_with_the_same_sweep(run_cli, tmp_path: Path) -> None:
    quick = ("tune=none", "attack=fgsm", "evaluation.max_attacked=8", "figures=off", "checks=off", "model=svc")
    search = ("-m", "hydra/sweeper=optuna", "objective=robust_accuracy", "model.C=tag(log,interval(0.1,10))", *quick)
    first = run_cli(*search, "hydra.sweeper.n_trials=2")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "[2 of 2]" in first.stdout
    again = run_cli(*search, "hydra.sweeper.n_trials=3")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "3 jobs: 1 finished, 2 reused" in again.stdout
    assert "best robust_accuracy " in again.stdout
    # The sampler is told the same numbers, to the last digit: it would ask for other trials else.
    told = [
        [json.loads((folder / str(job) / "result.json").read_text())["metrics"] for job in (0, 1)]
        for folder in sorted(path for path in (tmp_path / "multirun").glob("*/*") if path.is_dir())
    ]
    assert len(told) == 2
    assert told[0] == [{name: metrics[name] for name in own} for own, metrics in zip(*told, strict=True)]
    (summary,) = tracked(tmp_path, role="summary")
    assert summary["tags"]["best"].startswith("model.C=")
    found = experiments(tmp_path)
    assert {run["tags"]["sweep"] for run in found} == {summary["tags"]["sweep"]}
    assert summary["tags"]["best_run"] in {run["id"] for run in found}
    refused = run_cli("hydra/sweeper=optuna", *quick)
    assert refused.stderr.strip() == "error: hydra/sweeper=optuna chooses the jobs of a sweep: add -m"
