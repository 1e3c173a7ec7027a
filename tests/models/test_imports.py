"""models and attacks: imports stand at the top, form no cycle, and every module can be the first one imported."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
MODULES = sorted(file for package in ("models", "attacks") for file in (SRC / package).rglob("*.py"))
# Not installed with the package: asked for where they are needed.
OPTIONAL = {"skops", "sklearnex", "cvxpy"}


def deferred(tree):
    """Imports that do not stand at the top of a module."""
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in top:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (name for name in names if name.split(".")[0] not in OPTIONAL)


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SRC)))
def test_imports_stand_at_the_top(file):
    assert list(deferred(ast.parse(file.read_text()))) == []


def test_a_deferred_import_is_found():
    code = "import os\ndef f():\n    import skops.io\n    from models import x\nif TYPE_CHECKING:\n    import torch\n"
    assert sorted(deferred(ast.parse(code))) == ["models", "torch"]


def test_every_module_can_be_the_first_one_imported():
    names = [".".join(file.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for file in MODULES]
    program = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    for known in [known for known in sys.modules if known.split('.')[0] in ('models', 'attacks')]:\n"
        "        del sys.modules[known]\n"
        "    importlib.import_module(name)\n"
        "print('all')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert done.stdout == "all\n", done.stderr


def test_no_two_files_and_no_two_public_classes_of_one_name():
    files = [file.stem for file in MODULES if file.stem != "__init__"]
    assert sorted(files) == sorted(set(files))
    trees = [ast.parse(file.read_text()) for file in MODULES]
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [name for name in classes if not name.startswith("_")]
    assert sorted(public) == sorted(set(public))
