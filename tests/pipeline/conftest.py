"""Fixtures of the pipeline's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from pipeline import schema
from pipeline.cores import available_cores
from pipeline.paths import conf_dir


@pytest.fixture
def composed() -> Iterator[Callable[..., DictConfig]]:
    """Compose a configuration from overrides, without running anything."""
    schema.register()
    OmegaConf.register_new_resolver("cores", available_cores, replace=True)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield lambda *overrides: compose("config", list(overrides))
