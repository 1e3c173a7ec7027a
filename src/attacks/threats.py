"""What the attacker may do, by the name under which attacks have always had it; see ``models.threat``."""

from models.threat import Constraints, Threat

__all__ = ["Constraints", "Threat"]
