"""Configuration files that are no configuration: one line that names the file, and no name of an exception."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import pipeline.run  # noqa: F401
from pipeline import schema
from pipeline.cores import available_cores
from pipeline.messages import one_line
from pipeline.paths import conf_dir

FILES = {
    "seed: [": r"theirs\.yaml, line 3: not YAML \(expected the node content",
    "seed: a: b": r"theirs\.yaml, line 2: not YAML \(mapping values",
    "seed: \x00": r"theirs\.yaml: not YAML \(special characters",
    "- 1": r"experiment/theirs: Cannot merge DictConfig with ListConfig",
    "seed: &a [*a]": r"the configuration refers to itself without end",
    "seed: x": r"seed: Value 'x' of type 'str' could not be converted",
    "attack: {name: a'b": r"theirs\.yaml, line \d: not YAML",
}


@pytest.mark.parametrize(("text", "message"), FILES.items(), ids=repr)
def test_a_file_that_cannot_be_read_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "theirs.yaml").write_text(f"# @package _global_\n{text}\n")
    schema.register()
    OmegaConf.register_new_resolver("cores", available_cores, replace=True)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"), pytest.raises(Exception) as failure:
        compose("config", [f"hydra.searchpath=[file://{tmp_path}]", "experiment=theirs"])
    line = one_line(failure.value)
    assert re.search(message, line)
    assert not re.search(r"[A-Z]\w+(Error|Exception)\b", line)


@pytest.mark.parametrize("override", ["attack.name=a'b", "attack.name=(", "attack.name=[a", "notes={a"])
def test_a_riddle_of_quotes_is_answered_without_the_grammar_s_exceptions(override: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    with pytest.raises(Exception) as failure:
        OverridesParser.create().parse_overrides([override])
    line = one_line(failure.value)
    assert override in line
    assert not re.search(r"[A-Z]\w+(Error|Exception)\b", line)


def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(OSError, match="proc") as failure:
        Path("/proc/nowhere/x").mkdir(parents=True)
    assert one_line(failure.value) == "/proc/nowhere: No such file or directory"
