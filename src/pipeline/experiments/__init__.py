"""What named experiments measure beyond the metrics of a run: the distance to the optimum."""
