"""Settings classes that are found by their name: being a subclass is being registered."""

from dataclasses import asdict
from typing import Any, ClassVar, Self

from models.limits import check_limits


class Registered:
    """Base of a family of frozen dataclasses; a subclass with a `name` of its own joins the family's `registry`.

    A stored form names the class by module and name. Restoring looks it up among the classes already defined and never
    imports anything: a file cannot make us run code.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    registry: ClassVar[dict[str, type[Any]]]
    formerly: ClassVar[str | None] = None  # the module that files of earlier versions name

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
        check_limits(self, f"{self.family}.")

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
        moved = None if known is None else known.path().replace(known.__module__, known.formerly or known.__module__)
        if known is None or path not in (None, known.path(), moved):
            where = f", class {path}" if path else ""
            raise ValueError(f"unknown {cls.family} {name!r}{where}: import the module that defines it before loading")
        found: Self = known(**settings)
        return found
