"""What a sweep leaves on disk: megabytes per run in mlruns/, every file once however many names it has.

Two exact machines under four attacks with the limits of experiment=paper_tables, tuning left out (it adds kilobytes).
    python benchmarks/bench_disk.py [dataset ...]
"""

import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from timing import report

MODELS, ATTACKS = "natural_exact,adv_svm_d_exact", "none,fgsm,pgd,cw"
SETTINGS = (
    "tune=none",
    "model.C=8",
    "model.step=2",
    "evaluation.max_attacked_costly=200",
    "evaluation.certify_seconds=1",
)


def on_disk(folder: Path) -> dict[str, float]:
    """Megabytes below a folder by its first part, in the first of a file's names."""
    sizes: dict[str, float] = defaultdict(float)
    seen = set()
    for path in sorted(folder.rglob("*")):
        state = path.stat()
        if path.is_file() and state.st_ino not in seen:
            seen.add(state.st_ino)
            sizes[path.relative_to(folder).parts[0]] += state.st_size / 1e6
    return dict(sizes)


def measure(dataset: str) -> None:
    runs = len(MODELS.split(",")) * len(ATTACKS.split(","))
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "pipeline.run", "-m", f"dataset={dataset}", f"model={MODELS}", f"attack={ATTACKS}", *SETTINGS]
        done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        sizes = on_disk(Path(folder) / "mlruns")
    share = {name: size / runs for name, size in sizes.items() if name in ("artifacts", "stages", "mlflow.db")}
    report(
        "disk",
        case=dataset,
        section="On disk",
        what=f"megabytes a run, exact kernel, {dataset}, {runs} runs (two models, four attacks)",
        against="",
        shown=f"{sum(share.values()):.2g} MB: " + ", ".join(f"{name} {size:.2g}" for name, size in share.items()),
        megabytes_per_run=sum(share.values()),
        runs=runs,
        by_folder=sizes,
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or ("mnist_1v7", "cifar10_automobile_truck"):
        measure(name)
