"""A small tracking store filled in the pipeline's own record format, with invented numbers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from pipeline import schema
from pipeline.cores import available_cores
from pipeline.identity import run_name
from pipeline.paths import conf_dir
from pipeline.report.tracked import TrackedRun
from pipeline.tracking import runs
from pipeline.tracking.bundle import RunBundle, upload
from pipeline.tracking.record import flat_params, identity_tags
from pipeline.tracking.store import TrackingStore, open_store

N_TEST, SIDE = 40, 28
# Clean accuracy of the invented models and how many of 40 points each attack breaks.
CLEAN = {"natural": 39, "adv_linear_svm": 37, "adv_svm_d": 38, "adv_svm_c": 38, "adv_svm_examples": 38, "svc": 38}
BROKEN = {"none": 0, "fgsm": 4, "pgd": 8, "cw": 40, "zoo": 40, "pgd_l2": 6}


def compose_config(*overrides: str) -> DictConfig:
    """The configuration of one job."""
    schema.register()
    OmegaConf.register_new_resolver("cores", available_cores, replace=True)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("config", list(overrides))


def open_empty(folder: Path) -> TrackingStore:
    """A fresh store."""
    return open_store(OmegaConf.create({"uri": None, "folder": str(folder), "experiment": "advsvm"}))


def add_run(store: TrackingStore, *overrides: str, checks: dict[str, str] | None = None, **metrics: float) -> str:
    """Track one finished experiment with invented results; ``metrics`` replaces some of them."""
    cfg = compose_config(*overrides)
    signature = f"{abs(hash((overrides, tuple(metrics.items())))):040x}"[:40]
    run_id = runs.start(store, run_name(cfg), identity_tags(cfg, signature, "invented-sweep"))
    bundle = RunBundle(store.folder / "pending" / signature, run_id, run_name(cfg), store.uri, store.experiment)
    bundle.start_afresh()
    bundle.params = _params(cfg)
    bundle.tags = {f"check.{name}": status for name, status in (checks or {}).items()}
    profile = {"train": 100, "test": N_TEST, "features": SIDE * SIDE, "classes": ["7", "1"], "notes": []}
    digest = f"{cfg.dataset.name}-digest"[:36]
    bundle.dataset = {"name": cfg.dataset.name, "digest": digest, "source": "", "profile": profile}
    arrays = _arrays(cfg)
    bundle.metrics = [(name, float(v), 0) for name, v in (_metrics(cfg, arrays) | metrics).items()]
    bundle.metrics += [("test_error", 0.5 / step, step) for step in range(1, 9)]
    bundle.metrics += [("adversarial_test_error", 0.6 / step, step) for step in range(1, 9)]
    if cfg.attack.name.startswith("pgd"):
        steps = np.linspace(1, float(np.mean(~arrays["success"])), cfg.attack.steps + 1)
        bundle.metrics += [("robust_accuracy_by_step", float(v), step) for step, v in enumerate(steps)]
    _write_files(bundle.artifacts, cfg, arrays, checks or {})
    bundle.write()
    upload(bundle, store)
    return run_id


def invented_run(*overrides: str, started: int = 0, **metrics: float) -> TrackedRun:
    """A run as the report reads it, without a store."""
    cfg = compose_config(*overrides)
    return TrackedRun(
        id=f"{overrides}{started}",
        dataset=cfg.dataset.name,
        model=cfg.model.name,
        attack=cfg.attack.name,
        seed=cfg.seed,
        sweep="",
        params=_params(cfg),
        metrics=_metrics(cfg, _arrays(cfg)) | metrics,
        failed_checks=(),
        started=started,
        digest=f"{cfg.dataset.name}-digest",
    )


def _params(cfg: DictConfig) -> dict[str, str]:
    best = {"C": 8.0, "step": 0.125} if cfg.tune.enabled else {}
    verdicts = SimpleNamespace(norm="linf", epsilon=8 / 255, raw=None, attacked=cfg.attack.name != "none", bounded=True)
    results: Any = SimpleNamespace(
        tuned=SimpleNamespace(best=best),
        trained=SimpleNamespace(model=SimpleNamespace(gamma_=0.01 + 0.001 * cfg.seed)),
        evaluated=SimpleNamespace(verdicts=verdicts),
    )
    return flat_params(cfg, results)


def _arrays(cfg: DictConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([cfg.seed, len(cfg.model.name), len(cfg.attack.name)])
    clean = np.linspace(0, 1, N_TEST * SIDE * SIDE).reshape(N_TEST, -1) % 1.0
    count = min(N_TEST, BROKEN[cfg.attack.name] + (N_TEST - CLEAN[cfg.model.name]) + int(rng.integers(0, 2)))
    success = np.arange(N_TEST) < count
    distance = np.where(success, rng.uniform(0.3, 1.8, N_TEST), 0.5) if cfg.attack.name != "none" else np.zeros(N_TEST)
    distance[: N_TEST - CLEAN[cfg.model.name]] = 0.0
    direction = rng.normal(size=clean.shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return {
        "examples": np.clip(clean + distance[:, None] * direction, 0, 1).astype(np.float32),
        "success": success,
        "distortion_l2": distance,
        "distortion_linf": distance / 10,
        "queries": np.full(N_TEST, 100),
        "scores": rng.normal(size=N_TEST),
        "test_rows": np.arange(N_TEST),
        "labels": np.where(np.arange(N_TEST) % 2, 1, -1),
    }


def _metrics(cfg: DictConfig, arrays: dict[str, np.ndarray]) -> dict[str, float]:
    within = arrays["success"] & (arrays["distortion_l2"] <= cfg.evaluation.l2_cap)
    return {
        "clean_accuracy": CLEAN[cfg.model.name] / N_TEST,
        "robust_accuracy": float(np.mean(~arrays["success"])),
        "accuracy_at_l2_cap": float(np.mean(~within)),
        "certified_accuracy": 0.5,
        "undecided": 0.2,
        "attack_success_rate": float(np.mean(arrays["success"])),
        "distortion_l2_median": float(np.median(arrays["distortion_l2"])),
        "queries_mean": 100.0,
        "n_test": N_TEST,
        "n_attacked": N_TEST,
        "tune_seconds": 3.0,
        "train_seconds": 40.0 + cfg.seed if cfg.model.name == "adv_linear_svm" else 1.0,
        "attack_seconds": 2.0,
    }


def _write_files(folder: Path, cfg: DictConfig, arrays: dict[str, np.ndarray], checks: dict[str, str]) -> None:
    for name in ("adversarial", "certificates", "tuning"):
        (folder / name).mkdir(parents=True)
    np.savez_compressed(folder / "adversarial" / "examples.npz", **arrays)
    np.savez_compressed(
        folder / "certificates" / "radii.npz", radii=np.linspace(0, 0.6, N_TEST),
        bracket_rows=arrays["test_rows"], bracket_nearest=np.where(arrays["success"], arrays["distortion_l2"], np.inf),
    )  # fmt: skip
    said = [{"id": k, "status": v, "message": f"{k} says why", "evidence": {}} for k, v in checks.items()]
    (folder / "checks.json").write_text(json.dumps(said))
    with (folder / "tuning" / "cv_results.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["C", "step", "mean_accuracy", "mean_certified_accuracy"])
        for C in (0.5, 1.0, 2.0):
            writer.writerows([C, step, 0.9 + 0.01 * C - 0.02 * step, 0.5] for step in (0.125, 0.25))
