"""Keep the report in MLflow too: one run tagged ``role=report`` that holds its files."""

from __future__ import annotations

from pipeline.report.build import Report
from pipeline.tracking import runs
from pipeline.tracking.store import TrackingStore


def publish(report: Report, store: TrackingStore) -> str:
    """Log the report's folder to a run of its own and return the run's id."""
    datasets = ", ".join(dataset.name for dataset in report.datasets)
    verdicts = [
        f"- {part.section.title}: {claim.text}: **{claim.verdict}**" for part in report.parts for claim in part.claims
    ]
    note = [f"**Report {report.name}**, made {report.made}: open `index.html` among the artifacts.", "", *verdicts]
    tags = {
        "role": "report",
        "dataset": datasets[:4000],
        "model": "(report)",
        "mlflow.note.content": "\n".join(note)[:8000],
        "mlflow.source.name": "pipeline.report",
    }
    run_id = runs.start(store, f"report · {report.name}", tags)
    try:
        store.client.log_metric(run_id, "runs_reported", len(report.runs))
        store.client.log_metric(run_id, "checks_failed", len(report.failed_checks))
        store.client.log_artifacts(run_id, str(report.folder))
    except BaseException as error:
        runs.end(store, run_id, "FAILED", f"{type(error).__name__}: {error}")
        raise
    store.client.set_terminated(run_id, "FINISHED")
    return run_id
