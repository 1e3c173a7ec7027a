"""Settings classes that are found by their name: being a subclass is being registered."""

from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, ClassVar, NamedTuple, Self, get_args


class Limit(NamedTuple):
    """What must hold of a setting; it stands beside the type: ``steps: Annotated[int, at_least(1)] = 10``."""

    holds: Callable[[Any], bool]
    words: str


POSITIVE = Limit(lambda value: value > 0, "positive")


def at_least(least: float) -> Limit:
    """Not smaller than this."""
    return Limit(lambda value: value >= least, f"at least {least:g}")


def at_most(most: float) -> Limit:
    """Not larger than this."""
    return Limit(lambda value: value <= most, f"at most {most:g}")


def one_of(*choices: str) -> Limit:
    """One of these words."""
    return Limit(lambda value: value in choices, f"one of {', '.join(choices)}")


class Registered:
    """Base of a family of frozen dataclasses; a subclass with a `name` of its own joins the family's `registry`.

    A stored form names the class by module and name. Restoring looks it up among the classes already defined and never
    imports anything: a file cannot make us run code.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    registry: ClassVar[dict[str, type[Any]]]

    def __init_subclass__(cls, family: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if family is not None:
            cls.family, cls.registry = family, {}
        elif "name" in cls.__dict__:
            known = cls.registry.get(cls.name)
            # The same class may come again from a reloaded module or notebook cell; another one may not take its name.
            if known is not None and known.path() != cls.path():
                raise ValueError(f"the {cls.family} name {cls.name!r} is taken by {known.path()}")
            cls.registry[cls.name] = cls

    def __post_init__(self) -> None:
        for setting in fields(self):  # type: ignore[arg-type]
            kind, *limits = get_args(setting.type) if hasattr(setting.type, "__metadata__") else (None,)
            value = getattr(self, setting.name)
            for limit in () if value is None and type(None) in get_args(kind) else limits:
                if not limit.holds(value):
                    raise ValueError(f"{self.family}.{setting.name} must be {limit.words}, got {value!r}")

    @classmethod
    def path(cls) -> str:
        """Module and qualified name."""
        return f"{cls.__module__}:{cls.__qualname__}"

    @classmethod
    def of(cls, settings: str | Self) -> Self:
        """The object of a name, with its defaults, or the object itself."""
        if not isinstance(settings, str):
            return settings
        if settings not in cls.registry:
            raise ValueError(f"{cls.family}={settings!r} is not one of {', '.join(sorted(cls.registry))}")
        found: Self = cls.registry[settings]()
        return found

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON; `from_dict` restores them."""
        return {"name": self.name, "class": self.path(), **asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Self:
        """Inverse of `to_dict`, for classes whose module is already imported."""
        settings = dict(stored)
        name = settings.pop("name")
        # Files of earlier versions name no class; theirs are ours.
        path = settings.pop("class", None)
        known = cls.registry.get(name)
        if known is None or path not in (None, known.path()):
            where = f", class {path}" if path else ""
            raise ValueError(f"unknown {cls.family} {name!r}{where}: import the module that defines it before loading")
        found: Self = known(**settings)
        return found
