"""Small networks, trained on clean data or adversarially, behind the same protocol as the kernel machines."""

from models.networks.classifier import AdvNetwork
from models.networks.losses import FGSMRS, MART, VAT, Free, Natural, Standard, Training

__all__ = ["FGSMRS", "MART", "VAT", "AdvNetwork", "Free", "Natural", "Standard", "Training"]
