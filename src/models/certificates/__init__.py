"""Certificates: how far a point may move, in which norm and box, before its label can change."""

from models.certificates.definite import curvature_bound
from models.certificates.radii import linear_radius, paper_radius, second_order_radius, sharp_radius

__all__ = ["curvature_bound", "linear_radius", "paper_radius", "second_order_radius", "sharp_radius"]
