"""What a job imports before it can start, imported once for all workers that are forked from here."""

from __future__ import annotations

import gc
import os
import warnings
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

from pipeline.cores import LIBRARIES

# Our own packages, whole, and what they import only where it is needed.
_OURS = (
    "attacks", "models", "pipeline.cache", "pipeline.checks", "pipeline.data", "pipeline.figures", "pipeline.stages",
    "pipeline.tracking",
)  # fmt: skip
_OTHERS = (
    "matplotlib.backends.backend_agg", "mlflow.pyfunc.model", "mlflow.store.tracking.sqlalchemy_store", "pipeline.run",
    "seaborn", "sklearn.svm", "sqlalchemy.dialects.sqlite",
)  # fmt: skip


def _import_all() -> None:
    for name in _OURS:
        for module in walk_packages(import_module(name).__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    for name in _OTHERS:
        import_module(name)


os.environ.update(dict.fromkeys(LIBRARIES, "1"))  # threads do not survive a fork; a job starts its own
# A worker runs the file of the command once more, under another name; runpy wonders.
warnings.filterwarnings("ignore", message=".*found in sys.modules after import of package", module="runpy")
gc.disable()  # it would take a quarter of the time, and find nothing
with suppress(Exception):  # what cannot be imported is met, and reported, by the job that needs it
    _import_all()
gc.freeze()  # what is never collected is never written to, and stays shared
gc.enable()
