"""ART 1.20.1 on a fitted scikit-learn SVC: time of a gradient, and what its C&W and ZOO reach.

ART turns a plain SVC into one-hot outputs, so its C&W and ZOO see no slope and return their input unchanged.
"""

import warnings

import numpy as np
from art.attacks.evasion import CarliniL2Method, ZooAttack
from art.estimators.classification import SklearnClassifier
from sklearn.svm import SVC
from timing import best_time, report

from attacks import ZOO, CarliniWagner, as_target
from models import RBF
from pipeline.data import load_dataset

warnings.filterwarnings("ignore")
data = load_dataset("mnist_1v7")
train, points = slice(0, 4000), slice(0, 50)
gamma = RBF(width_scale=4.0).resolve_gamma(data.X_train, 0)
# probability=False in so many words: scikit-learn 1.9 made the default a sentinel, which ART takes for True.
model = SVC(C=8.0, gamma=gamma, probability=False).fit(data.X_train[train], data.y_train[train])
X, y = data.X_test[points], data.y_test[points]
correct = model.predict(X) == y
X, y = X[correct], y[correct]

target, peer = as_target(model), SklearnClassifier(model=model, clip_values=(0.0, 1.0))
one_hot = np.eye(2)[(y > 0).astype(int)]
ours_gradient = best_time(lambda: target.scores_and_gradients(X), 3)
peer_gradient = best_time(lambda: peer.loss_gradient(X, one_hot), 3)


def reached(examples: np.ndarray) -> dict[str, float]:
    """Share of the rows that changed, and share the model gets wrong."""
    n = len(examples)
    changed = np.abs(examples - X[:n]).max(axis=1) > 1e-6
    return {"moved": float(changed.mean()), "success": float(np.mean(model.predict(examples) != y[:n]))}


few = X[:10]
cw_peer = reached(CarliniL2Method(peer, max_iter=10, verbose=False).generate(few))
zoo_settings = {"max_iter": 20, "nb_parallel": 128, "use_resize": False, "use_importance": False, "verbose": False}
zoo_peer = reached(ZooAttack(peer, **zoo_settings).generate(few))
ours_cw = reached(CarliniWagner()(model, X, y).examples)
ours_zoo = reached(ZOO()(model, X, y).examples)
report(
    "art",
    section="Attacks",
    what="gradients of a fitted SVC, 50 points of MNIST 1v7, one batch",
    against="ART 1.20.1",
    ratio=ours_gradient / peer_gradient,
    shown=f"{1000 * ours_gradient:.1f} ms against {peer_gradient:.2f} s; C&W and ZOO: ours break "
    f"{ours_cw['success']:.0%} and {ours_zoo['success']:.0%}, ART's move {cw_peer['moved']:.0%} and "
    f"{zoo_peer['moved']:.0%} of the points",
    points=len(X),
    ours_gradient_seconds=ours_gradient,
    art_gradient_seconds=peer_gradient,
    ours_cw=ours_cw,
    art_cw=cw_peer,
    ours_zoo=ours_zoo,
    art_zoo=zoo_peer,
)
