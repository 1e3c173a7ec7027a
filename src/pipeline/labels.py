"""How models, attacks and datasets are written in tables and figures, in the order in which they stand there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attacks import Threat

# In the order of the paper's tables; svc is the baseline we add, and two networks.
MODELS = {
    "natural": "Natural",
    "adv_linear_svm": "adv-linear-SVM",
    "adv_svm_d": "adv-SVM (D)",
    "adv_svm_c": "adv-SVM (C)",
    "adv_svm_examples": "adv-SVM (examples)",
    "svc": "SVC",
    "dnn_natural": "DNN natural",
    "dnn_standard": "DNN standard",
    "dnn_mart": "DNN MART",
    "dnn_vat": "DNN VAT",
    "dnn_free": "DNN free",
    "dnn_fgsm_rs": "DNN FGSM-RS",
}
ATTACKS = {
    "none": "Clean",
    "fgsm": "FGSM",
    "pgd": "PGD",
    "cw": "C&W",
    "zoo": "ZOO",
    "pgd_l2": "PGD-L2",
    "suite": "Suite",
}
DATASETS = {
    "mnist_1v7": "MNIST 1 vs. 7",
    "mnist_8v9": "MNIST 8 vs. 9",
    "cifar10_automobile_truck": "CIFAR-10 automobile vs. truck",
    "cifar10_dog_horse": "CIFAR-10 dog vs. horse",
    "mnist8m_0v4": "MNIST8M 0 vs. 4",
    "mnist8m_6v8": "MNIST8M 6 vs. 8",
    "digits_1v7": "Digits 1 vs. 7",
}


def model_name(name: str) -> str:
    """``adv_svm_d`` as the paper writes it."""
    return MODELS.get(name, name)


def attack_name(name: str) -> str:
    """``cw`` as the paper writes it."""
    return ATTACKS.get(name, name)


def dataset_name(name: str) -> str:
    """``mnist_1v7`` as the paper writes it."""
    return DATASETS.get(name, name)


def place(order: dict[str, str], name: str) -> int:
    """Position in one of the orders above; names that are not there come last."""
    return list(order).index(name) if name in order else len(order)


def visible(text: str) -> str:
    """Text that a terminal shows and does not obey: control characters, but for tabs and ends of lines, as escapes."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda match: f"\\x{ord(match[0]):02x}", text)


def threat_of(settings: Mapping[str, str]) -> tuple[Threat, bool] | None:
    """What an attack may do, and whether that is its own ball; None without an attack.

    Asked of the attack itself, made from a run's flat settings: for one without a bound it is L2 at the cap.
    """
    from omegaconf import OmegaConf

    from pipeline.stages.build import build
    from pipeline.stages.units import RAW

    own = {key: "null" if value == "None" else value for key, value in settings.items() if key.startswith("attack.")}
    try:
        attack = build(OmegaConf.from_dotlist([f"{key}={value}" for key, value in own.items()]).attack)
        threat = attack.threat(float(settings["evaluation.l2_cap"]))
    except Exception:  # settings of an older version may no longer make an attack: there is no threat to show then
        return None
    if settings.get("attack.units") == "raw":
        threat = replace(threat, unit=RAW)
    return (threat, bool(attack.bounded)) if threat.epsilon > 0 else None
