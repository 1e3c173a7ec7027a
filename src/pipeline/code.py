"""Code read as text: what a module can reach by its imports, and a digest of that.

Nothing is imported here: the key of a stage is known without waiting for torch.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from importlib import metadata
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

import platformdirs

from pipeline.paths import write_whole

_OWN = ("models", "attacks", "pipeline")
# Results may change in their last bits with these, also where only another library imports them.
_NUMERIC = {"numpy", "scipy", "scikit-learn", "torch"}
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "hydra": "hydra-core", "PIL": "pillow", "yaml": "pyyaml"}
_BY_NAME = ("import_module", "iter_modules", "walk_packages")


@dataclass(eq=False)
class Sources:
    """The modules of this project and of its user; libraries are known by their version only."""

    path: Sequence[str] | None = None  # where to look for top-level modules; sys.path by default
    _modules: dict[str, Module | None] = field(default_factory=dict)
    _versions: dict[tuple[str, ...], dict[str, str]] = field(default_factory=dict)

    def module(self, name: str) -> Module | None:
        """A module by its dotted name; None if there is none or it belongs to a library."""
        if name not in self._modules:
            file = self._file(name)
            self._modules[name] = None if file is None else Module(name, file)
        return self._modules[name]

    def _file(self, name: str) -> Path | None:
        top, *rest = name.split(".")
        if top in sys.stdlib_module_names:
            return None
        # Only a top-level module may be asked for: asking for a submodule imports its package.
        spec = PathFinder.find_spec(top, self.path) or (None if self.path else find_spec(top))
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            return None
        file = Path(spec.origin)
        if top not in _OWN and {"site-packages", "dist-packages"} & set(file.parts):
            return None
        if not rest:
            return file
        home = file.parent.joinpath(*rest) if file.name == "__init__.py" else None
        if home is None:
            return None
        return next((f for f in (home / "__init__.py", home.with_suffix(".py")) if f.is_file()), None)

    def locate(self, target: str) -> tuple[Module, str]:
        """Module and attribute of a dotted path such as ``models.AdvSVM``, through the packages that pass it on."""
        parts = target.split(".")
        for cut in range(len(parts), 0, -1):
            module = self.module(".".join(parts[:cut]))
            if module is None:
                continue
            name = ".".join(parts[cut:])
            origin = module.facts.bindings.get(name) if module.is_package else None
            return self.locate(origin) if origin and origin != f"{module.name}.{name}" else (module, name)
        raise ModuleNotFoundError(target)

    def reach(self, *targets: str) -> dict[str, Module]:
        """All modules that the code at these dotted paths can reach, by name."""
        found: dict[str, Module] = {}
        waiting = [module for target in targets for module in self._along(target)]
        while waiting:
            module = waiting.pop()
            if module.name in found:
                continue
            found[module.name] = module
            for name in module.facts.imports:
                waiting += self._along(name)
            if module.facts.imports_by_name:
                waiting += [m for name in module.siblings() if (m := self.module(name)) is not None]
        return found

    def _along(self, target: str) -> Iterator[Module]:
        """The module of a dotted path, and the packages whose ``__init__`` runs before it."""
        try:
            module, name = self.locate(target)
        except ModuleNotFoundError:
            return
        parts = module.name.split(".")
        for cut in range(1, len(parts) + 1):
            package = self.module(".".join(parts[:cut]))
            if package is not None:
                yield package
        if module.is_package and name and name not in module.facts.defines:
            # Passed on in a way that the text does not tell: it may be any module of the package.
            yield from (m for sibling in module.siblings() if (m := self.module(sibling)) is not None)

    def version(self, *targets: str) -> dict[str, str]:
        """Digests of the modules that the targets reach, and versions of the libraries that those import."""
        if targets not in self._versions:
            modules = self.reach(*targets)
            libraries = {library for module in modules.values() for library in module.libraries(self)}
            digests = {name: module.facts.digest for name, module in modules.items()}
            _known().keep()
            self._versions[targets] = digests | {name: version_of(name) or "" for name in sorted(libraries | _NUMERIC)}
        return self._versions[targets]


@dataclass(frozen=True)
class Facts:
    """What the text of a module says."""

    digest: str
    """Of the code; comments, docstrings and layout do not count."""
    imports: list[str]
    """Dotted paths that the code imports, at the top or inside functions. A package's are those it uses itself."""
    imports_by_name: bool
    """Whether it imports modules whose names it computes: then it may reach every module beside it."""
    bindings: dict[str, str]
    """Names that are imported from elsewhere → the dotted path they come from."""
    defines: list[str]
    """Names that are made in the file itself."""


class _KnownFacts(dict[str, Facts]):
    """Facts by the content of a file, kept in the user's cache folder: parsing all files takes a second."""

    def __init__(self) -> None:
        super().__init__()
        reader = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
        version = ".".join(map(str, sys.version_info[:3]))
        self.file = Path(platformdirs.user_cache_dir("advsvm")) / f"code-{version}-{reader}.json"
        with suppress(OSError, ValueError, TypeError, AttributeError):  # none yet, or not ours: parsed anew
            self.update({content: Facts(**known) for content, known in json.loads(self.file.read_text()).items()})
        self.stored = len(self)

    def keep(self) -> None:
        """Write down what is new; a folder that cannot be written costs the next command a second, nothing else."""
        if len(self) == self.stored:
            return
        self.stored = len(self)
        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            # Of a file that was edited a thousand times the last contents are enough.
            latest = list(self.items())[-1000:]
            write_whole(self.file, json.dumps({content: asdict(known) for content, known in latest}))


@cache
def _known() -> _KnownFacts:
    return _KnownFacts()


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    file: Path

    @property
    def is_package(self) -> bool:
        """Whether it is the ``__init__`` of a package."""
        return self.file.name == "__init__.py"

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree, without docstrings."""
        return _without_docstrings(ast.parse(self.file.read_bytes()))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def facts(self) -> Facts:
        """What the text says; parsed once for each content of the file, on this machine."""
        stub = self.file.with_suffix(".pyi") if self.is_package else None
        declared = stub.read_bytes() if stub is not None and stub.is_file() else b""
        content = hashlib.sha256(b"\0".join((self.name.encode(), self.file.read_bytes(), declared))).hexdigest()
        if content not in _known():
            _known()[content] = Facts(
                hashlib.sha256(ast.dump(self.tree).encode()).hexdigest(),
                self._imports(),
                self._imports_by_name(),
                self._bindings(declared),
                self._defines(),
            )
        return _known()[content]

    def _bindings(self, declared: bytes) -> dict[str, str]:
        # What is imported for type checkers alone counts, and what a stub says: that is how a package declares what it
        # imports on demand.
        return {
            alias.asname or alias.name: f"{self._absolute(node)}.{alias.name}"
            for node in [*self.nodes, *ast.walk(ast.parse(declared))]
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def _defines(self) -> list[str]:
        kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
        names = {node.name for node in self.tree.body if isinstance(node, kinds)}
        for node in self.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        return sorted(names)

    def _imports(self) -> list[str]:
        skipped = {id(node) for block in self.nodes if _for_types(block) for node in ast.walk(block)}
        used = {node.id for node in self.nodes if isinstance(node, ast.Name)} if self.is_package else None
        found = []
        for node in self.nodes:
            if id(node) in skipped:
                continue
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [alias.name for alias in node.names if used is None or (alias.asname or alias.name) in used]
                found += [f"{self._absolute(node)}.{name}" for name in names]
        return found

    def _imports_by_name(self) -> bool:
        used = {n.id for n in self.nodes if isinstance(n, ast.Name)}
        used |= {n.attr for n in self.nodes if isinstance(n, ast.Attribute)}
        return not self.is_package and bool(used.intersection(_BY_NAME))

    def siblings(self) -> list[str]:
        """Names of the modules in its folder and below."""
        package = self.name if self.is_package else self.name.rpartition(".")[0]
        files = [f.relative_to(self.file.parent).with_suffix("") for f in self.file.parent.rglob("*.py")]
        return sorted(".".join([package, *(p for p in f.parts if p != "__init__")]) for f in files) if package else []

    def libraries(self, sources: Sources) -> set[str]:
        """Distributions that it imports."""
        tops = {name.split(".")[0] for name in self.facts.imports} - sys.stdlib_module_names
        others = {_DISTRIBUTIONS.get(top, top) for top in tops if sources.module(top) is None}
        return {name for name in others if version_of(name) is not None}

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        kept = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*kept, *([node.module] if node.module else [])])


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@cache
def version_of(distribution: str) -> str | None:
    """Version of an installed distribution; None if there is none. Its metadata take milliseconds to read."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return tree


def targets_in(settings: object) -> Iterable[str]:
    """Every ``_target_`` in nested settings."""
    if isinstance(settings, dict):
        if "_target_" in settings:
            yield str(settings["_target_"])
        for value in settings.values():
            yield from targets_in(value)


SOURCES = Sources()
