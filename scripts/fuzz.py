"""Random command lines, data files and damaged stores, composed from a grammar: each ends well or in one line.

    python scripts/fuzz.py MINUTES [SEED]

Every case prints its seed; ``python scripts/fuzz.py 0 SEED`` repeats one. Cases run in children of one process that has
the slow imports behind it. What is asked of every case: exit code 0, or 1 and one line that starts with "error: " and
names no exception; no traceback; no run left RUNNING; no password in anything printed or written; nothing outside the
case's folder. A command that ended well is given again and says the same of itself, or is refused again.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

SECRET = "hunter2-fuzz"
COMMANDS = ["pipeline.report", "pipeline.sync", "pipeline.cache", "pipeline.data"]
LIMIT = 120  # seconds of a processor that a case may take, and seconds by the clock that it may do nothing
QUICK = [
    "tune=none", "dataset.max_train=40", "dataset.max_test=20", "evaluation.max_attacked=3", "compute.threads=1",
    "figures=off", "evaluation.certify_seconds=0.2",
]  # fmt: skip

NUMBERS = [
    "0", "1", "-1", "0.5", "1e-9", "1e308", "1e400", "nan", "inf", "-inf", "2", "3", "4294967296",
    "99999999999999999999", "1_000", "0x10", "true", "null", "''", "abc", "[1]", "[]", "{a:1}", "1,2", "range(0)",
    "range(2)", "½", "1 ", " 1",
]  # fmt: skip
WORDS = [
    "a", "a/b", "..", "", "''", "ü", "a b", "'a b'", "[red]x[/red]", "=1+1", "<b>", "%s", "$HOME", "${seed}",
    "${oc.env:HOME}", "${nope}", "${", "a\nb", "'a\tb'", "\x1b[31mx", "null", "~", "a,b", "x" * 300, "|", "`id`",
    "../../x", "🙂", "CON", "a'b", f"http://ann:{SECRET}@h", f"postgresql://ann:{SECRET}@h/db",
]  # fmt: skip
NUMERIC = [
    "seed", "model.C", "model.step", "model.epsilon", "model.batch_size", "model.passes", "attack.epsilon",
    "attack.steps", "attack.step_size", "evaluation.max_attacked", "evaluation.max_attacked_costly",
    "evaluation.certified_radius", "evaluation.l2_cap", "evaluation.certify_seconds", "compute.threads",
    "tune.folds", "tune.radius", "tune.seed", "dataset.split_seed", "dataset.max_train", "dataset.max_test",
    "dataset.test_size", "model.expansion.n_features", "model.kernel.width_scale", "model.kernel.gamma",
    "model.gamma", "tune.within", "tune.max_rows", "tune.C", "tune.step", "model.C_f", "model.degree",
    "attack.restarts", "attack.queries", "attack.max_queries", "attack.confidence", "attack.random_state",
    "dataset.max_gb", "hydra.sweeper.n_trials", "hydra.sweeper.max_batch_size",
]  # fmt: skip
WORDY = [
    "dataset.name", "model.name", "attack.name", "notes", "tracking.experiment", "tracking.folder", "cache.folder",
    "checks", "figures", "on_existing", "strict", "dataset.path", "dataset.classes", "dataset.scale", "attack.norm",
    "model.schedule", "tune.metric", "tracking.uri", "evaluation.metrics", "evaluation.checks", "trusted",
    "attack._target_", "model._target_", "dataset.loader", "surrogate", "hydra.run.dir", "nonsense", "model",
    "attack", "dataset", "tune", "tracking", "experiment", "hydra/launcher", "model/kernel", "model.expansion",
    "model@surrogate", "tracking.register", "tune.select", "tune.norm", "attack.units", "model.path", "model.kernel",
    "model.trust", "objective", "hydra/sweeper", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.output_subdir",
    "hydra.job.name", "hydra.job.chdir", "hydra.verbose", "dataset.label", "dataset.box", "dataset.mutable",
    "hydra.callbacks.sweep", "hydra.searchpath", "hydra.job.config.override_dirname.kv_sep", "evaluation", "compute",
]  # fmt: skip
SWEPT = [
    "seed=range(2)", "seed=0,0", "seed=choice(0,1)", "seed=glob(*)", "seed=range(0)", "seed=range(3,1)",
    "model.C=interval(0.1,1)", "model.C=shuffle(range(1,3))", "model.C=1,", "attack=fgsm,none", "attack=glob(f*)",
    "evaluation.l2_cap=0.25,2.0", "dataset.max_train=40,abc", "model.kernel=rbf,laplacian", "attack=fgsm,x",
    "dataset.classes=[1,7],[3,8]", "attack={name:a},{name:b}", "notes=a,'b,c'", "attack.epsilon=extend_list(1)",
]  # fmt: skip
FILES = [
    "seed: 1", "seed: [", "seed: x", "- 1", "", "nonsense: 1", "model: {name: x}", "\x00", "seed: &a [*a]",
    "model: {_target_: os.mkdir, path: made}", "model: {kernel: '${oc.create:{_target_: os.mkdir, path: made}}'}",
    "defaults: [nowhere]", "defaults: [{override /model: svc}]", "notes: \"\\x1b[31mx\"", "trusted: [os]",
    "hydra: {callbacks: {x: {_target_: os.mkdir, path: made}}}", "hydra: {mode: MULTIRUN}",
    "hydra: {job_logging: {filters: {x: {(): os.mkdir, path: made}}}}", "hydra: {sweeper: {params: {seed: '0,1'}}}",
    "hydra: {run: {dir: /proc/x}}", "tracking: {folder: /proc/x}", "hydra: {overrides: {task: ['trusted=[os]']}}",
    f"tracking: {{uri: 'http://ann:{SECRET}@127.0.0.1:9'}}",
]  # fmt: skip
PATHS = [
    "nowhere", ".", "models:/x/1", "runs:/x/model", "runs:/../../x", "/proc/self/mem", "http://127.0.0.1:9/x",
]  # fmt: skip
DATASET = [
    "scale=minmax", "scale=standard", "box=data", "box=[0,1]", "classes=all", "classes=[0,1]", "classes=[1,7]",
    "label=a", "max_gb=1e-9", "mutable=[a]", "monotone=[-a]", "image_shape=[4,4]", "image_shape=[3,3]", "box={a:[0,1]}",
    "sparse=true", "test_fraction=0.999", "test_path=nowhere",
]  # fmt: skip
TAGS = ["seed", "model", "attack", "dataset", "run_signature", "role", "sweep", "stage_reuse"]
# The dear ones are rare: ten classes, a search and the sweep of an experiment take as long as ten other cases.
CHOICES = {
    "model": ["natural", "svc", "adv_svm_c", "adv_svm_d", "adv_linear_svm", "adv_svm_c_exact", "adv_svm_d_exact",
              "natural_exact", "fitted", "dnn_natural", "dnn_free"],
    "attack": ["none", "fgsm", "pgd", "pgd_l2", "min_norm", "cw", "zoo", "hop_skip_jump", "auto", "suite"],
    "dataset": ["digits", *["digits_1v7"] * 5],
    "tune": [*["none"] * 9, "accuracy", "certified", "robust"],
    "checks": ["off", "cheap"],
    "model/kernel": ["rbf", "laplacian"],
    "model/expansion": ["doubly_stochastic", "fixed_features", "support_vectors"],
    "on_existing": ["reuse", "rerun"],
    "strict": ["true", "false"],
    "surrogate": ["natural", "null"],
    "evaluation.convergence": ["true", "false"],
    "experiment": [*["nowhere"] * 5, "certified", "robust_tuning", "attack_strength", "iterations", "convergence"],
    "figures": ["auto", "off"],
    "objective": ["robust_accuracy", "nonsense"],
}  # fmt: skip
FLAGS = [
    "-m", "--multirun", "--cfg", "--cfg=job", "--resolve", "--help", "--experimental-rerun=x", "--config-dir",
    "--config-dir=.", "--config-name=x", "--config-dir=conf", "-x", "-m -m", "--multi", "--", "=", "==1", "+",
    "-m seed=0", "--run", "-cd", "-cn=x", "@", "a@b=c", "~seed", "~dataset.name", "+hydra=x", "-c=all",
    "--package=model", "-p=x", "--version", "-h", "--hydra-help", "~", "~attack", "+a=1", "++seed=1", "--info=all",
    "--shell-completion",
]  # fmt: skip


def command_line(rng: random.Random, folder: Path) -> list[str]:
    arguments = list(QUICK)
    for group in rng.sample(list(CHOICES), rng.randint(0, 3)):
        arguments = [a for a in arguments if not a.startswith(f"{group}=")]
        arguments.append(f"{group}={rng.choice(CHOICES[group])}")
        if group == "experiment":
            arguments.append("++hydra.sweeper.params.seed=0")  # of ten
    if rng.random() < 0.35:
        arguments = [a for a in arguments if not a.startswith("dataset=")] + data_file(rng, folder)
    if rng.random() < 0.08:
        arguments += configuration(rng, folder)
    if rng.random() < 0.08:
        arguments += fitted_file(rng, folder)
    for _ in range(rng.choice([0, 1, 1, 2])):
        kind = rng.random()
        if kind < 0.45:
            arguments.append(f"{rng.choice(NUMERIC)}={rng.choice(NUMBERS)}")
        elif kind < 0.9:
            arguments.append(f"{rng.choice(WORDY)}={rng.choice(WORDS)}")
        else:
            arguments.append(rng.choice(FLAGS))
    if rng.random() < 0.2:
        arguments += ["-m", rng.choice(["seed=0,1"] * 6 + SWEPT)]
        if rng.random() < 0.1:
            arguments += ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "objective=robust_accuracy"]
    rng.shuffle(arguments)
    return arguments


def small_command(rng: random.Random, folder: Path) -> list[str]:
    """A command about what is kept, in a store with a finished run that something happened to."""
    hurt_store(rng, folder)
    words = [*WORDS, "all", "30d", "1s", "mlruns", "nowhere", "case", "true", "1", "digits_1v7", "/proc", "/dev/null"]
    names = [
        "tracking.folder", "tracking.uri", "tracking.experiment", "sweep", "dataset", "name", "output", "docs",
        "stored", "figures", "log", "cache.folder", "remove", "nonsense", "", "dataset.path", "dataset.name", "folder",
    ]  # fmt: skip
    settings = [f"{rng.choice(names)}={rng.choice(words)}" for _ in range(rng.choice([0, 0, 1, 1, 2]))]
    return settings + rng.choice(
        [[]] * 8 + [["--help"], ["-x"], ["remove=all"], ["remove=1s"], ["log=false"], ["figures=off"]]
    )


def hurt_store(rng: random.Random, folder: Path) -> None:
    """Damage, empty or remove some files of the store, or put others in their place."""
    (folder / "mlruns" / "pending" / "x").mkdir(parents=True)
    (folder / "mlruns" / "pending" / "x" / "run.json").write_text(
        rng.choice(
            [
                "",
                "{",
                "3",
                "[]",
                "{}",
                '{"run_id": "../../x"}',
                '{"uri": "http://ann:' + SECRET + '@127.0.0.1:9"}',
                "[" * 5000,
            ]
        )
    )
    if rng.random() < 0.6:
        shutil.rmtree(folder / "mlruns" / "pending")
    files = sorted(path for path in (folder / "mlruns").rglob("*") if path.is_file())
    hurt = rng.sample(files, rng.choice([0, 1, 3, 10])) + [folder / "mlruns" / "mlflow.db"] * (rng.random() < 0.1)
    for file in dict.fromkeys(hurt):
        how = rng.choice(["damage", "damage", "empty", "gone", "folder", "text"])
        if how == "damage":
            damage(rng, file, always=True)
        elif how in ("empty", "text"):
            file.write_text("" if how == "empty" else '{"a": [1, null]}')
        else:
            file.unlink()
            if how == "folder":
                file.mkdir()
    if rng.random() < 0.3:
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(folder / "mlruns" / "mlflow.db")) as connection,
            connection,
        ):
            value = rng.choice(["x", "", "-1", "\x1b[31mx", "../../x", "=1", "[red]", "nan", "1e999"])
            change = rng.choice(
                ["update tags set value = ? where key = ?", "delete from tags where ? <> '' and key = ?"]
            )
            connection.execute(change, (value or "x", rng.choice(TAGS)))


def fitted_file(rng: random.Random, folder: Path) -> list[str]:
    """A model of somewhere else, whole or not."""
    import numpy as np
    from sklearn.svm import SVC, LinearSVC

    X, y = np.random.default_rng(0).random((20, rng.choice([64, 64, 3]))), np.arange(20) % 2
    kind, file = rng.choice(["skops", "skops", "pickle", "text", "joblib"]), folder / "model.skops"
    model = rng.choice([SVC(), SVC(kernel="linear"), LinearSVC(), SVC(kernel="poly")])
    model = model.fit(X, rng.choice([y, np.array(["1", "7"])[y], np.array([1, 7])[y]])) if rng.random() < 0.9 else model
    if kind == "skops":
        import skops.io

        skops.io.dump(model, file)
    elif kind == "text":
        file.write_text("cos\nmkdir\n(S'made'\ntR.")
    else:
        file.write_bytes(pickle.dumps(rng.choice([model, _Payload()])))
    damage(rng, file)
    path = rng.choice(["model.skops"] * 6 + PATHS)
    return ["model=fitted", f"model.path={path}", *rng.choice([[]] * 3 + [["tune=none"], ["tune=accuracy"]])]


class _Payload:
    """Makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple:
        return os.mkdir, ("made",)


def data_file(rng: random.Random, folder: Path) -> list[str]:
    """A small dataset with something odd about it, and the settings that read it."""
    import numpy as np

    draw = np.random.default_rng(rng.randrange(2**32))
    rows = rng.choice([0, 1, 2, 5, 30, 30, 30])
    X, y = draw.random((rows, 16)), np.arange(rows) % 2
    name = rng.choice(
        ["data", "a b", "ü", "100%", "a?b", "a#b", "a'b", "[a]", "a,b", "a=b", "-a", ".a", "🙂", "a$b", "x" * 200]
    )
    kind = rng.choice(["npz", "npz", "csv", "csv", "svmlight", "parquet"])
    file = (
        folder
        / f"{name}.{kind}{rng.choice(['.gz', '.bz2', '.xz']) if kind == 'svmlight' and rng.random() < 0.2 else ''}"
    )
    if kind == "npz":
        shape = rng.choice([(16,), (4, 4), (1, 4, 4), (4, 4, 1), (1, 2, 2, 4), (1, 1, 2, 2, 4)])
        X = X.reshape(rows, *shape).astype(rng.choice(["f4", "f8", "i8", "u1", "c8", "U5", "?"]))
        labels = rng.choice([y, y.astype("U3"), y * 2 - 1, y * 0, y + 0.5, np.arange(rows), y[:-1], y.reshape(-1, 1)])
        np.savez(file, **rng.choice([{"X": X, "y": labels}, {"X": X}, {"a": X, "b": labels}, {}]))
    elif kind == "csv":
        cells = [[cell(rng) for _ in range(4)] + [rng.choice([str(label)] * 40 + ["", "nan", "=1"])] for label in y]
        if rng.random() < 0.1 and cells:
            rng.choice(cells).append("0.1")
        separator = rng.choice([",", ",", ",", ";", "\t"])
        header = rng.choice(
            [[*"abcd", "label"]] * 3 + [["", *"bcd", "label"], [*"aacd", "label"], [*"ab\x1bd", "label"], ["label"]]
        )
        lines = [separator.join(header)] + [separator.join(row) for row in cells]
        file.write_text(rng.choice(["", "", "", "\ufeff"]) + rng.choice(["\n", "\r\n", "\n\n"]).join(lines))
    elif kind == "svmlight":
        lines = [
            " ".join([str(label), *(f"{i}:{cell(rng)}" for i in sorted(rng.sample(range(1, 9), 4)))]) for label in y
        ]
        lines += rng.choice(
            [[]] * 8
            + [["1 0:0.5"], ["1 2:1 1:1"], ["1 999999999:1"], ["# comment"], ["1 qid:3 1:1"], ["x 1:1"], ["1 1:"]]
        )
        file.write_text("\n".join(lines))
    else:
        import pandas as pd

        frame = pd.DataFrame(X[:, :4].astype(rng.choice(["f4", "f8", "object"])), columns=list("abcd")).assign(label=y)
        frame.to_parquet(file)
    damage(rng, file)
    label = ["dataset.label=label"] if kind in ("csv", "parquet") and rng.random() < 0.7 else []
    more = [f"dataset.{rng.choice(DATASET)}"] if rng.random() < 0.75 else []
    return [f"dataset={kind}", f"dataset.path={linked(rng, file)}", *label, *more]


def cell(rng: random.Random) -> str:
    odd = ["", "x", "nan", "inf", "=1", '"', "1e999", "1,5", "0x1", "-0", " 1 ", "½"]
    return rng.choice(odd if rng.random() < 0.01 else ["0.1", "0.5", "0.9"])


def damage(rng: random.Random, file: Path, always: bool = False) -> None:
    if always or rng.random() < 0.25:
        content = bytearray(file.read_bytes())
        for _ in range(rng.choice([1, 20])):
            if content:
                content[rng.randrange(len(content))] = rng.randrange(256)
        file.write_bytes(bytes(content[: rng.choice([len(content), len(content) // 2])]))


def linked(rng: random.Random, file: Path) -> str:
    """The file's name, or another way to it: a link, a link to a link, a loop, a link to nothing, a folder, a pipe."""
    way = rng.choice(["name"] * 6 + ["link", "chain", "loop", "nothing", "folder", "absolute", "pipe", "unreadable"])
    link = file.with_name(f"link{file.suffix}")
    if way in ("link", "chain"):
        link.symlink_to(file.name)
    if way == "chain":
        link.rename(other := file.with_name("other"))
        link.symlink_to(other.name)
    if way == "loop":
        link.symlink_to(link.name)
    if way == "nothing":
        link.symlink_to("nowhere")
    if way == "folder":
        link.mkdir()
    if way == "pipe":
        os.mkfifo(link)
    if way == "unreadable":
        link.symlink_to("/proc/self/mem")
    return str(file) if way == "absolute" else link.name if link.is_symlink() or link.exists() else file.name


def configuration(rng: random.Random, folder: Path) -> list[str]:
    """A folder of YAML files from somewhere else."""
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "theirs.yaml").write_text("# @package _global_\n" + rng.choice(FILES))
    return [rng.choice(["--config-dir=conf", "--config-dir=./conf/"]), "experiment=theirs"]


def run(arguments: list[str], folder: Path, module: str = "pipeline.run") -> int:
    """The exit code of the command in a child; its output is in ``folder/.out`` and ``folder/.err``."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.chdir(folder)
            os.setsid()
            for stream, file in ((1, ".out"), (2, ".err")):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            sys.argv = [module, *arguments]
            command = importlib.import_module(
                module if module in ("pipeline.run", "pipeline.sync") else f"{module}.__main__"
            )
            try:
                code = command.main() or 0
            except SystemExit as end:
                if isinstance(end.code, str):
                    print(end.code, file=sys.stderr)
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            with suppress(OSError):
                Path(".modules").write_text("\n".join(sys.modules))
            os._exit(code)
    used, last = 0.0, time.monotonic()
    # By the clock alone a busy machine would make every long case a find.
    while used < LIMIT and time.monotonic() < last + LIMIT:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if (now := processor_seconds(child)) > used:
            used, last = now, time.monotonic()
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 124


def processor_seconds(pid: int) -> float:
    """What a process has computed so far, from /proc: its own and its ended children's time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def complaints(arguments: list[str], code: int, folder: Path, module: str = "pipeline.run") -> list[str]:
    out, err = ((folder / name).read_text(errors="replace") for name in (".out", ".err"))
    found = []
    if code not in (0, 1):
        found.append(f"exit code {code}")
    if "Traceback" in out + err:
        found.append("a traceback")
    sweep = "-m" in arguments or any(a.startswith(("--multi", "experiment=")) for a in arguments)
    lines = err.strip().splitlines()
    some = (
        module == "pipeline.sync" and lines and all(line.startswith("error: ") for line in lines)
    )  # one for every waiting run
    if code == 1 and not sweep and not some and (len(lines) != 1 or not lines[0].startswith("error: ")):
        found.append(f"{len(lines)} lines of error")
    said = "\n".join([*lines, *(line for line in out.splitlines() if "failed:" in line or "  failed  " in line)])
    if named := re.search(r"\b(?!UserError)[A-Z][A-Za-z]*(Error|Exception|Warning)\b", said):
        found.append(f"an exception's name: {named[0]}")
    if re.search(r"[\x00-\x08\x0b-\x1f]", said.replace("\x1b[31m", "")) or "\x1b[31mx" in out + err:
        found.append("control characters")
    if SECRET in out + err:
        found.append("the password is shown")
    for path in folder.rglob("*"):
        ours = path.is_file() and not path.is_symlink() and path.name not in (".out", ".err", "theirs.yaml", "run.json")
        if ours and SECRET.encode() in path.read_bytes():
            found.append(f"the password is in {path.relative_to(folder)}")
    if (folder / "made").exists():
        found.append("code of a file was run")
    for database in folder.rglob("mlflow.db"):
        # A database that the case itself damaged is nobody's fault here.
        with (
            suppress(sqlite3.Error, UnicodeDecodeError),
            closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection,
        ):
            if connection.execute("select 1 from runs where status = 'RUNNING'").fetchone():
                found.append("a run is RUNNING")
    return found


def results(folder: Path) -> list[str]:
    """The results that a command printed, without the number and the state of the run."""
    lines = (folder / ".out").read_text(errors="replace").splitlines()
    return [line[line.index("clean ") :] for line in lines if "certified" in line and "clean " in line]


def case(seed: int, home: Path, template: Path) -> list[str]:
    rng = random.Random(seed)
    folder = home / "inner" / "case"
    shutil.rmtree(home / "inner", ignore_errors=True)
    folder.mkdir(parents=True)
    # An empty store that was made once: making the tables takes longer than most cases.
    shutil.copytree(template, folder / "mlruns")
    module = rng.choice(COMMANDS) if rng.random() < 0.2 else "pipeline.run"
    if module == "pipeline.run":
        if rng.random() < 0.1:
            hurt_store(rng, folder)
        arguments = command_line(rng, folder)
    else:
        arguments = small_command(rng, folder)
    code = run(arguments, folder, module)
    found = complaints(arguments, code, folder, module)
    if module == "pipeline.run" and code == 0 and not found and rng.random() < 0.2:
        before = results(folder)
        again = run(arguments, folder)
        found = [f"again: {complaint}" for complaint in complaints(arguments, again, folder)]
        if again != code:
            found.append(f"the same command again ends with {again}")
        elif results(folder) != before:
            found.append("the same command again says something else")
    # A folder may be asked for above one's own; what is written there then is no find.
    if not any(re.fullmatch(r".*(folder|dir|output)=\.\./?", argument) for argument in arguments):
        found += [f"wrote outside: {path.name}" for path in (home / "inner").iterdir() if path != folder]
    lines = (folder / ".err").read_text(errors="replace").strip().splitlines()
    line = {"seed": seed, "command": module, "code": code, "wrong": found, "said": lines[-1][:200] if lines else ""}
    print(json.dumps(line | ({"arguments": arguments} if found else {}), ensure_ascii=False), flush=True)
    return found


def warm_up(folder: Path) -> None:
    """A finished run in ``folder``, and here every module that it and a report needed: most of a case."""
    for module, arguments in (("pipeline.run", [*QUICK, "model=svc"]), ("pipeline.report", [])):
        if run(arguments, folder, module):
            sys.exit((folder / ".err").read_text())
        for name in (folder / ".modules").read_text().split():
            with suppress(ImportError):
                importlib.import_module(name)
    import torch
    from mlflow.utils import requirements_utils

    torch.set_num_threads(1)
    requirements_utils._init_modules_to_packages_map()  # a look at every installed file, once a process


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    start = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(10**9)
    os.environ.update(OMP_NUM_THREADS="1", MPLBACKEND="Agg")
    import pipeline.run  # noqa: F401

    counted: Counter[str] = Counter()
    limit, seed = time.monotonic() + 60 * minutes, start
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        home = Path(place)
        (home / "template").mkdir()
        warm_up(home / "template")
        while seed == start or time.monotonic() < limit:
            counted.update(case(seed, home, home / "template" / "mlruns") or ["fine"])
            seed += 1
    print(f"seeds {start} to {seed - 1}: {dict(counted)}")
    print(f"{seed - start} cases in {sum(os.times()[:4]):.0f} s of a processor")
    return int(set(counted) != {"fine"})


if __name__ == "__main__":
    sys.exit(main())
