"""What named experiments add to a sweep: their own figures in the summary run, and the convergence diagnostic."""

from pipeline.experiments.summary_figures import draw

__all__ = ["draw"]
