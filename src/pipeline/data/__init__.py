"""Binary image datasets: one loader per source, one YAML in ``conf/dataset`` per dataset.

Adding a dataset is one file with one function ``load(settings, data_dir, progress) -> Dataset`` and one YAML whose
``loader`` is the dotted path of that function.
"""

from pipeline.data.api import fingerprint, load_dataset, summary
from pipeline.data.dataset import Dataset, build_dataset
from pipeline.data.settings import dataset_names, read_settings

__all__ = [
    "Dataset",
    "build_dataset",
    "dataset_names",
    "fingerprint",
    "load_dataset",
    "read_settings",
    "summary",
]
