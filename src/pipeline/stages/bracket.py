"""What is known about the true robust accuracy: certified from below, attacked from above, on the same points.

In the attack's own threat every attacked row is certified, broken or undecided (:func:`judge`). Over the L2 radius
there is a second view (:func:`bracket`): an L∞ or small-ball attack says little at a larger L2 radius, so runs without
a minimum-norm attack search for the nearest adversarial point of a sample of their rows.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.stages.build import constraints_of
from pipeline.stages.units import RAW

if TYPE_CHECKING:
    from attacks import Threat
    from pipeline.data import Dataset
    from pipeline.stages.attack import Attacked
    from pipeline.stages.train import Trained

_SAMPLE = 64


@dataclass(frozen=True)
class Verdicts:
    """Per attacked row, (n,) bool each: proved robust, or broken, in one threat."""

    norm: str
    epsilon: float
    bounded: bool  # whether the threat is the attack's own ball; else it is L2 at the cap
    attacked: bool  # False for attack=none: then only the certificate says something
    certified: np.ndarray
    broken: np.ndarray
    box: tuple[Any, Any] = (0.0, 1.0)
    raw: float | None = None  # the radius in the units of the file, where attack.units says so
    stopped: bool = False  # whether evaluation.certify_seconds ended the proofs: then undecided depends on the machine

    ball: float | None = None  # radius of the L2 balls in what is certified, where that is not epsilon

    @property
    def l2_inside(self) -> float:
        """Radius of an L2 ball around every certified row that the certificate covers, too (inside the box)."""
        return self.epsilon if self.ball is None else self.ball

    @property
    def undecided(self) -> np.ndarray:
        """Neither proved robust nor broken."""
        return ~(self.certified | self.broken)

    @property
    def threat(self) -> Threat:
        """What both sides speak about."""
        from attacks import Threat

        return Threat(self.norm, self.epsilon, self.box)

    @property
    def shown(self) -> str:
        """The threat as it was asked for, with its units if they are not the model's."""
        return threat_words(self.norm, self.epsilon, self.raw)

    @property
    def words(self) -> list[str]:
        """``certified``, ``broken`` or ``undecided`` per row."""
        return np.where(self.certified, "certified", np.where(self.broken, "broken", "undecided")).tolist()


def threat_words(norm: str, epsilon: float, raw: float | None = None) -> str:
    """``L∞ 0.1``, or ``L∞ 5 in raw units``."""
    from attacks import Threat

    return str(Threat(norm, epsilon) if raw is None else Threat(norm, raw, unit=RAW))


def verdicts_on(
    data: Dataset,
    trained: Trained,
    attacked: Attacked,
    radii: np.ndarray,
    l2_cap: float,
    seconds: float | None,
    observer: Any = None,
    *,
    constraints: Any = None,
    raw: float | None = None,
) -> Verdicts:
    """Certify the attacked rows in the attack's own norm, radius and box; one without a bound is read at the cap.

    ``constraints`` limit the attacker, by default those of the data; ``raw`` is the radius as it was asked for in the
    units of the file.
    """
    from attacks import Threat
    from models import NoCertificate, certify

    result = attacked.result
    # Without an attack (radius 0) the certificate at the cap is what there is to know.
    attacks_at_all = result.threat.epsilon > 0
    bounded = result.threat.bounded and attacks_at_all
    threat = result.threat if bounded else Threat("l2", l2_cap, result.threat.box)
    X, y = np.ascontiguousarray(data.X_test[attacked.rows]), data.y_test[attacked.rows]
    # The L2 ball of radius √d ε around a point covers its L∞ ball.
    reach = threat.epsilon * (math.sqrt(X.shape[1]) if threat.norm == "linf" else 1.0)
    if getattr(constraints, "epsilon", None) is not None:  # the corner of the cell
        reach = min(reach, float(np.linalg.norm(constraints.epsilon)))
    certified = (radii[attacked.rows] > 0) & (radii[attacked.rows] >= reach)
    broken = np.asarray(result.success if bounded else result.success & (result.distortion_l2 <= threat.epsilon))
    started = time.perf_counter()
    constraints = constraints_of(data) if constraints is None else constraints
    if callable(getattr(trained.model, "certify", None)):
        # Of broken rows only the cheapest proof is asked, in case it contradicts.
        for rows, limit in ((np.flatnonzero(broken), 0.0), (np.flatnonzero(~broken), seconds)):
            # What constrains the attacker is for the proof a box around every row.
            box = threat.box if constraints is None else constraints.region(X[rows], threat.box)
            if len(rows):
                with suppress(NoCertificate):  # the certify stage has said so
                    certified[rows] |= certify(
                        trained.model, X[rows], y[rows], threat.epsilon, threat.norm, box, limit, observer
                    )
    stopped = seconds is not None and time.perf_counter() - started > seconds and not (certified | broken).all()
    return Verdicts(
        threat.norm, float(threat.epsilon), bounded, attacks_at_all, certified, broken, threat.box, raw, bool(stopped),
        ball=_ball_inside(constraints, float(threat.epsilon)),
    )  # fmt: skip


def _ball_inside(constraints: Any, epsilon: float) -> float | None:
    """The L2 ball in a ball cut by what limits the attacker: none where a feature or a direction is closed to him."""
    if constraints is None:
        return None
    if any(getattr(constraints, name) is not None for name in ("mask", "mutable", "direction", "monotone")):
        return 0.0
    return epsilon if constraints.epsilon is None else min(epsilon, float(np.min(constraints.epsilon)))


@dataclass(frozen=True)
class Distances:
    """Per point of ``rows`` (of the test set): the nearest adversarial distance known and the certified one, in L2."""

    rows: np.ndarray
    nearest: np.ndarray
    certified: np.ndarray

    def upper(self, radius: float) -> float:
        """Accuracy when every adversarial point known within ``radius`` counts."""
        return float(np.mean(self.nearest > radius))

    def lower(self, radius: float) -> float:
        """Share of points that no perturbation within ``radius`` can break."""
        return float(np.mean((self.certified > 0) & (self.certified >= radius)))


def known_distances(data: Dataset, trained: Trained, attacked: Attacked, radii: np.ndarray) -> Distances:
    """Known adversarial distances and certificates: of all attacked points, or of a sample of them."""
    result = attacked.result
    own = np.where(result.success, result.distortion_l2, np.inf)
    places = np.arange(len(own))
    if not _minimum_norm(result):
        places = np.unique(np.linspace(0, len(own) - 1, min(_SAMPLE, len(own))).astype(int))
        own = np.minimum(own[places], _search(data, trained, attacked.rows[places]))
    rows = attacked.rows[places]
    return Distances(rows, own, radii[rows])


def _minimum_norm(result: object) -> bool:
    members = getattr(result, "results", None) or {"": result}
    return any(not member.threat.bounded for member in members.values())


def _search(data: Dataset, trained: Trained, rows: np.ndarray) -> np.ndarray:
    """L2 distance of the nearest adversarial point that a short search inside the box finds."""
    from attacks import CarliniWagner

    # The warm start alone: steps to the nearest point of the linearised adversarial region.
    search = CarliniWagner(binary_search_steps=1, steps=1, restarts=1, box=data.box, constraints=constraints_of(data))
    reference = np.ascontiguousarray(data.X_train[:256])
    found = search(trained.model, np.ascontiguousarray(data.X_test[rows]), data.y_test[rows], reference=reference)
    return np.where(found.success, found.distortion_l2, np.inf)
