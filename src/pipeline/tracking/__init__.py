"""Everything that knows MLflow: opening the store, the life of a run, what is logged."""
