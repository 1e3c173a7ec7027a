"""Adversarially robust support vector machines as scikit-learn estimators, with certificates and fast tuning."""

import lazy_loader

# On required_margin: a command line that only prints its help should not wait for torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
