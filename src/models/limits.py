"""What must hold of a setting stands beside its type: ``steps: Annotated[int, whole(1)] = 10``."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, get_args

# Steps, restarts or queries beyond it are a slip of the hand: nobody waits for their end.
_MOST = 10**7


@dataclass(frozen=True)
class Limit:
    """A condition, and its words in a message: ``epsilon must be a finite number >= 0, got -1``."""

    holds: Callable[[Any], bool]
    words: str | Callable[[], str]  # a function where they change, as with names that are registered later

    def __str__(self) -> str:
        return self.words if isinstance(self.words, str) else self.words()


def _is_number(value: Any, kind: type = Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and -math.inf < value < math.inf  # type: ignore[operator]


POSITIVE = Limit(lambda value: _is_number(value) and value > 0, "a finite number > 0")
BOOLEAN = Limit(lambda value: isinstance(value, bool), "true or false")


def at_least(least: float) -> Limit:
    """A number not smaller than this."""
    return Limit(lambda value: _is_number(value) and value >= least, f"a finite number >= {least:g}")


def at_most(most: float) -> Limit:
    """A number not larger than this."""
    return Limit(lambda value: _is_number(value) and value <= most, f"at most {most:g}")


def within(low: float, high: float, open_above: bool = False) -> Limit:
    """A number in [low, high], or in [low, high)."""
    if open_above:
        return Limit(lambda value: _is_number(value) and low <= value < high, f"in [{low:g}, {high:g})")
    return Limit(lambda value: _is_number(value) and low <= value <= high, f"in [{low:g}, {high:g}]")


def whole(least: int = 1) -> Limit:
    """An integer not smaller than this, and one whose end can be waited for."""
    words = f"an integer >= {least} and <= {_MOST:,}"
    return Limit(lambda value: _is_number(value, Integral) and least <= value <= _MOST, words)


SEED = Limit(lambda value: _is_number(value, Integral) and value >= 0, "an integer >= 0")


def one_of(*choices: str, live: Collection[str] = ()) -> Limit:
    """One of these words; `live` is looked up each time."""

    def words() -> str:
        return f"one of {', '.join([*choices, *sorted(live)])}"

    return Limit(lambda value: isinstance(value, str) and (value in choices or value in live), words)


def instance(*kinds: type) -> Limit:
    """An object of one of these classes."""
    return Limit(lambda value: isinstance(value, kinds), " or ".join(kind.__name__ for kind in kinds))


def either(*limits: Limit) -> Limit:
    """One of several limits."""
    return Limit(lambda value: any(limit.holds(value) for limit in limits), lambda: " or ".join(map(str, limits)))


def check_limits(settings: Any, prefix: str = "", like: type | None = None) -> None:
    """Check a dataclass's settings, declared there or in another one; None passes where the type allows it."""
    for setting in fields(settings if like is None else like):
        kind, *limits = get_args(setting.type) if hasattr(setting.type, "__metadata__") else (None,)
        value = getattr(settings, setting.name)
        for limit in () if value is None and type(None) in get_args(kind) else limits:
            if not limit.holds(value):
                raise ValueError(f"{prefix}{setting.name} must be {limit}, got {value!r}")
