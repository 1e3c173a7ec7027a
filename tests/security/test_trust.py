"""A configuration names code of ours, or of modules that the command line trusts."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from pipeline.errors import UserError
from pipeline.trust import check_trusted

REFUSED = [
    "os.system", "subprocess.Popen", "builtins.eval", "mine.Model", "modelsx.Model", "models.persistence.os.system",
    "models.persistence.import_module", "sklearn.base.warnings.warn", "pipeline.sweep.os.popen", "mine_too.X",
]  # fmt: skip
TAKEN = ["models.AdvSVM", "attacks.PGD", "sklearn.svm.SVC", "pipeline.sweep.Sweep", "models.no_such_thing"]


def config(target: str, **more: object):
    return OmegaConf.create({"model": {"kernel": {"_target_": target}}, "figures": "auto", **more})


@pytest.mark.parametrize("target", REFUSED)
def test_other_code_is_refused_in_one_line(target: str) -> None:
    with pytest.raises(UserError, match=f"^model.kernel._target_={target}: ") as refusal:
        check_trusted(config(target, trusted=["min"]), ["trusted=[min]"])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("target", TAKEN)
def test_ours_is_taken(target: str) -> None:
    check_trusted(config(target), [])


def test_the_command_line_trusts_and_a_file_cannot() -> None:
    cfg = config("mine.Model", trusted=["mine"])
    check_trusted(cfg, ["trusted=[mine]"])
    check_trusted(cfg, ["model.kernel._target_=mine.Model"])
    with pytest.raises(UserError, match=r"trusted=\[mine\] on the command line"):
        check_trusted(cfg, ["seed=1"])


@pytest.mark.parametrize("setting", ["dataset.loader", "evaluation.metrics", "evaluation.checks", "figures"])
def test_every_setting_that_names_code_is_looked_at(setting: str) -> None:
    cfg = config("models.AdvSVM")
    OmegaConf.update(cfg, setting, ["os.system"] if setting.startswith("eval") else "os.system", force_add=True)
    with pytest.raises(UserError, match=f"^{setting}=os.system: "):
        check_trusted(cfg, [])
