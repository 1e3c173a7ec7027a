"""The experiment pipeline: configuration, stages, tracking, sweeps, reports."""

import os

# Before torch loads its thread pool: waiting threads sleep instead of spinning. Measured on two cores with other work
# running: PGD on the digits 0.75 s instead of 17 s; no difference on a quiet machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# The same for numpy's BLAS, which does no heavy work here: its threads spin after each product and take the cores from
# torch's (the linear machine on MNIST 1 vs 7: 8 s instead of 2).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
