"""The order-0 bound: any kernel of the distance, from the value alone."""

import numpy as np
import pytest
from brute_force import largest_proved, lowest, random_points, random_threat
from hypothesis import given, settings
from hypothesis import strategies as st

from models import AdvSVM, certify
from models.certificates.forms import contest_of
from models.certificates.of_expansions import RadialSum
from models.certificates.region import region
from models.kernels import Laplacian


def machine(rng: np.random.Generator, d: int, dtype: str) -> AdvSVM:
    X = rng.uniform(0, 1, (60, d))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(60) > 0.5, 1, 0)
    y[:2] = 0, 1
    kernel = Laplacian(gamma=10.0 ** rng.uniform(-1, 1.5))
    return AdvSVM(expansion="support_vectors", kernel=kernel, epsilon=0.0, batch_size=20, dtype=dtype).fit(X, y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_no_proof_of_a_laplacian_sum_is_refuted(dtype, seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    model, X = machine(rng, d, dtype), random_points(rng, d, 3)
    norm, box = random_threat(rng, d)
    form = contest_of(model).forms[0]
    assert isinstance(form, RadialSum)
    signs = np.where(model.scores(X) > 0, 1.0, -1.0)
    radii = largest_proved(form.quick(X, signs).proves, X, norm, box)
    where = region(X, radii, norm, box)
    for row in np.flatnonzero(radii):
        assert lowest(model.scores, where, row, signs[row], rng) > 0


def test_never_below_the_papers_bound():
    rng = np.random.default_rng(0)
    model, X = machine(rng, 3, "float64"), rng.uniform(0, 1, (300, 3))
    labels = model.predict(X)
    radii = model.certified_radius(X, labels, bound="paper")
    for epsilon in (1e-3, 1e-2, 0.05, 0.1):
        assert not ((radii >= epsilon * (1 + 1e-6)) & ~certify(model, X, labels, epsilon, "l2", None)).any()
