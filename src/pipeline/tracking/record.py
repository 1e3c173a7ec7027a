"""What a run logs: parameters, tags, metrics, curves, figures and files, written into a bundle."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from pipeline.data import Dataset
from pipeline.figures import run_figure
from pipeline.identity import core, flat
from pipeline.stages.base import tuned_axes
from pipeline.stages.evaluate import Evaluated
from pipeline.stages.experiment import Results
from pipeline.stages.tune import Tuned, describe
from pipeline.tables import DASH, Entry, Table
from pipeline.tracking.bundle import RunBundle
from pipeline.tracking.examples import write_examples
from pipeline.tracking.view import ALIASES, member_tag

_SIGNIFICANT = 6


def identity_tags(cfg: DictConfig, signature: str, sweep: str | None) -> dict[str, str]:
    """Tags that say what a run is, set as soon as it starts."""
    tags = {"run_signature": signature, "role": "experiment"} | core(flat(cfg))
    if sweep:
        tags |= {"sweep": sweep, member_tag(sweep): "1"}
    commit = _git_commit()
    if commit:
        tags["mlflow.source.git.commit"] = tags["git_commit"] = commit
    return tags


def record(cfg: DictConfig, results: Results, bundle: RunBundle, overrides: list[str]) -> None:
    """Fill and write the bundle of a finished experiment."""
    from models import save
    from pipeline.tracking.flavor import deploy

    bundle.params = flat_params(cfg, results)
    bundle.metrics = _metrics(results.evaluated)
    bundle.tags |= {
        "stage_reuse": ",".join(results.reused) or "none",
        "mlflow.note.content": describe_run(cfg, results),
    }
    bundle.tags |= {f"check.{check.id}": check.status for check in results.evaluated.checks}
    if results.data.notes:
        bundle.tags["data_notes"] = "; ".join(results.data.notes)
    bundle.dataset = _dataset_input(results.data)
    _write_files(cfg, results, bundle.artifacts, overrides)
    run_figure.draw(bundle.artifacts / "figures", cfg, results, which=cfg.figures)
    save(results.trained.model, bundle.model)
    bundle.register = cfg.tracking.register
    bundle.deployment = asdict(deploy(results.trained.model, results.data, bundle.model))
    bundle.write()


def flat_params(cfg: DictConfig, results: Results) -> dict[str, str]:
    """The resolved configuration, flat; what tuning and the data chose (C, step, width) is what was trained with."""
    hidden = ("tracking.uri", "tracking.folder", "tracking.register", "cache.folder", "cache.max_gb")
    params = {key: value for key, value in flat(cfg).items() if key not in hidden}
    known, model = results.evaluated.verdicts, results.trained.model
    params |= {
        "threat.norm": known.norm,
        "threat.epsilon": str(known.epsilon if known.raw is None else known.raw),
        "threat.units": "scaled" if known.raw is None else "raw",
        "threat.attacked": str(known.attacked),
        "threat.bounded": str(known.bounded),
    }
    axes = tuned_axes(cfg)
    # A number of features is a whole number, whatever the grid calculates with.
    chosen = {
        path: type(OmegaConf.select(cfg, path))(value)
        for name, value in results.tuned.best.items()
        if (path := axes.get(name))
    }
    if getattr(model, "gamma_", None) is not None:
        chosen["model.kernel.gamma"] = float(model.gamma_)
    # Which parameters are results and not settings: identity does not tell runs apart by them.
    free = [name for name in chosen if len(cfg.tune.get(name.split(".")[-1]) or "..") > 1]
    if params.get("model.kernel.gamma", params.get("model.gamma")) not in (None, "None"):
        free = [name for name in free if name != "model.kernel.gamma"]
    return params | {name: str(value) for name, value in chosen.items()} | {"chosen": ",".join(free)}


def as_logged(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics as the store gives them back: a search must be told the same when it resumes."""
    return {name: float(f"{value:.{_SIGNIFICANT}g}") for name, value in metrics.items()}


def _metrics(evaluated: Evaluated) -> list[tuple[str, float, int]]:
    metrics = evaluated.metrics | {short: evaluated.metrics[name] for short, name in ALIASES.items()}
    points = [(name, value, 0) for name, value in as_logged(metrics).items()]
    for name, curve in evaluated.curves.items():
        points += [(name, value, step) for step, value in curve]
    return points


def describe_run(cfg: DictConfig, results: Results) -> str:
    """Markdown shown at the top of the run's page."""
    m, known, tuned = results.evaluated.metrics, results.evaluated.verdicts, results.tuned
    cap = "" if known.bounded else " (the cap)"
    numbers = {
        "clean": f"{m['clean_accuracy']:.2%}",
        f"certified within {known.shown}{cap}": f"{m['certified_accuracy']:.2%}",
        f"attacked within {known.shown}{cap}": f"{np.mean(~known.broken):.2%}" if known.attacked else DASH,
        "undecided": f"{m['undecided']:.2%}",
        "clean, same points": f"{m['clean_accuracy_attacked']:.2%}",
        "attacked points": f"{m['n_attacked']:.0f} of {m['n_test']:.0f}",
    }
    lines = [
        "**{model}** on **{dataset}** under **{attack}**, seed {seed}".format(**core(flat(cfg))),
        "",
        Table("", list(numbers), [[Entry(number) for number in numbers.values()]]).markdown(),
        "",
        "True robust accuracy lies between certified (a proof) and attacked (what the attack left standing).",
        "",
        f"Tuning: {describe(cfg, tuned)}." + (f" Chosen: {_words(results.tuned.best)}." if results.tuned.best else ""),
    ]
    lines += _front(tuned)
    lines += [f"- {text}" for text in [*results.data.notes, *tuned.messages, *results.trained.messages]]
    lines += [f"- {note}" for note in getattr(results.attacked.result, "notes", ())]
    failed = [check for check in results.evaluated.checks if check.status == "fail"]
    lines += [f"- **check {check.id} failed**: {check.message}" for check in failed]
    return "\n".join(lines)


def _front(tuned: Tuned) -> list[str]:
    """The choice between clean and robust accuracy that the folds offered, as a table."""
    if not tuned.front:
        return []
    metric = tuned.metric.replace("_", " ")
    table = Table("", ["setting", "held-out accuracy [%]", f"held-out {metric} within {tuned.threat} [%]", ""])
    for row in tuned.front:
        setting = _words({key: tuned.table[key][row] for key in tuned.best})
        scores = [Entry(f"{100 * tuned.table[f'mean_{key}'][row]:.2f}") for key in ("accuracy", tuned.metric)]
        table.rows.append([Entry(setting, kind="name"), *scores, Entry("chosen" if row == tuned.best_row else "")])
    return ["", table.markdown(), ""]


def _words(best: dict[str, float]) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in best.items())


def _dataset_input(data: Dataset) -> dict[str, Any]:
    return {
        "name": data.name,
        "digest": data.fingerprint[:32],
        "source": data.source,
        "profile": {
            "train": len(data.X_train),
            "test": len(data.X_test),
            "features": data.n_features,
            "image_shape": list(data.image_shape),
            "classes": list(data.class_names),
            "notes": list(data.notes),
        },
    }


def _write_files(cfg: DictConfig, results: Results, folder: Path, overrides: list[str]) -> None:
    from pipeline.figures.of_runs import changes_of
    from pipeline.tracking.credentials import masked

    shown = cfg.copy()
    if shown.tracking.uri:
        shown.tracking.uri = masked(shown.tracking.uri)
    for name in ("config", "adversarial", "certificates"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "config" / "config.yaml").write_text(OmegaConf.to_yaml(shown, resolve=True))
    (folder / "config" / "overrides.yaml").write_text(
        OmegaConf.to_yaml(OmegaConf.create([_safe(o) for o in overrides]))
    )
    checks = [asdict(check) for check in results.evaluated.checks]
    (folder / "checks.json").write_text(json.dumps(checks, indent=2))
    tuned = results.tuned
    if tuned.table:
        (folder / "tuning").mkdir(exist_ok=True)
        _write_csv(folder / "tuning" / "cv_results.csv", tuned.table)
    if tuned.front:
        front = {name: [column[row] for row in tuned.front] for name, column in tuned.table.items()}
        chosen = [row == tuned.best_row for row in tuned.front]
        _write_csv(folder / "tuning" / "front.csv", front | {"chosen": chosen})
    result, rows = results.attacked.result, results.attacked.rows
    write_examples(
        folder / "adversarial" / "examples.npz",
        result.examples,
        results.data.X_test[rows],
        success=result.success,
        distortion_l2=result.distortion_l2,
        distortion_linf=result.distortion_linf,
        queries=result.queries,
        scores=result.scores,
        test_rows=rows,
        labels=results.data.y_test[rows],
    )
    changes = changes_of(results)
    if changes is not None:
        np.savez_compressed(folder / "adversarial" / "changes.npz", **vars(changes))
    around, known = results.evaluated.bracket, results.evaluated.verdicts
    np.savez_compressed(
        folder / "certificates" / "points.npz",
        test_rows=rows,
        state=known.words,
        certified_radius_l2=results.evaluated.radii[rows],
        norm=known.norm,
        epsilon=known.epsilon,
        l2_inside=known.l2_inside,
    )
    np.savez_compressed(
        folder / "certificates" / "radii.npz",
        radii=results.evaluated.radii,
        bracket_rows=around.rows,
        bracket_nearest=around.nearest,
    )


def _write_csv(path: Path, table: dict[str, list[Any]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(table)
        writer.writerows(zip(*table.values()))


def _safe(override: str) -> str:
    from pipeline.tracking.credentials import masked

    key, _, value = override.partition("=")
    return f"{key}={masked(value)}" if key.endswith("uri") else override


def _git_commit() -> str | None:
    asked, here = ["git", "rev-parse", "HEAD"], Path(__file__).parent
    try:
        return subprocess.check_output(asked, cwd=here, text=True, timeout=5, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.SubprocessError):
        return None
