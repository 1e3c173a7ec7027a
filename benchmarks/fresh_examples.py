"""What the paper's adversarial term leaves out: the same pass on examples made fresh against each iterate.

`AdvSVM` with ``adversary="input"`` on 9,000 training rows of a CIFAR-10 pair, 1,000 held out: clean accuracy and
what descent within L∞ 8/255 leaves, with and without moving the rows. No test row is used.
    python benchmarks/fresh_examples.py [dataset [width_scale C step epsilon attack_steps passes]]
"""

import sys
import time

import numpy as np
from timing import report

from models import RBF, AdvSVM
from models.grid import margins_and_slopes
from models.threat import Threat
from pipeline.data import load_dataset

RADIUS, HELD_OUT = 8 / 255, 1000
BOX = (0.0, 1.0)


def main(dataset: str = "cifar10_automobile_truck", *settings: str) -> None:
    data = load_dataset(dataset)
    order = np.random.default_rng(5).permutation(len(data.X_train))
    held_out, kept = order[-HELD_OUT:], order[:-HELD_OUT]
    X, y = data.X_train[held_out].astype(np.float32), data.y_train[held_out]
    width, C, step, epsilon = map(float, settings[:4] or (4.0, 2.0, 0.5, RADIUS))
    steps, passes = map(int, settings[4:] or (1, 1))
    for radius in (0.0, epsilon):
        model = AdvSVM(
            "diminishing", "support_vectors", RBF(width_scale=width), radius, C, step, batch_size=500, passes=passes,
            adversary="input", attack_steps=steps, box=BOX, dtype="float32",
        )  # fmt: skip
        started = time.process_time()
        model.fit(data.X_train[kept].astype(np.float32), data.y_train[kept])
        seconds = time.process_time() - started
        survived = Threat("linf", RADIUS, BOX).survivors(X, margins_and_slopes(model, y))
        report(
            "fresh_examples",
            dataset=dataset,
            settings={"width_scale": width, "C": C, "step": step, "epsilon": radius, "attack_steps": steps},
            support_vectors=model.expansion_.n_support,
            seconds=round(seconds, 1),
            clean=100 * float(np.mean(model.predict(X) == y)),
            descent=100 * float(survived.mean()),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
