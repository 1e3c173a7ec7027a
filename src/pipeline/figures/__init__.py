"""Figures of runs, sweeps and reports.

``charts`` and ``gallery`` draw the kinds of figures from plain data; ``of_runs``, ``of_sweeps`` and ``of_reports`` say
what is drawn of what. To add a figure, write one function and mark it
``@run_figure``, ``@sweep_figure`` or ``@report_figure``, in a file of this folder or in any module that the setting
``figures`` names.
"""

from pipeline.figures.registry import dataset_figure, report_figure, run_figure, sweep_figure
from pipeline.figures.style import Drawing

__all__ = ["Drawing", "dataset_figure", "report_figure", "run_figure", "sweep_figure"]
