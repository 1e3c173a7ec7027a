"""The paper re-measured: tables, verdicts and figures from the tracked runs, beside the paper's numbers."""
