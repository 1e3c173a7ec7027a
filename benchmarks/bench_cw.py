"""C&W to 100 % success ÷ foolbox's L2CarliniWagner with as many steps.

Points foolbox does not break count as infinitely far in its median; the median over its successes, and ours over the
same points, stand beside it.
"""

import sys

import foolbox
import numpy as np
from peers import exact_mnist_model, to_foolbox
from timing import best_time, report

from attacks import CarliniWagner

POINTS = 200
STEPS = [int(value) for value in sys.argv[1:]] or [100, 300]

data, model, wrapped = exact_mnist_model()
X, y = data.X_test[:POINTS], data.y_test[:POINTS]
correct = model.predict(X) == y
X, y = X[correct], y[correct]
images, labels = to_foolbox(X, y)

for steps in STEPS:
    ours = CarliniWagner(binary_search_steps=9, steps=steps)
    theirs = foolbox.attacks.L2CarliniWagnerAttack(binary_search_steps=9, steps=steps)
    result = ours(model, X, y)
    made = []
    our_time = best_time(lambda attack=ours: attack(model, X, y), 1)  # one run each: foolbox's is long
    their_time = best_time(
        lambda attack=theirs, made=made: made.append(attack(wrapped, images, labels, epsilons=None)[1].numpy()),
        1,
    )
    broken = model.predict(made[-1]) != y
    l2 = np.linalg.norm(made[-1].astype(np.float64) - X, axis=1)
    report(
        "cw",
        case=str(steps),
        section="Attacks",
        what=f"C&W, {len(X)} points of MNIST 1v7, same function",
        against=f"foolbox 3.3.4, 9 × {steps} steps",
        ratio=our_time / their_time,
        shown=f"{result.success.mean():.0%} broken, median L2 {np.median(result.distortion_l2):.3g}; foolbox "
        f"{broken.mean():.0%}, {np.median(np.where(broken, l2, np.inf)):.3g}",
        steps=steps,
        points=len(X),
        ours_seconds=our_time,
        foolbox_seconds=their_time,
        ours_success=float(result.success.mean()),
        foolbox_success=float(broken.mean()),
        ours_median_l2=float(np.median(result.distortion_l2)),
        foolbox_median_l2=float(np.median(np.where(broken, l2, np.inf))),
        ours_median_l2_where_foolbox_succeeds=float(np.median(result.distortion_l2[broken])) if broken.any() else None,
        foolbox_median_l2_where_it_succeeds=float(np.median(l2[broken])) if broken.any() else None,
        ours_nearer_share=float(np.mean(result.distortion_l2 <= np.where(broken, l2, np.inf))),
        gradient_evaluations=float(result.gradient_evaluations.mean()),
    )
