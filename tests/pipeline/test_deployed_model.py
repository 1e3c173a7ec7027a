"""The model of a run is ready for use: raw rows in, the user's labels out, kept once, found under Models."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from models import KernelSVC, save
from models.fitted import DeployedClassifier
from pipeline import fitted
from pipeline.cache import StageStore
from pipeline.data import load_dataset
from pipeline.errors import UserError
from pipeline.stages.experiment import Experiment, Results
from pipeline.tracking import bundle as bundles
from pipeline.tracking import runs
from pipeline.tracking.bundle import RunBundle, register_model, upload
from pipeline.tracking.flavor import code_wheel, deploy
from pipeline.tracking.record import record
from pipeline.tracking.store import TrackingStore, open_store
from pipeline.validation import validate
from runs import NO_STORE


class Logged(NamedTuple):
    store: TrackingStore
    results: Results
    run_id: str
    table: pd.DataFrame

    def load(self) -> Any:
        mlflow.set_tracking_uri(self.store.uri)
        return mlflow.pyfunc.load_model(f"runs:/{self.run_id}/model")

    @property
    def test(self) -> pd.DataFrame:
        """The test rows as they are in the file."""
        return self.table.iloc[self.results.data.test_ids]


def patients(n: int = 200) -> pd.DataFrame:
    """Raw features of very different sizes, a column of whole numbers, labels that are texts."""
    found = load_breast_cancer(as_frame=True)
    table = found.data.iloc[:n, [0, 1, 3, 4, 20]].copy()
    table["age"] = np.random.default_rng(0).integers(20, 90, n)
    table["diagnosis"] = np.where(found.target[:n] == 1, "benign", "malignant")
    return table


def opened(folder: Path) -> TrackingStore:
    return open_store(SimpleNamespace(uri=None, folder=str(folder), experiment="advsvm"))


@pytest.fixture(autouse=True)
def no_store_by_default():
    """MLflow remembers the last store for the whole process."""
    yield
    mlflow.set_tracking_uri(NO_STORE)
    mlflow.set_registry_uri(NO_STORE)


def test_a_test_that_names_no_store_leaves_none_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mlflow.exceptions.MlflowException, match="no-store-was-named"):
        mlflow.search_runs()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be copied: making the tables takes seconds."""
    return opened(tmp_path_factory.mktemp("empty") / "mlruns").folder


@pytest.fixture
def store(empty_store, tmp_path) -> TrackingStore:
    shutil.copytree(empty_store, tmp_path / "mlruns")
    return opened(tmp_path / "mlruns")


def results_of(cfg: Any, folder: Path) -> Results:
    data = load_dataset(cfg.dataset)
    return Experiment.of(cfg, data.fingerprint).run(StageStore(folder), data)


def bundle_of(cfg: Any, results: Results, store: TrackingStore) -> RunBundle:
    run_id = runs.start(store, "a run", {"role": "experiment"})
    bundle = RunBundle(store.folder / "pending" / run_id, run_id, "a run", store.uri)
    bundle.folder.mkdir(parents=True)
    record(cfg, results, bundle, [])
    return bundle


def settings(path: Path, scale: str, *more: str) -> list[str]:
    own = ["dataset=csv", f"dataset.path={path}", "dataset.label=diagnosis", f"dataset.scale={scale}"]
    return [*own, "tune=none", "figures=off", "checks=off", "attack=fgsm", "evaluation.certify_seconds=0", *more]


@pytest.fixture
def logged(tmp_path, composed, store):
    def make(scale: str, *more: str) -> Logged:
        table = patients()
        table.to_csv(tmp_path / "patients.csv", index=False)
        cfg = composed(*settings(tmp_path / "patients.csv", scale, *more))
        results = results_of(cfg, tmp_path / "stages")
        bundle = bundle_of(cfg, results, store)
        upload(bundle, store)
        return Logged(store, results, bundle.run_id, table)

    return make


@pytest.mark.parametrize(
    ("scale", "model"),
    [("minmax", "model=adv_svm_c"), ("standard", "model=svc"), ("standard", "model=adv_linear_svm")],
)
def test_raw_rows_give_the_runs_own_predictions_in_the_users_labels(logged, scale, model):
    kernel = ["model.expansion.n_features=64", "model.step=0.25"] if model == "model=adv_svm_c" else []
    run = logged(scale, model, *kernel)
    loaded, rows = run.load(), run.test.drop(columns="diagnosis")
    predicted = loaded.predict(rows)
    fitted_model, data = run.results.trained.model, run.results.data
    names = dict(zip((-1, 1), data.class_names))
    assert predicted.tolist() == [names[label] for label in fitted_model.predict(data.X_test).tolist()]
    assert np.mean(predicted == run.test.diagnosis) == run.results.evaluated.metrics["clean_accuracy"]
    assert set(predicted) == {"benign", "malignant"}
    assert np.array_equal(loaded.predict(rows, params={"output": "label"}), predicted)
    scores = loaded.predict(rows, params={"output": "scores"})
    assert np.array_equal(scores, fitted_model.decision_function(data.X_test))
    radius, right = loaded.predict(rows, params={"output": "radius"}), (predicted == run.test.diagnosis).to_numpy()
    np.testing.assert_allclose(radius[right], run.results.evaluated.radii[right], rtol=1e-9)
    assert (radius >= 0).all()
    assert radius.any()
    # The order of the columns means nothing, and more of them than needed do no harm.
    assert np.array_equal(loaded.predict(run.test[run.test.columns[::-1]]), predicted)


def test_the_model_says_what_it_takes_and_refuses_the_rest_in_one_line(logged):
    run = logged("standard", "model=svc")
    loaded, rows = run.load(), run.test.drop(columns="diagnosis")
    signature = loaded.metadata.signature
    assert signature.inputs.input_names() == list(rows.columns)
    assert {str(kind) for kind in signature.inputs.input_types()} == {"DataType.double", "Any"}
    assert [(param.name, param.default) for param in signature.params.params] == [("output", "label")]
    assert str(signature.outputs.input_types()[0]) == "DataType.string"
    # The example is of rows of the file, and may be used as it is.
    example = loaded.input_example
    np.testing.assert_allclose(example.to_numpy(), rows[:2].to_numpy(), rtol=1e-5)
    assert np.array_equal(loaded.predict(example), loaded.predict(rows[:2]))
    assert rows.age.dtype == np.int64  # whole numbers are taken as they come, and so are the same as decimals
    assert np.array_equal(loaded.predict(rows.astype(float)), loaded.predict(rows))
    for params in ({"output": "probability"}, {"output": 3}):
        with pytest.raises(Exception, match="output") as refused:
            loaded.predict(rows, params=params)
        assert "\n" not in str(refused.value)
    with pytest.raises(Exception, match="missing inputs"):
        loaded.predict(rows.drop(columns="mean radius"))
    with pytest.raises(ValueError, match="NaN"):
        loaded.predict(rows.assign(age=np.nan))
    (requirements,) = run.store.folder.glob("artifacts/models/*/artifacts/requirements.txt")
    lines = requirements.read_text().splitlines()
    assert [line for line in lines if "==" not in line] == [f"code/{code_wheel()[0]}"]
    assert not any("+" in line.partition("==")[2] for line in lines[:-1])


def test_one_line_gives_the_estimator_back(logged):
    run = logged("minmax", "model=svc")
    estimator = run.load().get_raw_model()
    rows = run.test.drop(columns="diagnosis")
    assert estimator.predict(rows.to_numpy())[:3].tolist() == run.load().predict(rows)[:3].tolist()
    assert estimator.score(rows, run.test.diagnosis) == run.results.evaluated.metrics["clean_accuracy"]
    assert isinstance(estimator.model, KernelSVC)
    assert np.array_equal(estimator.scaled(rows), run.results.data.X_test)


def test_it_is_kept_once_listed_under_models_and_registered_once(logged, tmp_path):
    run = logged("standard", "model=svc")
    client = run.store.client
    assert len(list((tmp_path / "mlruns" / "artifacts").rglob("model.safetensors"))) == 1
    (model,) = client.search_logged_models([run.store.experiment_id])
    assert (model.name, model.status, model.source_run_id) == ("model", "READY", run.run_id)
    accuracy = run.results.evaluated.metrics["clean_accuracy"]
    assert {metric.key: metric.value for metric in model.metrics}["clean_accuracy"] == pytest.approx(accuracy, rel=1e-5)
    assert [output.model_id for output in client.get_run(run.run_id).outputs.model_outputs] == [model.model_id]
    assert "model" in {file.path for file in client.list_artifacts(run.run_id)}
    for _ in range(2):
        register_model(run.store, run.run_id, "patients")
    mlflow.set_tracking_uri(run.store.uri)
    mlflow.set_registry_uri(run.store.uri)
    rows = run.test.drop(columns="diagnosis")[:4]
    assert [version.version for version in client.search_model_versions("name = 'patients'")] in ([1], ["1"])
    assert np.array_equal(mlflow.pyfunc.load_model("models:/patients/1").predict(rows), run.load().predict(rows))
    # By MLflow's own means, too.
    made = mlflow.register_model(f"runs:/{run.run_id}/model", "patients")
    assert np.array_equal(
        mlflow.pyfunc.load_model(f"models:/patients/{made.version}").predict(rows), run.load().predict(rows)
    )
    # A store that is moved takes its models with it.
    before = run.load().predict(rows)
    shutil.move(tmp_path / "mlruns", tmp_path / "elsewhere")
    moved = run._replace(store=opened(tmp_path / "elsewhere"))
    assert np.array_equal(moved.load().predict(rows), before)


def test_an_upload_that_was_cut_short_leaves_no_second_model(tmp_path, composed, store, monkeypatch):
    table = patients()
    table.to_csv(tmp_path / "patients.csv", index=False)
    cfg = composed(*settings(tmp_path / "patients.csv", "minmax", "model=svc", "tracking.register=patients"))
    bundle = bundle_of(cfg, results_of(cfg, tmp_path / "stages"), store)
    client = store.client

    def cut(*_: Any) -> None:
        raise OSError("the line went dead")

    with monkeypatch.context() as patch:
        patch.setattr(type(client), "log_outputs", cut)
        with pytest.raises(OSError, match="dead"):
            upload(bundle, store)
    (model,) = client.search_logged_models([store.experiment_id])
    assert model.status == "PENDING"
    assert bundles.send_pending(store) == ["a run"]
    (model,) = client.search_logged_models([store.experiment_id])
    assert model.status == "READY"
    assert len(client.search_model_versions("name = 'patients'")) == 1


@pytest.mark.parametrize(
    "labels", [np.array([3, 8]), np.array(["3", "8"]), np.array([False, True]), np.array(["no", "yes"])]
)
def test_labels_come_back_with_their_type(tmp_path, labels):
    rng = np.random.default_rng(0)
    y = labels[np.arange(40) % 2]
    X = (rng.normal(size=(40, 3)) + 3 * (np.arange(40) % 2)[:, None]) * [1, 10, 100]
    np.savez(tmp_path / "d.npz", X=X, y=y)
    data = load_dataset({"name": "npz", "path": str(tmp_path / "d.npz"), "scale": "minmax"})
    model = KernelSVC(C=1.0).fit(data.X_train, data.y_train)
    save(model, tmp_path / "kept")
    deploy(model, data, tmp_path / "kept")
    predicted = DeployedClassifier.load(tmp_path / "kept").predict(X)
    assert predicted.dtype.kind == y.dtype.kind
    assert np.mean(predicted == y) > 0.9


def test_texts_that_look_like_numbers_are_other_data(tmp_path):
    found = []
    for labels in (np.array([3, 8]), np.array(["3", "8"])):
        np.savez(tmp_path / "d.npz", X=np.random.default_rng(0).random((40, 3)), y=labels[np.arange(40) % 2])
        found.append(load_dataset({"name": "npz", "path": str(tmp_path / "d.npz")}))
    assert found[0].labels == (3, 8)
    assert found[1].labels == ("3", "8")
    assert found[0].fingerprint != found[1].fingerprint


@pytest.mark.parametrize("classes", ["[benign,malignant]", "[malignant,benign]"])
def test_a_logged_model_is_judged_again_as_the_same_model(tmp_path, composed, classes):
    patients().to_csv(tmp_path / "patients.csv", index=False)
    cfg = composed(*settings(tmp_path / "patients.csv", "minmax", "model=svc", "dataset.classes=[benign,malignant]"))
    data = load_dataset(cfg.dataset)
    model = KernelSVC(C=1.0).fit(data.X_train, data.y_train)
    save(model, tmp_path / "kept")
    deploy(model, data, tmp_path / "kept")
    again = composed(
        *settings(tmp_path / "patients.csv", "minmax", "model=fitted", f"model.path={tmp_path / 'kept'}"),
        f"dataset.classes={classes}",
    )
    other = load_dataset(again.dataset)
    adopted = fitted.adopt(again, other)
    names = dict(zip((-1, 1), other.class_names))
    rows = patients().drop(columns="diagnosis").iloc[other.test_ids]
    said = DeployedClassifier.load(tmp_path / "kept").predict(rows)
    assert [names[label] for label in adopted.predict(other.X_test).tolist()] == said.tolist()
    assert np.mean(adopted.predict(other.X_test) == other.y_test) > 0.8
    changed = composed(
        *settings(tmp_path / "patients.csv", "standard", "model=fitted", f"model.path={tmp_path / 'kept'}")
    )
    with pytest.raises(UserError, match=r"dataset\.scale: the model was trained on rows in other units"):
        fitted.adopt(changed, load_dataset(changed.dataset))


def test_a_model_of_mlflows_sklearn_flavour_is_judged_by_its_address(tmp_path, composed, store):
    table = patients()
    table.to_csv(tmp_path / "patients.csv", index=False)
    rows = table.drop(columns="diagnosis")
    theirs = make_pipeline(StandardScaler(), SVC(C=2.0)).fit(rows, table.diagnosis)
    mlflow.set_tracking_uri(store.uri)
    mlflow.set_registry_uri(store.uri)
    pinned = {"pip_requirements": ["scikit-learn"]}  # else MLflow starts another Python to find out
    with mlflow.start_run(experiment_id=store.experiment_id) as run:
        mlflow.sklearn.log_model(
            theirs, name="model", serialization_format="skops", registered_model_name="theirs", **pinned
        )
        mlflow.sklearn.log_model(theirs, name="pickled", serialization_format="cloudpickle", **pinned)

    def asked(address: str, *more: str) -> Any:
        model = ["model=fitted", f"model.path={address}", f"tracking.folder={store.folder}"]
        return composed(*settings(tmp_path / "patients.csv", "standard", *model, *more))

    for address in (f"runs:/{run.info.run_id}/model", "models:/theirs/1"):
        cfg = asked(address)
        fitted.check(cfg)
        data = load_dataset(cfg.dataset)
        names = dict(zip((-1, 1), data.class_names))
        said = [names[label] for label in fitted.adopt(cfg, data).predict(data.X_test).tolist()]
        assert said == theirs.predict(rows.iloc[data.test_ids]).tolist()
    pickled = f"runs:/{run.info.run_id}/pickled"
    with pytest.raises(UserError, match=r"is a pickle \(model\.pkl\).*model\.trust=true") as refused:
        fitted.check(asked(pickled))
    assert "\n" not in str(refused.value)
    fitted.check(asked(pickled, "model.trust=true"))
    with pytest.raises(UserError, match=r"model\.path: models:/nobodys/1 cannot be fetched: ") as refused:
        fitted.check(asked("models:/nobodys/1"))
    assert "\n" not in str(refused.value)


def test_the_wheel_beside_the_model_is_whole_and_runs_without_the_pipeline(tmp_path):
    name, content = code_wheel()
    (tmp_path / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        (listed,) = (path for path in wheel.namelist() if path.endswith("RECORD"))
        for line in wheel.read(listed).decode().split():
            path, digest, size = line.rsplit(",", 2)
            if path != listed:
                body = wheel.read(path)
                found = urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
                assert (f"sha256={found}", str(len(body))) == (digest, size)
        wheel.extractall(tmp_path / "site")
    X, y = np.random.default_rng(0).random((40, 3)), np.arange(40) % 2
    np.savez(tmp_path / "d.npz", X=X, y=np.array(["no", "yes"])[y])
    data = load_dataset({"name": "npz", "path": str(tmp_path / "d.npz")})
    model = KernelSVC(C=1.0).fit(data.X_train, data.y_train)
    save(model, tmp_path / "kept")
    deploy(model, data, tmp_path / "kept")
    program = (
        "import sys, numpy as np, models, models.deployment as d\n"
        f"assert models.__file__.startswith({str(tmp_path)!r}), models.__file__\n"
        f"print(*d._load_pyfunc({str(tmp_path / 'kept')!r}).predict(np.full((2, 3), 0.5)))\n"
        "assert not {'pipeline', 'attacks', 'mlflow', 'hydra'} & set(sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= {"no", "yes"}


def test_a_name_that_cannot_be_registered_is_refused_before_any_work(composed):
    with pytest.raises(UserError, match=r"tracking\.register: 'a/b'"):
        validate(composed("tracking.register=a/b"))
