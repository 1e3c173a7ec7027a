"""The experiment pipeline: configuration, stages, tracking, sweeps, reports."""

import os

# Before torch loads its thread pool: waiting threads sleep instead of spinning. Measured on two cores with other work
# running: PGD on the digits 0.75 s instead of 17 s; no difference on a quiet machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
