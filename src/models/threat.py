"""What the attacker may do: a norm, a radius and a box; of real features which, which way, how far, in which steps."""

import math
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.limits import one_of

Within = Callable[[np.ndarray], np.ndarray]
# Smallest and largest values: two numbers, arrays (d,), or arrays (n, d) where rows differ; None is everywhere.
Box = tuple[Any, Any] | None

NORM = one_of("linf", "l2")
SYMBOLS = {"linf": "L∞", "l2": "L2"}


@dataclass(frozen=True)
class Threat:
    """All points of a box within `epsilon` of the clean one: what an attacked and a certified accuracy share.

    Parameters
    ----------
    norm : {"linf", "l2"}
    epsilon : float
        Radius in `norm`, in the units of the features; ``inf`` for an attack that stops at no distance.
    box : (float, float), a pair of tuples or arrays, or None
        Smallest and largest value of the features, of all or one each; None is everywhere.
    unit : str
        What the radius is measured in, where that must be said.
    constraints : Constraints, optional
        What else the attacker cannot do.
    """

    norm: str
    epsilon: float
    box: Any = (0.0, 1.0)
    unit: str = ""
    constraints: "Constraints | None" = None

    def __post_init__(self) -> None:
        check_norm(self.norm)
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must be a number >= 0, got {self.epsilon!r}")
        check_constraints(self.constraints)
        if self.box is not None:
            check_box(self.box)
            object.__setattr__(self, "box", tuple(plain(limit) for limit in self.box))

    @property
    def bounded(self) -> bool:
        """Whether there is a radius at all."""
        return math.isfinite(self.epsilon)

    def limits(self, X: np.ndarray) -> tuple[Any, Any] | None:
        """Smallest and largest values, for proofs: of all rows alike, of every feature, or of every row, (n, d)."""
        return self.box if self.constraints is None else self.constraints.region(X, self.box)

    def __str__(self) -> str:
        words = f"{SYMBOLS[self.norm]} {readable(self.epsilon) if self.bounded else 'unbounded'}"
        return f"{words} {self.unit}" if self.unit else words


def plain(limit: Any) -> Any:
    """A number, or a tuple of them: what can be compared and stored."""
    return tuple(np.asarray(limit, dtype=float).tolist()) if np.ndim(limit) else float(limit)


def readable(epsilon: float) -> str:
    """``8/255`` for the radii of 8-bit pixels, four digits for all others."""
    levels = epsilon * 255
    if float(f"{epsilon:.4g}") != epsilon and abs(levels - round(levels)) < 1e-9 and round(levels):
        return f"{round(levels)}/255"
    return f"{epsilon:.4g}"


@dataclass(frozen=True, eq=False)
class Constraints:
    """Limits beyond ball and box; every attack honours them exactly.

    Parameters
    ----------
    mask : bool array (d,) or list of features, optional
        Features the attacker cannot change.
    direction : int array (d,), optional
        +1 for features that may only grow, -1 for those that may only shrink, 0 for both ways.
    mutable : bool array (d,) or list of features, optional
        Features the attacker can change, instead of `mask`.
    monotone : int array (d,), optional
        Another name of `direction`.
    epsilon : float array (d,), optional
        Largest change of each feature, inside the ball of the attack.
    integer : bool array (d,) or list of features, optional
        Features that are whole numbers.
    groups : sequence of lists of features, optional
        Features of which one is 1 and the others are 0: a category, one-hot.
    """

    mask: Any = None
    direction: Any = None
    epsilon: Any = None
    integer: Any = None
    groups: Sequence[Sequence[int]] = ()
    mutable: Any = None
    monotone: Any = None

    def __post_init__(self) -> None:
        for one, other in (("mask", "mutable"), ("direction", "monotone")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"constraints.{one} and constraints.{other} say the same thing: give one of them")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraints) and self._plain() == other._plain()

    def __hash__(self) -> int:
        return hash(self._plain())

    def _plain(self) -> tuple[Any, ...]:
        """The settings as tuples: what can be compared."""
        arrays = (self.mask, self.direction, self.epsilon, self.integer, self.mutable, self.monotone)
        told = (None if array is None else tuple(np.asarray(array).tolist()) for array in arrays)
        return (*told, tuple(tuple(group) for group in self.groups))

    @property
    def discrete(self) -> bool:
        """Whether some features take separate values only."""
        return self.integer is not None or len(self.groups) > 0

    def region(self, X: np.ndarray, box: tuple[Any, Any] | None) -> tuple[np.ndarray, np.ndarray]:
        """The box of every row for ``models.certify``: all that these constraints allow lies inside.

        Whole numbers and categories count as all numbers between their limits.
        """
        lower, upper = (-np.inf, np.inf) if box is None else box
        return self.limits(np.asarray(X, dtype=np.float64), lower, upper, hair=0.0)

    def limits(self, X: np.ndarray, lower: Any, upper: Any, hair: float = 1e-6) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest value every feature of every row may take, (n, d) each, inside the given ones.

        `hair` is the share of `epsilon` to keep off its edge: sums are rounded to the dtype of the examples.

        Raises ValueError, naming the argument, where a constraint does not fit X or X itself breaks it.
        """
        d = X.shape[1]
        low, high = (np.broadcast_to(np.asarray(limit, dtype=X.dtype), X.shape).copy() for limit in (lower, upper))
        if self.epsilon is not None:
            radius = per_feature(self.epsilon, d, "constraints.epsilon").astype(np.float64)
            if not (radius >= 0).all():
                raise ValueError("constraints.epsilon must be >= 0 for every feature")
            radius = radius * (1.0 - hair) - 0.1 * hair * np.abs(X).max(initial=0.0)
            low, high = np.maximum(low, X - np.maximum(radius, 0.0)), np.minimum(high, X + np.maximum(radius, 0.0))
        if self.direction is not None or self.monotone is not None:
            name = "constraints.direction" if self.monotone is None else "constraints.monotone"
            ways = per_feature(self.direction if self.monotone is None else self.monotone, d, name)
            if not np.isin(ways, (-1, 0, 1)).all():
                raise ValueError(f"{name} must be -1, 0 or +1 for every feature")
            low, high = np.where(ways > 0, X, low), np.where(ways < 0, X, high)
        fixed = self.fixed(d)
        if fixed is not None:
            if fixed.all():
                raise ValueError(f"constraints.mask leaves nothing to attack: it fixes all {d} features")
            low, high = np.where(fixed, X, low), np.where(fixed, X, high)
        if self.integer is not None:
            whole = chosen(self.integer, d, "constraints.integer")
            broken = whole & (np.round(X) != X).any(axis=0)
            if broken.any():
                raise ValueError(f"constraints.integer: X itself is not whole in feature {np.flatnonzero(broken)[0]}")
            low, high = np.where(whole, np.ceil(low), low), np.where(whole, np.floor(high), high)
        self._check_groups(X)
        return low.astype(X.dtype), high.astype(X.dtype)

    def fixed(self, d: int) -> np.ndarray | None:
        """Features the attacker cannot change, (d,) bool; None where nothing is said of them."""
        if self.mutable is not None:
            return ~chosen(self.mutable, d, "constraints.mutable")
        return None if self.mask is None else chosen(self.mask, d, "constraints.mask")

    def _check_groups(self, X: np.ndarray) -> None:
        seen: set[int] = set()
        for number, group in enumerate(self.groups):
            if len(group) < 2 or seen.intersection(group) or not all(0 <= j < X.shape[1] for j in group):
                raise ValueError(f"constraints.groups: group {number} must hold two or more features of its own")
            seen.update(group)
            rows = X[:, list(group)]
            if not (np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) == 1).all()):
                raise ValueError(f"constraints.groups: X itself is not one-hot in group {number}")

    def snap(self, points: np.ndarray, X: np.ndarray, low: np.ndarray, high: np.ndarray, within: Within) -> np.ndarray:
        """The points with whole numbers and categories: the nearest ones, or those of X where these leave the ball."""
        nearest, nearer = points.copy(), points.copy()
        if self.integer is not None:
            whole = chosen(self.integer, X.shape[1], "constraints.integer")
            nearest[:, whole] = np.clip(np.round(points), low, high)[:, whole]
            nearer[:, whole] = X[:, whole]
        for group in self.groups:
            columns = list(group)
            values = np.where(self._open(X, low, high, columns), points[:, columns], -np.inf)
            nearest[:, columns] = np.eye(len(columns), dtype=X.dtype)[values.argmax(axis=1)]
            nearer[:, columns] = X[:, columns]
        return np.where(within(nearest)[:, None], nearest, nearer)

    def kept(self, points: np.ndarray) -> np.ndarray:
        """Rows whose whole numbers and categories are such, (n,)."""
        fine = np.ones(len(points), dtype=bool)
        if self.integer is not None:
            whole = points[:, chosen(self.integer, points.shape[1], "constraints.integer")]
            fine &= (np.round(whole) == whole).all(axis=1)
        for group in self.groups:
            rows = points[:, list(group)]
            fine &= np.isin(rows, (0, 1)).all(axis=1) & (rows.sum(axis=1) == 1)
        return fine

    @staticmethod
    def _open(X: np.ndarray, low: np.ndarray, high: np.ndarray, columns: list[int]) -> np.ndarray:
        """Categories the limits allow, (n, size); always the one of X."""
        here = X[:, columns] == 1
        leaving = (low[:, columns] <= 0)[here][:, None]
        return here | ((high[:, columns] >= 1) & leaving)

    def neighbours(self, point: np.ndarray, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> Iterator[np.ndarray]:
        """All points (d,) one whole number or one category away."""
        if self.integer is not None:
            for j in np.flatnonzero(chosen(self.integer, len(x), "constraints.integer")):
                for step in (-1.0, 1.0):
                    if low[j] <= point[j] + step <= high[j]:
                        other = point.copy()
                        other[j] += step
                        yield other
        for group in self.groups:
            columns = list(group)
            for k in np.flatnonzero(self._open(x[None], low[None], high[None], columns)[0]):
                if point[columns[k]] != 1:
                    other = point.copy()
                    other[columns] = np.eye(len(columns), dtype=point.dtype)[k]
                    yield other


def check_constraints(constraints: Any) -> None:
    """None, or constraints: a dict would be found out only when the attack looks at its rows."""
    if not (constraints is None or isinstance(constraints, Constraints)):
        raise ValueError(f"constraints must be attacks.Constraints(...), got {type(constraints).__name__}")


def per_feature(values: Any, d: int, name: str) -> np.ndarray:
    """One number per feature, (d,)."""
    array = np.asarray(values)
    if array.shape != (d,):
        raise ValueError(f"{name} must have one entry for each of the {d} features, got shape {array.shape}")
    return array


def chosen(features: Any, d: int, name: str) -> np.ndarray:
    """Features given as a bool array (d,) or by their numbers, as a bool array."""
    array = np.asarray(features)
    if array.size == 0:
        raise ValueError(f"{name} is empty: leave it out, or name at least one feature")
    if array.dtype == bool:
        return per_feature(array, d, name)
    if not np.issubdtype(array.dtype, np.integer) or array.ndim != 1 or array.min() < 0 or array.max() >= d:
        raise ValueError(f"{name} must be a bool per feature, or numbers of features from 0 to {d - 1}")
    return np.isin(np.arange(d), array)


def check_norm(norm: Any, name: str = "norm") -> None:
    """A norm the attacks know."""
    if norm not in ("linf", "l2"):
        raise ValueError(f"{name} must be 'linf' or 'l2', got {norm!r}")


def check_box(box: Any) -> None:
    """A pair (lowest, highest) of values, of all features or one each."""
    try:
        lowest, highest = (np.asarray(limit, dtype=np.float64) for limit in box)
        scalar = lowest.ndim == highest.ndim == 0
        ordered = bool((lowest < highest).all() if scalar else (lowest <= highest).all() and (lowest < highest).any())
    except (TypeError, ValueError):
        ordered = False
    if not ordered:
        raise ValueError(f"box must be a pair (lowest, highest) with lowest < highest, got {reprlib.repr(box)}")


def box_of(box: Box, rows: Any) -> Box:
    """The box of some of the rows: edges that differ from row to row have shape (n, d)."""
    if box is None:
        return None
    low, high = (np.asarray(edge)[rows] if np.ndim(edge) == 2 else edge for edge in box)
    return low, high
