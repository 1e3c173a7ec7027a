"""Small networks, trained on clean data or adversarially, behind the same protocol as the kernel machines."""

from models.networks.classifier import AdvNetwork
from models.networks.fgsm_rs import FGSMRS
from models.networks.free import Free
from models.networks.mart import MART
from models.networks.natural import Natural
from models.networks.standard import Standard
from models.networks.training import Training
from models.networks.vat import VAT

__all__ = ["FGSMRS", "MART", "VAT", "AdvNetwork", "Free", "Natural", "Standard", "Training"]
