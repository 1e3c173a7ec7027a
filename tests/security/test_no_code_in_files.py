"""Nothing we load can execute: no loader that unpickles, and malicious files that prove it."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import pickle
import tarfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import models
from pipeline.cache import DamagedEntry, Entry, StageStore
from pipeline.cache import entry as entries
from pipeline.data import load_dataset, read_settings
from pipeline.data.fetching import SourceError, unpack_tar
from pipeline.errors import UserError

SOURCE = Path(models.__file__).parents[1]
FORBIDDEN_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle"}
FORBIDDEN_CALLS = {
    "joblib.load", "torch.load", "torch.jit.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
    "pandas.read_pickle", "pd.read_pickle", "os.system", "os.popen", "eval", "exec",
}  # fmt: skip
# With model.trust=true alone, for a model that the user names: tests/pipeline/test_fitted_models.py.
ON_REQUEST = {"pipeline/fitted.py": {"joblib.load"}}
# Through a pipe from a driver to the workers that it started, and back: nobody else can write into it.
BY_PIPE = {"pipeline/workers.py": {"cloudpickle"}}
FILES = {"open", "read_bytes", "read_text", "load", "frombuffer"}


class Payload:
    """Unpickling it creates a file."""

    def __init__(self, canary: Path):
        self.canary = canary

    def __reduce__(self):
        return (Path.touch, (self.canary,))


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "executed"


def _name(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda f: str(f.relative_to(SOURCE)))
def test_no_source_file_unpickles_or_evaluates(file: Path) -> None:
    if "site-packages" in file.parts:
        pytest.skip("not ours")
    name = file.relative_to(SOURCE).as_posix()
    forbidden, modules = FORBIDDEN_CALLS - ON_REQUEST.get(name, set()), FORBIDDEN_MODULES - BY_PIPE.get(name, set())
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & modules
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in modules
        if isinstance(node, ast.Call):
            called, keywords = _name(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
            assert called not in forbidden, f"line {node.lineno}: {called}"
            assert keywords.get("allow_pickle") != "True", f"line {node.lineno}: allow_pickle=True"
            assert keywords.get("shell") != "True", f"line {node.lineno}: shell=True"
            if called in ("np.load", "numpy.load"):
                assert keywords.get("allow_pickle") == "False", f"line {node.lineno}: say allow_pickle=False"


@pytest.mark.parametrize("name", BY_PIPE)
def test_what_unpickles_from_a_pipe_reads_no_file(name: str) -> None:
    calls = [node.func for node in ast.walk(ast.parse((SOURCE / name).read_text())) if isinstance(node, ast.Call)]
    assert not {ast.unparse(call).split(".")[-1] for call in calls} & FILES


def test_the_payload_works(canary: Path) -> None:
    pickle.loads(pickle.dumps(Payload(canary)))
    assert canary.exists()


@pytest.mark.parametrize("file", ["arrays.safetensors", "entry.json"])
def test_a_pickle_in_the_place_of_a_cache_entry_is_refused(tmp_path: Path, canary: Path, file: str) -> None:
    """Also when its checksum was made to match."""
    store = StageStore(tmp_path / "stages")
    store.get_or_compute("train", "k", lambda: Entry({"a": 1}, {"w": np.ones(3)}))
    folder = tmp_path / "stages" / "train" / "k"
    (folder / file).write_bytes(pickle.dumps(Payload(canary)))
    if file == "arrays.safetensors":
        header = json.loads((folder / "entry.json").read_text())
        header["arrays_sha256"] = entries.file_digest(folder / file)
        (folder / "entry.json").write_text(json.dumps(header))
    with pytest.raises(DamagedEntry):
        entries.read(folder)
    _, reused = store.get_or_compute("train", "k", lambda: Entry({"a": 1}))
    assert not reused
    assert not canary.exists()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    X, y = rng.random((40, 4)).astype(np.float32), np.where(np.arange(40) % 2, 1, -1)
    folder = tmp_path_factory.mktemp("model")
    models.save(models.AdvSVM(batch_size=20, expansion="support_vectors").fit(X, y), folder)
    return folder


def _copy(folder: Path, target: Path) -> Path:
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


@pytest.mark.parametrize("file", ["model.safetensors", "model.json"])
def test_a_pickle_in_the_place_of_a_model_is_refused(
    tmp_path: Path, canary: Path, model_folder: Path, file: str
) -> None:
    folder = _copy(model_folder, tmp_path / "m")
    payload = pickle.dumps(Payload(canary))
    (folder / file).write_bytes(payload)
    with pytest.raises(ValueError, match=file):
        models.load(folder)
    if file == "model.safetensors":
        document = json.loads((folder / "model.json").read_text())
        document["tensors_sha256"] = hashlib.sha256(payload).hexdigest()
        (folder / "model.json").write_text(json.dumps(document))
        with pytest.raises(ValueError):
            models.load(folder)
    assert not canary.exists()


def test_a_model_file_cannot_name_a_class_of_its_choice(tmp_path: Path, model_folder: Path) -> None:
    folder = _copy(model_folder, tmp_path / "m")
    document = json.loads((folder / "model.json").read_text())
    document["class"] = "os.system"
    (folder / "model.json").write_text(json.dumps(document))
    with pytest.raises(ValueError):
        models.load(folder)


@pytest.mark.parametrize("damage", ["flip", "cut"])
@pytest.mark.parametrize("file", ["model.safetensors", "model.json"])
def test_a_damaged_model_file_is_refused_by_name(tmp_path: Path, model_folder: Path, file: str, damage: str) -> None:
    folder = _copy(model_folder, tmp_path / "m")
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 0x04
    (folder / file).write_bytes(bytes(content) if damage == "flip" else bytes(content[: len(content) // 2]))
    with pytest.raises(ValueError, match="model"):
        models.load(folder)


def test_a_pickle_inside_a_data_file_is_refused(tmp_path: Path, canary: Path) -> None:
    path = tmp_path / "data.npz"
    labels = np.array(["cat", "dog"])
    np.savez(path, X=np.array([[Payload(canary)], [1.0]], dtype=object), y=labels, allow_pickle=True)
    settings = {**read_settings("npz"), "path": str(path), "classes": ["cat", "dog"]}
    with pytest.raises(UserError, match=r"dataset\.path"):
        load_dataset(settings)
    assert not canary.exists()
    np.load(path, allow_pickle=True)["X"]
    assert canary.exists(), "the file is malicious: a loader that unpickles runs it"


@pytest.mark.parametrize("name", ["../outside", "/outside-absolute", "link/outside"])
def test_an_archive_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    archive, folder = tmp_path / "a.tar", tmp_path / "inner" / "folder"
    folder.mkdir(parents=True)
    target = name if not name.startswith("/") else str(tmp_path / name[1:])
    with tarfile.open(archive, "w") as tar:
        if name.startswith("link/"):
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.SYMTYPE, "../.."
            tar.addfile(link)
        member = tarfile.TarInfo(target)
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    with suppress(SourceError):  # refused, or (an absolute name) unpacked below the folder: never outside
        unpack_tar(archive, folder)
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and p != archive and folder not in p.parents]
    assert outside == []
    assert not os.path.lexists(tmp_path / "inner" / "outside")
