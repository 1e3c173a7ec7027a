"""The identity of a stage: a digest of its settings, its upstream stage and the code that it runs."""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Results may change in their last bits with these; a mixed cache would break "same key, same result".
_LIBRARIES = ("numpy", "torch", "scikit-learn")


def stage_key(stage: str, settings: dict[str, Any], upstream: str, code: tuple[str, ...]) -> str:
    """Digest of everything the stage's result depends on; ``code`` names packages or modules."""
    identity = {
        "stage": stage,
        "settings": settings,
        "upstream": upstream,
        "code": [code_version(name) for name in code],
        "libraries": _library_versions(),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:40]


@cache
def code_version(name: str) -> str:
    """Digest of a module's or package's code; comments, docstrings and layout do not count."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(name)
    origin = Path(spec.origin)
    files = sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(origin.parent).as_posix().encode())
        digest.update(ast.dump(_without_docstrings(ast.parse(file.read_bytes()))).encode())
    return digest.hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return tree


@cache
def _library_versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in _LIBRARIES}
