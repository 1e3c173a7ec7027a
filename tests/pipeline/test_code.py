"""Which code a stage's key depends on: every module it can reach by its imports, and no other."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

import pipeline
from pipeline.arguments import arguments_of
from pipeline.code import SOURCES, Sources

ROOT = Path(pipeline.__file__).resolve().parent.parent
STAGES = {
    "tune": ("pipeline.stages.tune", "models.AdvSVM", "models.kernels.RBF", "models.expansions.SupportVectors"),
    "train": ("pipeline.stages.train", "models.AdvLinearSVM"),
    "certify": ("pipeline.stages.certify",),
    "attack": ("pipeline.stages.attack", "attacks.PGD"),
    "evaluate": ("pipeline.stages.evaluate",),
}
# What shows and keeps results must not decide whether they are computed again.
NEVER = (
    "pipeline.report", "pipeline.tracking", "pipeline.figures", "pipeline.summary", "pipeline.tables", "pipeline.job",
    "pipeline.run", "pipeline.sweep", "pipeline.progress", "pipeline.identity", "pipeline.cache.store",
)  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in ("models", "attacks", "pipeline"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "conf"))
    return tmp_path


def _version(root: Path, *targets: str) -> dict[str, str]:
    return Sources([str(root)]).version(*targets)


def _edit_one_function(file: Path) -> bool:
    """Let the first function of a file do something else; False if it has none."""
    tree = ast.parse(file.read_text())
    function = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), None)
    if function is None:
        return False
    function.body.insert(0, ast.parse("changed = 1").body[0])
    file.write_text(ast.unparse(tree))
    return True


@pytest.mark.parametrize("stage", STAGES)
def test_a_changed_function_in_any_module_a_stage_can_reach_changes_its_version(copy, stage):
    sources = Sources([str(copy)])
    before = sources.version(*STAGES[stage])
    edited = 0
    for module in sources.reach(*STAGES[stage]).values():
        kept = module.file.read_text()
        if _edit_one_function(module.file):
            edited += 1
            # The others were read before and are unchanged: this one is read again.
            del sources._modules[module.name]
            sources._versions.clear()
            assert sources.version(*STAGES[stage]) != before, module.name
            sources._modules[module.name] = module
        module.file.write_text(kept)
    assert edited > 10
    assert _version(copy, *STAGES[stage]) == before


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_stage_cannot_reach_does_not_change_its_version(copy, stage):
    before = _version(copy, *STAGES[stage])
    reached = {module.file for module in Sources([str(copy)]).reach(*STAGES[stage]).values()}
    others = [file for file in copy.rglob("*.py") if file not in reached]
    assert sum(map(_edit_one_function, others)) > 10
    assert _version(copy, *STAGES[stage]) == before


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_depends_on_how_results_are_shown_or_kept(stage):
    reached = SOURCES.reach(*STAGES[stage])
    assert not [name for name in reached if name.startswith(NEVER)]


def test_the_reached_modules_are_those_that_python_loads():
    """The text of the imports against the interpreter: nothing that building and running needs is left out."""
    import subprocess
    import sys

    code = (
        "import sys, numpy as np, models, attacks\n"
        "X = np.random.default_rng(0).uniform(0, 1, (40, 4)); y = np.where(X[:, 0] > 0.5, 1, -1)\n"
        "model = models.AdvSVM(batch_size=10).fit(X, y); attacks.PGD()(model, X, y); model.certified_radius(X, y)\n"
        "print(*[name for name in sys.modules if name.split('.')[0] in ('models', 'attacks')])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    reached = set(SOURCES.reach("pipeline.stages.train", "models.AdvSVM", "pipeline.stages.attack", "attacks.PGD"))
    unread = set(loaded) - reached
    # A package that imports all of its modules loads more than an attack uses: those are the only ones not reached.
    assert {name.split(".")[0] for name in unread} <= {"attacks"}, unread


def _package(folder: Path, name: str, **files: str) -> None:
    (folder / name).mkdir()
    for file, text in files.items():
        (folder / name / f"{file}.py").write_text(text)


def test_comments_and_docstrings_do_not_count_as_code(tmp_path):
    texts = {
        "one": '"""One."""\n\n\ndef f(x):\n    """Doc."""\n    return x + 1  # why\n',
        "same": "def f(x):\n    return x + 1\n",
        "other": "def f(x):\n    return x + 2\n",
    }
    versions = {}
    for folder, text in texts.items():
        (tmp_path / folder).mkdir()
        _package(tmp_path / folder, "mine", __init__=text)
        versions[folder] = _version(tmp_path / folder, "mine")
    assert versions["one"] == versions["same"] != versions["other"]


def test_names_passed_on_by_a_package_lead_to_their_module(tmp_path):
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from mine.a import A\n"
    _package(tmp_path, "mine", __init__=lazy, a="class A: ...\n", b="class B: ...\n")
    _package(tmp_path, "user", __init__="from mine import A\n\nA()\n")
    assert set(Sources([str(tmp_path)]).reach("user")) == {"user", "mine", "mine.a"}


def test_a_name_whose_origin_the_text_does_not_tell_may_be_any_module(tmp_path):
    _package(tmp_path, "mine", __init__="def __getattr__(name): ...\n", a="A = 1\n", b="B = 1\n")
    _package(tmp_path, "user", __init__="from mine import A\n\nA\n")
    assert set(Sources([str(tmp_path)]).reach("user")) == {"user", "mine", "mine.a", "mine.b"}


def test_who_imports_by_name_may_reach_everything_beside_it(tmp_path):
    by_name = "from importlib import import_module\n\n\ndef find(n):\n    return import_module(n)\n"
    _package(tmp_path, "mine", __init__="", registry=by_name, check="x = 1\n")
    assert "mine.check" in Sources([str(tmp_path)]).reach("mine.registry")


def test_relative_imports_and_imports_inside_functions_count(tmp_path):
    _package(
        tmp_path, "mine", __init__="", a="def f():\n    from .b import g\n    return g\n", b="from . import c\n", c=""
    )
    assert set(Sources([str(tmp_path)]).reach("mine.a")) == {"mine", "mine.a", "mine.b", "mine.c"}


def test_library_versions_are_part_of_it():
    version = SOURCES.version("pipeline.stages.tune")
    assert {"numpy", "scipy", "scikit-learn", "torch"} <= set(version)


def test_a_constructors_arguments_are_read_from_its_text():
    found = arguments_of("attacks.PGD")
    assert found is not None
    assert found["epsilon"].default == pytest.approx(8 / 255)
    assert found["chunk_size"].default == 512  # of a base class
    assert "name" not in found  # a class variable
    assert arguments_of("sklearn.svm.SVC") is None


def test_a_constructor_that_takes_anything_declares_nothing(tmp_path):
    (tmp_path / "loose.py").write_text(
        "class Loose:\n    def __init__(self, **settings): ...\nclass Child(Loose): ...\nclass Strict(Loose):\n"
        "    def __init__(self, size: int = 3): ...\n"
    )
    sources = Sources([str(tmp_path)])
    assert arguments_of("loose.Loose", sources) is None
    assert arguments_of("loose.Child", sources) is None
    assert list(arguments_of("loose.Strict", sources)) == ["size"]
