"""What a run logs: parameters, tags, metrics, curves, figures and files, written into a bundle."""

from __future__ import annotations

import csv
import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from pipeline import figures
from pipeline.data import Dataset
from pipeline.stages.chain import Results
from pipeline.stages.evaluate import Evaluated
from pipeline.stages.plan import attack_label
from pipeline.stages.tune import describe
from pipeline.tracking.bundle import RunBundle

_GALLERY = 8
_SIGNIFICANT = 6


def run_name(cfg: DictConfig) -> str:
    """``adv_svm_c · pgd · mnist_1v7 · seed 0``."""
    return f"{cfg.model.name} · {attack_label(cfg)} · {cfg.dataset.name} · seed {cfg.seed}"


def identity_tags(cfg: DictConfig, signature: str, sweep: str | None) -> dict[str, str]:
    """Tags that say what a run is, set as soon as it starts."""
    tags = {
        "run_signature": signature,
        "role": "experiment",
        "dataset": cfg.dataset.name,
        "model": cfg.model.name,
        "attack": attack_label(cfg),
        "seed": str(cfg.seed),
    }
    if sweep:
        tags["sweep"] = sweep
    commit = _git_commit()
    if commit:
        tags["mlflow.source.git.commit"] = tags["git_commit"] = commit
    return tags


def record(cfg: DictConfig, results: Results, bundle: RunBundle, overrides: list[str]) -> None:
    """Fill and write the bundle of a finished experiment."""
    from models import save

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
    draw(cfg, results, bundle.artifacts / "figures")
    save(results.trained.model, bundle.model)
    bundle.write()


def flat_params(cfg: DictConfig, results: Results) -> dict[str, str]:
    """The resolved configuration, flat; ``model.C`` and ``model.step`` are the values that were trained with."""
    groups = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(groups, dict)
    flat: dict[str, str] = {}

    def walk(node: Any, path: str) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                walk(value, f"{path}.{key}" if path else str(key))
        elif path not in ("tracking.uri", "tracking.folder", "cache.folder"):
            flat[path] = str(node)

    walk(groups, "")
    for name, value in results.tuned.best.items():
        path = f"model.{name}" if f"model.{name}" in flat else f"model.kernel.{name}"
        flat[path] = str(value)
    return flat


def _metrics(evaluated: Evaluated) -> list[tuple[str, float, int]]:
    points = [(name, float(f"{value:.{_SIGNIFICANT}g}"), 0) for name, value in evaluated.metrics.items()]
    for name, curve in evaluated.curves.items():
        points += [(name, value, step) for step, value in curve]
    return points


def describe_run(cfg: DictConfig, results: Results) -> str:
    """Markdown shown at the top of the run's page."""
    m = results.evaluated.metrics
    lines = [
        f"**{cfg.model.name}** on **{cfg.dataset.name}** under **{attack_label(cfg)}**, seed {cfg.seed}",
        "",
        "| clean | robust (upper bound) | certified at L2 "
        f"{cfg.evaluation.certified_radius:g} (lower bound) | at L2 cap {cfg.evaluation.l2_cap:g} | attacked points |",
        "|---|---|---|---|---|",
        f"| {m['clean_accuracy']:.2%} | {m['robust_accuracy']:.2%} | {m['certified_accuracy']:.2%} "
        f"| {m['accuracy_at_l2_cap']:.2%} | {int(m['n_attacked'])} of {int(m['n_test'])} |",
        "",
        f"Tuning: {describe(cfg.tune)}." + (f" Chosen: {_words(results.tuned.best)}." if results.tuned.best else ""),
    ]
    lines += [f"- {text}" for text in [*results.data.notes, *results.tuned.messages, *results.trained.messages]]
    lines += [f"- {note}" for note in getattr(results.attacked.result, "notes", ())]
    failed = [check for check in results.evaluated.checks if check.status == "fail"]
    lines += [f"- **check {check.id} failed**: {check.message}" for check in failed]
    return "\n".join(lines)


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
            "classes": list(data.class_names),
            "notes": list(data.notes),
        },
    }


def _write_files(cfg: DictConfig, results: Results, folder: Path, overrides: list[str]) -> None:
    from pipeline.tracking.store import masked

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
    if results.tuned.table:
        (folder / "tuning").mkdir(exist_ok=True)
        with (folder / "tuning" / "cv_results.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(results.tuned.table)
            writer.writerows(zip(*results.tuned.table.values()))
    result, rows = results.attacked.result, results.attacked.rows
    np.savez_compressed(
        folder / "adversarial" / "examples.npz",
        examples=result.examples.astype(np.float32),
        success=result.success,
        distortion_l2=result.distortion_l2,
        distortion_linf=result.distortion_linf,
        queries=result.queries,
        scores=result.scores,
        test_rows=rows,
        labels=results.data.y_test[rows],
    )
    around = results.evaluated.bracket
    np.savez_compressed(
        folder / "certificates" / "radii.npz",
        radii=results.evaluated.radii,
        bracket_rows=around.rows,
        bracket_nearest=around.nearest,
    )


def _safe(override: str) -> str:
    from pipeline.tracking.store import masked

    key, _, value = override.partition("=")
    return f"{key}={masked(value)}" if key.endswith("uri") else override


def draw(cfg: DictConfig, results: Results, folder: Path) -> None:
    """All figures of one run."""
    title, evaluated = run_name(cfg), results.evaluated
    training = {k: v for k, v in evaluated.curves.items() if k in ("test_error", "adversarial_test_error") and v}
    if training:
        figures.curves(
            training, folder / "training_curve.png", title=title, xlabel="training iteration", ylabel="error"
        )
    if len(evaluated.curves.get("robust_accuracy_by_step", [])) > 1:
        steps = {"robust_accuracy_by_step": evaluated.curves["robust_accuracy_by_step"]}
        figures.curves(steps, folder / "attack_curve.png", title=title, xlabel="attack step", ylabel="robust accuracy")
    if results.tuned.table:
        metric = f"mean_{cfg.tune.metric}"
        metric = metric if metric in results.tuned.table else "mean_accuracy"
        figures.heat_map(
            results.tuned.table, folder / "tuning.png", metric=metric, title=f"{title}: {cfg.tune.folds}-fold grid"
        )
    result, rows = results.attacked.result, results.attacked.rows
    changed = np.flatnonzero(result.distortion_l2 > 0)
    if changed.size:
        chosen = changed[:: max(1, changed.size // _GALLERY)][:_GALLERY]
        clean = np.asarray(results.data.X_test[rows[chosen]])
        captions = [f"{c:+.2f} → {s:+.2f}" for c, s in zip(result.clean_scores[chosen], result.scores[chosen])]
        figures.gallery(
            clean,
            result.examples[chosen],
            captions,
            results.data.image_shape,
            folder / "gallery.png",
            title=f"{title} (scores)",
        )
    around = evaluated.bracket
    attacks = {f"nearest adversarial point found ({len(around.rows)} points)": around.nearest}
    if len(around.rows) < len(rows) and cfg.attack.name != "none":
        attacks[f"{cfg.attack.name} ({len(rows)} points)"] = np.where(result.success, result.distortion_l2, np.inf)
    figures.bracket(evaluated.radii, attacks, folder / "bracket.png", title=title, mark=cfg.evaluation.l2_cap)


def _git_commit() -> str | None:
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
