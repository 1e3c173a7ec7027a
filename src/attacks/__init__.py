"""Attacks on binary classifiers with a real-valued score: they need scores, gradients or probes, nothing else."""

import lazy_loader

# On required_margin: whoever only asks what a threat is should not wait for torch and scikit-learn.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
