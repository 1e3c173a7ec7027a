"""``/constructor/attacks.PGD`` in a defaults list: the settings of a class, read from its constructor on demand."""

from __future__ import annotations

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin

_GROUP = "constructor"


class ConstructorSource(ConfigSource):
    """Configurations that are the arguments of classes; their group is not listed among the choices."""

    @staticmethod
    def scheme() -> str:
        """Scheme in Hydra's search path."""
        return _GROUP

    def load_config(self, config_path: str) -> ConfigResult:
        """Typed settings of the class whose dotted path follows the group's name."""
        from pipeline.schema import constructor

        target = config_path.removesuffix(".yaml").removeprefix(f"{_GROUP}/")
        return ConfigResult(
            provider=self.provider, path=f"{_GROUP}://", config=constructor(target), header={"package": None}
        )

    def available(self) -> bool:
        """Always."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Whether it is our group."""
        return config_path.rstrip("/") == _GROUP

    def is_config(self, config_path: str) -> bool:
        """Whether it names a class."""
        return config_path.startswith(f"{_GROUP}/")

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Nothing: classes are named, not chosen."""
        return []


class ConstructorSearchPath(SearchPathPlugin):
    """Adds the source to every search path."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append, so that files win."""
        search_path.append(provider="advsvm", path=f"{_GROUP}://")
