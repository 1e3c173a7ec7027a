"""Which code a configuration may name: a YAML file from somewhere else must not choose what is run here."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.arguments import arguments_of
from pipeline.errors import UserError

KNOWN = ("models", "attacks", "sklearn", "pipeline")
# Settings that are dotted paths of code, besides every ``_target_``.
_PATHS = ("dataset.loader", "evaluation.metrics", "evaluation.checks", "figures")

# Sections of Hydra's own configuration whose ``_target_`` is constructed, before any job runs.
_BUILT = ("callbacks", "launcher", "sweeper")
_HYDRAS = ("hydra._internal.core_plugins", "hydra.experimental", "hydra_plugins", "pipeline")
_LOGGERS = (
    "logging.StreamHandler", "logging.FileHandler", "logging.NullHandler", "logging.Formatter",
    "colorlog.ColoredFormatter", "pipeline.progress.TerminalHandler", "ext://sys.stdout", "ext://sys.stderr",
)  # fmt: skip
_LOG_FILE = re.compile(r"\$\{hydra\.runtime\.output_dir\}/(\$\{hydra\.job\.name\}|[\w-]+)\.\w+")
# What becomes a line of a shell script or the environment of a process.
_COMMANDS = ("launcher.setup", "launcher.additional_parameters", "job.env_copy", "job.env_set")


def check_trusted(cfg: DictConfig, overrides: list[str]) -> None:
    """Raise :class:`UserError` for code of a module that is neither ours nor named on the command line.

    Who starts the command names a module in ``trusted=[my_module]``, or by using it in a setting there. A file cannot
    trust itself: what it says in ``trusted`` does not count.
    """
    line = _CommandLine(cfg, overrides)
    for path, target in _targets(cfg):
        if not (line.says(path, target) or line.trusts(target) or _ours(target, KNOWN)):
            raise UserError(_refusal(path, target))


def guard_compositions() -> None:
    """Let every configuration that Hydra composes, in this process and for every job, pass :func:`check_hydra`.

    Hydra has no hook between composing a configuration and constructing what its ``hydra`` section names.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.config_store import ConfigStore

    from pipeline.composing import sharing

    if getattr(ConfigLoaderImpl.load_configuration, "guarded", False):
        return
    compose = sharing(ConfigLoaderImpl.load_configuration)
    # Every composition copies its sources, and one of them holds this singleton with all schemas: most of the time.
    ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]

    @functools.wraps(ConfigLoaderImpl.load_configuration)
    def load_configuration(
        self: ConfigLoaderImpl, config_name: str | None, overrides: list[str], *args: Any, **kwargs: Any
    ) -> DictConfig:
        cfg = compose(self, config_name, overrides, *args, **kwargs)
        check_hydra(cfg, overrides)
        return cfg

    load_configuration.guarded = True  # type: ignore[attr-defined]
    ConfigLoaderImpl.load_configuration = load_configuration  # type: ignore[method-assign]


def check_hydra(cfg: DictConfig, overrides: list[str]) -> None:
    """Raise :class:`UserError` unless the ``hydra`` section names only plugins, plain log handlers and no commands.

    ``trusted=[hydra]`` on the command line lets a file of yours set what becomes shell lines and environment.
    """
    line = _CommandLine(cfg, overrides)
    hydra = cfg.hydra
    typed = [text for text in overrides if not re.match(r"[+~]*hydra[./]", text)]
    for kind, given in (("task", typed), ("hydra", [text for text in overrides if text not in typed])):
        if list(OmegaConf.to_container(hydra.overrides[kind])) != given:  # type: ignore[arg-type]
            raise UserError(f"hydra.overrides.{kind}: a file cannot say what was said on the command line")
    if not isinstance(hydra.verbose, (bool, str, ListConfig)):  # Hydra asserts it, without a word
        raise UserError(f"hydra.verbose must be true, false or the name of a logger; got {hydra.verbose}")
    for section in (*_BUILT, "job_logging", "hydra_logging"):
        for path, key, value in _leaves(hydra._get_node(section), f"hydra.{section}"):
            if key == "_target_" and not (line.says(path, value) or line.trusts(value) or _ours(value, _HYDRAS)):
                raise UserError(_refusal(path, value))
            if section.endswith("logging"):
                _check_logging(path, key, value, line)
            elif section == "launcher" and isinstance(value, str) and "\n" in value:
                raise UserError(f"{path}: a setting of a launcher is one line")
    for name in _COMMANDS:
        value = OmegaConf.select(hydra, name)
        if name == "job.env_set":
            value = set(value) - set(hydra.job.env_copy)  # Hydra has put those in
        if value and not (line.gives(f"hydra.{name}") or line.trusts("hydra")):
            raise UserError(f"hydra.{name}: what a file says here is executed; {_allows('hydra')}")
    for key in OmegaConf.select(hydra, "sweeper.params") or ():
        if re.search(r"(^|[+~])(trusted|hydra)\b|_target_", str(key)) or str(key).lstrip("+~") in _PATHS:
            raise UserError(f"hydra.sweeper.params.{key}: code is named on the command line, not in a file")


class _CommandLine:
    """What whoever started the command said about code."""

    def __init__(self, cfg: DictConfig, overrides: Iterable[str]):
        self._given = [(key, value) for key, _, value in (text.lstrip("+~").partition("=") for text in overrides)]
        trusted = OmegaConf.select(cfg, "trusted", default=None) if self.gives("trusted") else None
        self._trusted = [str(name) for name in trusted] if isinstance(trusted, ListConfig) else []

    def gives(self, setting: str) -> bool:
        return any(key == setting or key.startswith(f"{setting}.") for key, _ in self._given)

    def says(self, setting: str, target: str) -> bool:
        return any(key == setting and target in value for key, value in self._given)

    def trusts(self, target: str) -> bool:
        return any(f"{target}.".startswith(f"{name}.") for name in self._trusted)


def _refusal(path: str, target: str) -> str:
    root = target.split(".")[0]
    way = _allows(root) if root not in KNOWN and root.isidentifier() else "that is not ours to run"
    return f"{path}={target}: code that a configuration names is run; {way}"


def _allows(root: str) -> str:
    return f"trusted=[{root}] on the command line allows it"


def _targets(cfg: DictConfig) -> Iterator[tuple[str, str]]:
    # Resolved as well: ${oc.create:…} is a mapping, and with it a _target_, once it is used.
    for resolve in (False, True):
        for path, key, value in _leaves_of(OmegaConf.to_container(cfg, resolve=resolve), ""):
            if key == "_target_":
                yield path, str(value)
    for path in _PATHS:
        value = OmegaConf.select(cfg, path, default=None)
        for name in value if OmegaConf.is_list(value) else [value]:
            if name and str(name) not in ("auto", "off"):
                yield path, str(name)


def _leaves_of(node: Any, path: str, key: str = "") -> Iterator[tuple[str, str, Any]]:
    """Path, last key and value of everything in plain containers; a container under ``_target_`` counts, too."""
    if key == "_target_" or not isinstance(node, (dict, list)):
        yield path, key, node
    for name, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from _leaves_of(value, f"{path}.{name}" if path else str(name), str(name))


def _leaves(node: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """As :func:`_leaves_of`, of a part of Hydra's section, where not everything can be resolved before a job runs."""
    if node is None:
        return
    if node._is_interpolation():
        raise UserError(f"{path}: {node._value()} may become anything; write its settings down")
    for leaf, key, value in _leaves_of(OmegaConf.to_container(node, resolve=False), path):
        whole = isinstance(value, str) and re.fullmatch(r"\$\{.*\}", value, re.S)
        # One that is resolved in a job only must be plain: hydra.runtime.output_dir, hydra.job.num.
        if whole and not re.fullmatch(r"\$\{hydra\.(runtime|job|sweep|run)\.\w+\}|\$\{cores:\}", str(value)):
            try:
                parent = OmegaConf.select(node, leaf[len(path) + 1 :])
            except OmegaConfBaseException:
                parent = node
            if OmegaConf.is_config(parent):
                raise UserError(f"{leaf}: {value} may become anything; write its settings down")
        yield leaf, key, str(value) if key == "_target_" else value


def _check_logging(path: str, key: str, value: Any, line: _CommandLine) -> None:
    """Python's logging calls what ``()`` and ``class`` name, and opens ``filename``."""
    names_code = key in ("()", "class") or (isinstance(value, str) and value.startswith("ext://"))
    if names_code and value not in _LOGGERS and not (line.says(path, str(value)) or line.trusts(str(value))):
        raise UserError(_refusal(path, str(value)))
    if key == "filename" and not (_LOG_FILE.fullmatch(str(value)) or line.gives(path) or line.trusts("hydra")):
        raise UserError(f"{path}={value}: log files are written to ${{hydra.runtime.output_dir}}/; {_allows('hydra')}")


def _ours(target: str, roots: tuple[str, ...]) -> bool:
    """Defined in a known package: ``models.persistence.os.system`` is reached through one, but not its own."""
    if not any(f"{target}.".startswith(f"{root}.") for root in roots):
        return False
    if arguments_of(target) is not None:
        return True
    from hydra.utils import get_object

    try:
        found = get_object(target)
    except Exception:  # not there: whoever needs it says so, in words that fit
        return True
    home = str(getattr(found, "__module__", None) or getattr(found, "__name__", ""))
    return any(f"{home}.".startswith(f"{root}.") for root in roots)
