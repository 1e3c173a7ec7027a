"""Configurations that share what their files say are those that Hydra composes for each of them anew."""

from __future__ import annotations

import warnings
from unittest import mock

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from pipeline import schema
from pipeline.composing import sharing
from pipeline.paths import conf_dir
from pipeline.trust import guard_compositions

guard_compositions()
naive = ConfigLoaderImpl.load_configuration.__wrapped__  # type: ignore[attr-defined]


@pytest.fixture
def loader():
    schema.register()
    # Our presets have the names of Hydra's own schemas on purpose (pipeline.run).
    warnings.filterwarnings("ignore", message=r"\s*'hydra/")
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


LINES = [
    ["seed=3"],
    ["model=svc", "seed=3", "model.C=0.5", "attack=none", "checks=off"],
    ["model.C=1", "model={C: 2}"],
    ["model={C: 2}", "model.C=1"],
    ["seed=1", "seed=2"],
    ["seed=2", "seed=1"],
    ["+model.extra=1", "model.C=2"],
    ["~strict", "seed=1"],
    ["~model.C", "model.step=1"],
    ["model/kernel=laplacian", "model.kernel.gamma=1"],
    ["model@surrogate=natural", "surrogate.C=3", "seed=1"],
    ["dataset.classes=[3,8]", "dataset.max_train=40"],
    ["experiment=paper_tables", "seed=1", "dataset=mnist_1v7"],
    ["hydra.job.name=x", "seed=1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    ["hydra.job.config.override_dirname.exclude_keys=[seed]", "seed=1", "model.C=1"],
    ["tune=none", "model.C=1e-3", "strict=true", "objective=null"],
    ["notes='a b'", "seed=1"],
]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_it_is_what_hydra_composes(loader, line):
    quick = sharing(naive)
    wanted = naive(loader, "config", line, RunMode.RUN)
    for _ in range(2):  # composed, and from what is kept
        found = quick(loader, "config", line, RunMode.RUN)
        assert OmegaConf.to_container(found) == OmegaConf.to_container(wanted)
        assert list(OmegaConf.to_container(found)) == list(OmegaConf.to_container(wanted))
        assert OmegaConf.get_type(found) is OmegaConf.get_type(wanted)
        assert OmegaConf.is_struct(found) == OmegaConf.is_struct(wanted)


@pytest.mark.parametrize(
    "line",
    [
        ["seed=x"],
        ["nothing=1"],
        ["model=nowhere", "seed=1"],
        ["model.nothing=1"],
        ["model.name.x=1"],
        ["seed=1", "tune=0"],
    ],
    ids=" ".join,
)
def test_it_is_refused_in_hydras_words(loader, line):
    with pytest.raises((HydraException, ValueError)) as wanted:
        naive(loader, "config", line, RunMode.RUN)
    with pytest.raises((HydraException, ValueError)) as found:
        sharing(naive)(loader, "config", line, RunMode.RUN)
    assert (type(found.value), str(found.value)) == (type(wanted.value), str(wanted.value))


def test_jobs_that_differ_in_values_compose_once_and_share_nothing_that_changes(loader):
    composed = mock.Mock(side_effect=naive)
    quick = sharing(composed)
    jobs = [quick(loader, "config", ["model=svc", f"seed={n}", f"model.C={n + 1}"], RunMode.RUN) for n in range(5)]
    assert composed.call_count == 1
    jobs[0].model.C = 99
    assert [job.model.C for job in jobs[1:]] == [2, 3, 4, 5]
    assert [job.seed for job in jobs] == list(range(5))
    quick(loader, "config", ["model=natural", "seed=0"], RunMode.RUN)
    assert composed.call_count == 2


def test_a_group_of_a_search_path_is_a_group(loader, tmp_path):
    """Only Hydra looks there: what reads as a value is a choice of files."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "long.yaml").write_text("# @package _global_\nseed: 7\n")
    line = [f"hydra.searchpath=[file://{tmp_path}]", "+notes=long", "checks=off"]
    found, wanted = (compose(loader, "config", line, RunMode.RUN) for compose in (sharing(naive), naive))
    assert found.seed == wanted.seed == 7
