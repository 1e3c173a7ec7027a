"""Model files: what is saved comes back bit for bit, and what is not whole is refused by name."""

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from models import AdvLinearSVM, AdvSVM, DoublyStochastic, KernelSVC, load, save
from models.persistence import _checksum

MODELS = {
    "linear": lambda: AdvLinearSVM(C=0.5, box=(0.0, 1.0)),
    "svc": lambda: KernelSVC(C=2.0),
    "doubly_stochastic": lambda: AdvSVM(expansion=DoublyStochastic(n_features=64), batch_size=20),
    "orthogonal": lambda: AdvSVM(expansion=DoublyStochastic(n_features=64, sampling="orthogonal"), batch_size=20),
    "support_vectors": lambda: AdvSVM(expansion="support_vectors", batch_size=20),
}
every_model = pytest.mark.parametrize("name", MODELS)


def data(dtype=np.float32):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, 6)).astype(dtype)
    return X, np.where(X[:, 0] + X[:, 1] > 1, "seven", "one")


@every_model
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_equal_bit_for_bit_after_a_round_trip(name, dtype, tmp_path):
    X, y = data(dtype)
    model = MODELS[name]().fit(X, y, eval_set=(X, y))
    save(model, tmp_path / "a" / "model")
    again = load(tmp_path / "a" / "model")
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.scores(X), model.scores(X))
    np.testing.assert_array_equal(again.scores_and_gradients(X)[1], model.scores_and_gradients(X)[1])
    np.testing.assert_array_equal(again.staged_scores(X), model.staged_scores(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.certified_radius(X, y), model.certified_radius(X, y))
    assert again.n_features_in_ == 6
    assert again.get_params().keys() == model.get_params().keys()
    np.testing.assert_array_equal(again.curve_["test_error"], model.curve_["test_error"])


@pytest.mark.parametrize("labels", [(0, 1), (-1, 1), ("a", "bc"), (1.0, 2.0), (False, True)])
def test_labels_keep_their_values_and_type(labels, tmp_path):
    X, y = data()
    model = AdvLinearSVM().fit(X, np.where(y == "one", *labels))
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.classes_, model.classes_)


def test_feature_names_come_back(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = data()
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    save(KernelSVC().fit(frame, y), tmp_path)
    assert load(tmp_path).feature_names_in_.tolist() == list("abcdef")


def test_saving_twice_replaces_the_model_and_leaves_nothing_else(tmp_path):
    X, y = data()
    save(KernelSVC().fit(X, y), tmp_path)
    second = AdvLinearSVM().fit(X, y)
    save(second, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", "model.safetensors"]
    np.testing.assert_array_equal(load(tmp_path).scores(X), second.scores(X))


@pytest.fixture
def saved(tmp_path):
    X, y = data()
    save(AdvLinearSVM().fit(X, y), tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        load(saved)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_cut_file_is_refused(saved, name):
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        load(saved)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_one_changed_character_is_refused(saved, name):
    content = bytearray((saved / name).read_bytes())
    place = len(content) - 20 if name == "model.safetensors" else content.index(b'"n_iter": ') + 10
    content[place] = ord("9") if content[place] != ord("9") else ord("8")
    (saved / name).write_bytes(bytes(content))
    with pytest.raises(ValueError, match=name):
        load(saved)


def test_the_arrays_of_another_model_are_refused(saved):
    save_file({"coef": np.zeros((1, 6))}, saved / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        load(saved)


def change(folder, **fields):
    document = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(document | fields))


def test_a_newer_format_is_refused_with_the_way_out(saved):
    change(saved, format_version=99)
    with pytest.raises(ValueError, match=r"model\.json has format version 99.*upgrade"):
        load(saved)


@pytest.mark.parametrize("content", ["[]", "{}", "null", '{"format_version": "1"}', "not json"])
def test_a_document_that_is_not_one_is_refused(saved, content):
    (saved / "model.json").write_text(content)
    with pytest.raises(ValueError, match=r"model\.json is damaged"):
        load(saved)


def test_only_known_classes_are_ever_built(saved):
    from models import persistence

    document = json.loads((saved / "model.json").read_text())
    document.pop("checksum")
    document["class"] = "os.system"
    document["checksum"] = persistence._checksum(document)
    (saved / "model.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"model\.json holds a 'os\.system'"):
        load(saved)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def _places(node, path=()):
    yield path
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from _places(value, (*path, key))


@pytest.fixture(scope="module")
def crafted(tmp_path_factory):
    X, y = data()
    folders = {}
    for name, make in MODELS.items():
        folders[name] = tmp_path_factory.mktemp(name)
        save(make().fit(X, y), folders[name])
    return {name: (folder, json.loads((folder / "model.json").read_text())) for name, folder in folders.items()}


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False), value=JSON, remove=st.booleans(), name=st.sampled_from(list(MODELS)))
def test_a_document_made_by_hand_is_refused_as_documented(crafted, random, value, remove, name):
    """With a right checksum: whoever writes the document can compute it."""
    folder, document = crafted[name]
    body = json.loads(json.dumps({key: part for key, part in document.items() if key != "checksum"}))
    *home, last = random.choice([path for path in _places(body) if path])
    node = body
    for key in home:
        node = node[key]
    if remove:
        del node[last]
    else:
        node[last] = value
    (folder / "model.json").write_text(json.dumps({**body, "checksum": _checksum(json.loads(json.dumps(body)))}))
    with suppress(ValueError):  # or a model, where the change does not matter
        load(folder)


def test_unknown_objects_are_not_saved(tmp_path):
    class Stranger:
        pass

    with pytest.raises(ValueError, match="cannot save a Stranger"):
        save(Stranger(), tmp_path)


def test_a_failed_write_leaves_the_old_model_in_place(saved, monkeypatch):
    X, y = data()
    before = load(saved).scores(X)

    def no_space(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", no_space)
    with pytest.raises(OSError, match="No space"):
        save(AdvLinearSVM(C=9.0).fit(X, y), saved)
    assert sorted(p.name for p in saved.iterdir()) == ["model.json", "model.safetensors"]
    np.testing.assert_array_equal(load(saved).scores(X), before)
