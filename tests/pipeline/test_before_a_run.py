"""Refused in one line that names the setting, before a run exists."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.cores import available_cores
from pipeline.errors import UserError
from pipeline.run import as_hydra_reads, main
from pipeline.validation import check_groups, check_rows, validate
from runs import tracked

SETTINGS = {
    "seed=4294967296": "seed must be less than 4294967296",
    "tune.seed=4294967296": "tune.seed must be less than 4294967296",
    f"compute.threads={4 * available_cores() + 1}": f"compute.threads must be at most {4 * available_cores()}",
    "dataset.name=a/b": "dataset.name must be a name without /",
    "model.name=..": "model.name must be a name",
    "attack.name=''": "attack.name must be a name",
    "+surrogate=natural": "surrogate=natural: choose a model, model@surrogate=natural",
    "cache.folder=/dev/null/x": "cache.folder: cannot write to /dev/null/x",
}
TOGETHER = {
    ("model=natural", "model.epsilon=0.5"): "model.epsilon=0.5: a natural model has none",
    ("model=svc", "evaluation.convergence=true"): "evaluation.convergence: svc has no iterates",
    ("model=adv_linear_svm", "evaluation.convergence=true"): "evaluation.convergence: adv_linear_svm has no iterates",
}


@pytest.mark.parametrize(
    ("overrides", "message"), [*(((k,), v) for k, v in SETTINGS.items()), *TOGETHER.items()], ids=str
)
def test_a_setting_is_refused_by_name(composed, overrides, message):
    if overrides == ("+surrogate=natural",):
        cfg = composed()
        cfg.surrogate = "natural"
    else:
        cfg = composed(*overrides)
    with pytest.raises(UserError) as refusal:
        validate(cfg)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_groups_are_checked_before_anything_is_named_after_them(composed):
    cfg = composed()
    cfg.model = None
    with pytest.raises(UserError, match="model=None: choose one"):
        check_groups(cfg)


@pytest.mark.parametrize(
    ("counts", "message"),
    [((3, 40), r"tune.folds=5: class -1 has 3 training rows"), ((0, 40), r"all training rows are of class 1")],
)
def test_too_few_rows_are_noticed_before_the_grid(composed, counts, message):
    data = SimpleNamespace(y_train=np.repeat([-1, 1], counts))
    with pytest.raises(UserError, match=message):
        check_rows(composed(), data.y_train)


COMMANDS = {
    ("hydra/launcher=joblib",): "hydra/launcher=joblib starts the jobs of a sweep: add -m",
    ("hydra.job.chdir=true",): "hydra.job.chdir=true would move the runs",
    ("-m", "hydra.job.chdir=true"): "hydra.job.chdir=true would move the runs",
    ("--experimental-rerun", "x.pickle"): "--experimental-rerun executes what its file says",
    ("--exp=x.pickle",): "--experimental-rerun executes what its file says",
    ("-m", "seed=range(0)"): "the sweep has no jobs",
    ("attack=null",): "attack=null: choose one",
    ("attack._target_=🙂",): "attack: No module named '🙂'",
    ("dataset.max_train=6",): "tune.folds=5: class",
    ("tune.metric=${nope}",): "tune.metric: ${nope} names no setting",
    ("-m", "tune.metric=${nope}"): "tune.metric: ${nope} names no setting",
}


@pytest.mark.parametrize(("arguments", "message"), COMMANDS.items(), ids=" ".join)
def test_a_command_is_refused_in_one_line_without_a_run(run_cli, tmp_path, arguments, message):
    done = run_cli(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not tracked(tmp_path)


FLAGS = {
    ("-x",): "unrecognized arguments: -x",
    ("--config-dir",): "expected one argument",
    ("--cfg=x",): "invalid choice: 'x'",
    ("--resolve",): "--resolve goes with --cfg",
    ("-m", "--cfg=job"): "give one of --run, --multirun, --cfg",
    ("--shell-completion",): "--shell-completion: say install=bash",
    ("--shell-completion", "seed=1"): "--shell-completion: say install=bash",
}


@pytest.mark.parametrize(("arguments", "message"), FLAGS.items(), ids=" ".join)
def test_a_flag_is_refused_in_one_line(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr("sys.argv", ["pipeline.run", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert str(end.value).startswith("error: ")
    assert message in str(end.value)
    assert "\n" not in str(end.value)
    assert capsys.readouterr() == ("", "")


def test_the_command_line_is_taken_as_people_write_it(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    written = ["attack=pgd", "-m", "surrogate=natural", "dataset.path=~/Übung.npz", "notes=für alle", "seed=0,1"]
    assert as_hydra_reads(written) == [
        "-m", "attack=pgd", "model@surrogate=natural", "dataset.path='/home/ann/Übung.npz'", "notes='für alle'",
        "seed=0,1",
    ]  # fmt: skip
    assert as_hydra_reads(["seed=0,1", "--config-dir", "conf", "-m", "notes=a", "--multirun", "-m", "--cfg=job"]) == [
        "--config-dir", "conf", "-m", "--multirun", "--cfg=job", "seed=0,1", "notes=a",
    ]  # fmt: skip
    assert as_hydra_reads(["surrogate=null", "model.kernel=rbf", "notes='ü'"]) == [
        "surrogate=null",
        "model/kernel=rbf",
        "notes='ü'",
    ]
