"""The ``hydra:`` section of a configuration folder names plugins, and nothing else that would be run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

import pipeline.run  # noqa: F401  (guards what Hydra composes, as in every job)
from pipeline import schema
from pipeline.cores import available_cores
from pipeline.errors import UserError
from pipeline.paths import conf_dir
from pipeline.trust import check_trusted

REFUSED = {
    "callbacks: {x: {_target_: os.mkdir, path: made}}": r"hydra.callbacks.x._target_=os.mkdir: .* trusted=\[os\]",
    "callbacks: {x: {_target_: pipeline.sweep.os.mkdir, path: made}}": "hydra.callbacks.x._target_=pipeline.sweep.os",
    "callbacks: {x: {_target_: hydra.utils.get_object, path: made}}": "hydra.callbacks.x._target_=hydra.utils",
    "callbacks: {x: '${oc.create:{_target_: os.mkdir, path: made}}'}": "hydra.callbacks.x: .* may become anything",
    "callbacks: {x: '${oc.create:{_target_: os.mkdir, path: ${hydra.job.num}}}'}": "hydra.callbacks.x: .* may become",
    "callbacks: {sweep: {_target_: '${oc.env:HOME}'}}": r"hydra.callbacks.sweep._target_=\$\{oc.env:HOME\}",
    "sweeper: {_target_: os.mkdir}": "hydra.sweeper._target_=os.mkdir",
    "launcher: {_target_: subprocess.run}": "hydra.launcher._target_=subprocess.run",
    "job_logging: {formatters: {x: {'()': os.mkdir, path: made}}}": r"hydra.job_logging.formatters.x.\(\)=os.mkdir",
    "hydra_logging: {handlers: {x: {class: mine.Handler}}}": "hydra.hydra_logging.handlers.x.class=mine.Handler",
    "job_logging: {handlers: {console: {stream: ext://os.environ}}}": "handlers.console.stream=ext://os.environ",
    "job_logging: {handlers: {file: {filename: /etc/profile}}}": "handlers.file.filename=/etc/profile: log files",
    "job_logging: {handlers: '${oc.create:{x: {class: os.mkdir}}}'}": "hydra.job_logging.*may become anything",
    "job: {env_set: {LD_PRELOAD: x.so}}": r"hydra.job.env_set: .*; trusted=\[hydra\] on the command line",
    "job: {env_copy: [HOME]}": "hydra.job.env_copy: what a file says here is executed",
    "overrides: {task: ['trusted=[os]']}": "hydra.overrides.task: a file cannot say",
    "sweeper: {params: {trusted: '[os]'}}": "hydra.sweeper.params.trusted: code is named on the command line",
    "sweeper: {params: {+model.x._target_: os.mkdir}}": r"hydra.sweeper.params.\+model.x._target_: code is named",
}


@pytest.fixture
def composed(tmp_path: Path) -> Iterator:
    """Compose with an experiment of a folder that came from somewhere."""
    schema.register()
    OmegaConf.register_new_resolver("cores", available_cores, replace=True)
    GlobalHydra.instance().clear()

    def made(text: str, *overrides: str) -> DictConfig:
        (tmp_path / "experiment").mkdir(exist_ok=True)
        (tmp_path / "experiment" / "theirs.yaml").write_text(f"# @package _global_\n{text}\n")
        found = [f"hydra.searchpath=[file://{tmp_path}]", "experiment=theirs", *overrides]
        return compose("config", found, return_hydra_config=True)

    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield made


@pytest.mark.parametrize(("section", "message"), REFUSED.items())
def test_what_would_be_run_is_refused_before_it_is_constructed(composed, section, message) -> None:
    with pytest.raises(UserError, match=f"{message}") as refusal:
        composed(f"hydra: {{{section}}}")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "setting",
    ["setup: [make mischief]", "additional_parameters: {wrap: make mischief}", 'partition: "x\\nmake mischief"'],
)
def test_shell_lines_of_a_file_are_refused_and_those_of_the_command_line_taken(composed, setting) -> None:
    slurm = "hydra/launcher=slurm"
    with pytest.raises(UserError, match=r"hydra\.launcher\."):
        composed(f"hydra: {{launcher: {{{setting}}}}}", slurm)
    composed("seed: 1", slurm, "hydra.launcher.setup=[module load python]")
    composed("seed: 1", "+hydra.job.env_set.A=1", "hydra.job.env_copy=[HOME]")
    if "partition" not in setting:
        composed(f"hydra: {{launcher: {{{setting}}}}}", slurm, "trusted=[hydra]")


@pytest.mark.parametrize("launcher", ["basic", "joblib", "slurm", "submitit_local"])
def test_our_own_presets_and_plugins_pass(composed, launcher) -> None:
    callback = "hydra.experimental.callbacks.LogJobReturnCallback"
    cfg = composed(f"hydra: {{callbacks: {{log: {{_target_: {callback}}}}}}}", f"hydra/launcher={launcher}")
    assert cfg.hydra.callbacks.log._target_ == callback


def test_the_command_line_may_name_a_callback_of_ones_own(composed) -> None:
    theirs = "hydra: {callbacks: {x: {_target_: mine.Callback}}}"
    composed(theirs, "trusted=[mine]")
    composed("seed: 1", "+hydra.callbacks.x._target_=mine.Callback")


def test_a_target_that_an_interpolation_makes_is_seen(composed) -> None:
    cfg = composed("model: {kernel: '${oc.create:{_target_: os.mkdir, path: made}}'}")
    OmegaConf.set_struct(cfg, False)
    del cfg["hydra"]
    with pytest.raises(UserError, match=r"model\.kernel\._target_=os\.mkdir"):
        check_trusted(cfg, [])
