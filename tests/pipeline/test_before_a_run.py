"""Refused in one line that names the setting, before a run exists."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.cores import available_cores
from pipeline.errors import UserError
from pipeline.run import as_hydra_reads, main
from pipeline.validation import check_groups, check_rows, validate
from runs import tracked

SETTINGS = {
    "tune.seed=4294967296": "tune.seed must be less than 4294967296",
    f"compute.threads={4 * available_cores() + 1}": f"compute.threads must be at most {4 * available_cores()}",
}


@pytest.mark.parametrize(("override", "message"), SETTINGS.items(), ids=str)
def test_a_setting_is_refused_by_name(composed, override, message):
    with pytest.raises(UserError, match=message):
        validate(composed(override))
    validate(composed(override.replace("=4294967296", "=4294967295").replace(f"={4 * available_cores() + 1}", "=1")))


def test_a_surrogate_that_is_no_model_is_refused(composed):
    cfg = composed()
    cfg.surrogate = "natural"
    with pytest.raises(UserError, match="surrogate=natural: choose a model, model@surrogate=natural"):
        validate(cfg)


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


CONVERGENCE = ("evaluation.convergence=true", "tune=none")
# Setting (or what else is wrong) → command lines, and a part of the line that each is answered with.
COMMANDS = {
    "seed": {
        ("seed=4294967296",): "seed must be less than 4294967296",
        ("seed={a: 1}",): "error: seed: ",
        ("notes={a: 'b c'}",): "error: notes: Cannot convert 'dict' to string",
        ("seed=-1",): "seed must be at least 0",
        ("seed=99999999999999999999",): "seed must be less than 4294967296",
    },
    "split_seed": {
        ("dataset.split_seed=4294967296",): "dataset.split_seed: 4294967296",
        ("dataset.split_seed=-1",): "dataset.split_seed: -1",
    },
    "threads": {
        ("compute.threads=100000",): f"compute.threads must be at most {4 * available_cores()}",
        ("compute.threads=999999999",): f"compute.threads must be at most {4 * available_cores()}",
        ("compute.threads=0",): "compute.threads must be at least 1",
    },
    "folds": {
        ("dataset.max_train=6",): "tune.folds=5: class",
        ("tune.folds=200",): "tune.folds=200: class",
        ("tune.folds=1",): "tune.folds must be at least 2",
    },
    "one training row in a class": {
        ("dataset=npz", "dataset.path=lonely.npz"): "dataset.path: class 1 has fewer than two rows",
    },
    "image shape": {
        ("dataset=npz", "dataset.path=rows.npz", "dataset.image_shape=[3,3]"): "dataset.image_shape: [3, 3]",
        ("dataset=npz", "dataset.path=rows.npz", "dataset.image_shape=[-4,-4]"): "dataset.image_shape: [-4, -4]",
        ("dataset=npz", "dataset.path=rows.npz", "dataset.image_shape=abc"): "dataset.image_shape: 'abc'",
    },
    "cache.folder": {
        ("cache.folder=/dev/null/x",): "cache.folder: cannot write to /dev/null/x",
        ("cache.folder=rows.npz",): "cache.folder: cannot write to ",
    },
    "names": {
        ("dataset.name=a/b",): "dataset.name must be a name without /",
        ("model.name=..",): "model.name must be a name without /",
        ("attack.name=''",): "attack.name must be a name without /",
    },
    "groups": {
        ("attack=null",): "attack=null: choose one",
        ("attack=[]",): "attack: choose one",
        ("dataset=null",): "dataset=null: choose one",
        ("surrogate=naturl",): "no such choice",
        ("attack._target_=🙂",): "attack._target_=🙂: no class to be had (No module named '🙂')",
        ("model._target_=<b>", "evaluation.convergence=true"): "model._target_=<b>: no class to be had",
    },
    "convergence": {
        ("model=svc", "evaluation.convergence=true"): "evaluation.convergence: svc has no iterates",
        ("model=adv_linear_svm", "evaluation.convergence=true"): "evaluation.convergence: adv_linear_svm has no",
        (*CONVERGENCE, "dataset=digits"): "evaluation.convergence knows the optimum of two classes",
        (*CONVERGENCE, "dataset=npz", "dataset.path=many.npz"): "of at most 400 training rows, there are 450",
        (
            *CONVERGENCE,
            "model.expansion=fixed_features",
        ): "evaluation.convergence: the iterates of this model.expansion",
    },
    "natural": {("model=natural", "model.epsilon=0.5"): "model.epsilon=0.5: a natural model has none"},
    "tracking": {
        ("tracking.experiment=",): "tracking.experiment has no value",
        ("tracking.folder=",): "tracking.folder has no value",
    },
    "somebody's home": {
        ("dataset=npz", "dataset.path=~nobody-here/x.npz"): "~nobody-here/x.npz does not exist",
        ("model=fitted", "model.path=~nobody-here/x.skops"): "~nobody-here/x.skops does not exist",
    },
    "nothing there": {
        ("~seed",): "~seed: this setting cannot be taken out",
        ("~evaluation",): "~evaluation: this setting cannot be taken out",
        ("~tune.folds",): "~tune.folds: TuneConf (DictConfig) does not support deletion",
        ("++hydra.sweeper.params.seed=0",): "++hydra.sweeper.params.seed=0: what it would be a part of has no value",
    },
    "chdir": {("hydra.job.chdir=true",): "hydra.job.chdir=true would move the runs"},
    "references": {
        ("tune.metric=${nope}",): "tune.metric: ${nope} names no setting",
        ("evaluation.metrics=${seed}",): "evaluation.metrics must be a list, [A,B]; got 0",
        ("trusted=${seed}", "seed=1"): "trusted must be a list, [A,B]; got 1",
        ("hydra.verbose=${seed}",): "hydra.verbose must be true, false or the name of a logger; got 0",
        ("tune.C=${seed}",): "tune.C must be a list, [A,B]; got 0",
        ("tune.C=${evaluation.metrics}", "evaluation.metrics=[a.b]", "trusted=[a]"): "tune.C must hold numbers",
    },
}
LINES = [(arguments, message) for lines in COMMANDS.values() for arguments, message in lines.items()]
# Wrong with -m or without it only.
LINES_OF_ONE_KIND = {
    ("hydra/launcher=joblib",): "hydra/launcher=joblib starts the jobs of a sweep: add -m",
    ("hydra/launcher=slurm",): "hydra/launcher=slurm starts the jobs of a sweep: add -m",
    ("hydra/sweeper=optuna",): "hydra/sweeper=optuna chooses the jobs of a sweep: add -m",
    ("--experimental-rerun", "x.pickle"): "--experimental-rerun executes what its file says",
    ("--exp=x.pickle",): "--experimental-rerun executes what its file says",
    ("seed=0,1",): "seed=0,1: several values make a sweep, add -m",
    ("-m", "seed=range(0)"): "the sweep has no jobs",
    ("seed=range(0)", "-m"): "the sweep has no jobs",
    ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=0"): "hydra.launcher.n_jobs must be a whole number other",
    ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=x"): "hydra.launcher.n_jobs must be a whole number other",
    ("-m", "hydra/launcher=joblib", "hydra.launcher.verbose=1"): "hydra.launcher.verbose: no such setting",
}


@pytest.fixture
def folder(tmp_path):
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", X=draw.random((40, 16)), y=np.arange(40) % 2)
    np.savez(tmp_path / "many.npz", X=draw.random((600, 2)), y=np.arange(600) % 2)
    np.savez(tmp_path / "lonely.npz", X=draw.random((5, 16)), y=[0, 0, 0, 0, 1])
    return tmp_path


def _assert_refused(command, folder, arguments, message):
    done = command(*arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not re.search(r"[A-Z]\w+(Error|Exception)", done.stderr)
    assert not tracked(folder)


@pytest.mark.parametrize(("arguments", "message"), LINES, ids=[" ".join(arguments) for arguments, _ in LINES])
def test_a_command_is_refused_in_one_line_without_a_run(command, folder, arguments, message):
    _assert_refused(command, folder, arguments, message)


def test_a_class_that_is_not_there_is_refused_beside_finished_stages_too(command, folder):
    """Whether a run was computed before is asked first, and its keys need the class."""
    (folder / "mlruns" / "stages").mkdir(parents=True)
    done = command("model._target_=nowhere.Model")
    assert done.stderr == "error: model._target_=nowhere.Model: no class to be had (No module named 'nowhere')\n"


# Of each kind one in a sweep as well: there the driver looks first, and a job that gets further looks again.
@pytest.mark.parametrize(
    ("arguments", "message"), [next(iter(lines.items())) for lines in COMMANDS.values()], ids=list(COMMANDS)
)
def test_a_sweep_is_refused_without_a_run(command, folder, arguments, message):
    done = command(*arguments, "-m")
    assert done.returncode == 1
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not tracked(folder, role="experiment")
    assert "RUNNING" not in {run["status"] for run in tracked(folder)}


@pytest.mark.parametrize(("arguments", "message"), LINES_OF_ONE_KIND.items(), ids=map(" ".join, LINES_OF_ONE_KIND))
def test_what_goes_with_a_sweep_only_or_never_is_refused(command, folder, arguments, message):
    _assert_refused(command, folder, arguments, message)


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
    # Of a group that is swept, so that Hydra does not ask its default choice for the setting.
    swept = ["-m", "model=dnn_free,dnn_mart", "model.epochs=8", "attack.epsilon=0.1", "model.learning_rate=0.1,0.2"]
    assert as_hydra_reads(swept) == [*swept[:2], "model.epochs=choice(8)", *swept[3:]]
    assert as_hydra_reads(swept[1:]) == swept[1:]
    assert as_hydra_reads(["surrogate=null", "model.kernel=rbf", "notes='ü'"]) == [
        "surrogate=null",
        "model/kernel=rbf",
        "notes='ü'",
    ]
