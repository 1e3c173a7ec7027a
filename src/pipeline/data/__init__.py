"""Binary image datasets: one loader per source, one YAML in ``conf/dataset`` per dataset.

Adding a dataset is one file with one function ``load(settings, data_dir, progress) -> Dataset`` and one YAML whose
``loader`` is the dotted path of that function.
"""

from pipeline.data.dataset import Dataset, build_dataset
from pipeline.data.loading import check_settings, fingerprint, hold_to, load_dataset, summary
from pipeline.data.settings import dataset_names, read_settings

__all__ = [
    "Dataset",
    "build_dataset",
    "check_settings",
    "dataset_names",
    "fingerprint",
    "hold_to",
    "load_dataset",
    "read_settings",
    "summary",
]
