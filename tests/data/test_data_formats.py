"""Files as users have them: every format gives the same rows, and what is wrong is one line with the place."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from pipeline.data import fingerprint, load_dataset
from pipeline.data.settings import first_line
from pipeline.data.windows import for_stages, row_digests, training_rows
from pipeline.errors import UserError


def _refused(settings, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        load_dataset(settings)
    assert "\n" not in str(error.value)
    assert str(error.value).isprintable()


def a9a(n: int = 600, seed: int = 0):
    """Binary columns, 14 ones a row, labels ±1: a small a9a."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, 123))
    for row in X:
        row[rng.choice(123, 14, replace=False)] = 1
    return X, np.where(X[:, :40].sum(axis=1) > 4, 1, -1)


def ijcnn1(n: int = 600, seed: int = 0):
    """22 columns in [-1, 1], nine of them one-hot, one class in ten: a small ijcnn1."""
    rng = np.random.default_rng(seed)
    X = np.hstack([np.eye(9)[rng.integers(0, 9, n)], rng.uniform(-0.9, 0.9, (n, 13))])
    return X.round(6), np.where(X[:, 12] > 0.7, 1, -1)


def covtype(n: int = 600, seed: int = 0):
    """Ten columns in metres and degrees, 44 binary ones, labels 1 and 2: a small covtype.binary."""
    rng = np.random.default_rng(seed)
    X = np.hstack([rng.integers(0, 4000, (n, 10)), np.eye(44)[rng.integers(0, 44, n)]])
    return X.astype(float), np.where(X[:, 0] > 2000, 2, 1)


SHAPES = {"a9a": (a9a, "none"), "ijcnn1": (ijcnn1, "minmax"), "covtype": (covtype, "minmax")}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("packing", ["", ".gz", ".bz2"])
def test_svmlight_rows_are_the_arrays_they_were_written_from(data_dir, tmp_path, shape, packing):
    make, scale = SHAPES[shape]
    X, y = make()
    dump_svmlight_file(X, y, str(tmp_path / "x"), zero_based=False)
    path = tmp_path / f"x{packing}"
    path.write_bytes({"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[packing]((tmp_path / "x").read_bytes()))
    np.savez(tmp_path / "x.npz", X=X, y=y)
    made = load_dataset({"name": "svmlight", "path": str(path), "scale": scale})
    plain = load_dataset({"name": "npz", "path": str(tmp_path / "x.npz"), "scale": scale})
    assert sparse.issparse(made.X_train) == (shape == "a9a")
    rows = made.X_train.toarray() if sparse.issparse(made.X_train) else made.X_train
    np.testing.assert_allclose(rows, plain.X_train, atol=1e-6)
    np.testing.assert_array_equal(made.y_test, plain.y_test)
    assert made.X_train.dtype == np.float32
    assert ("sparse rows made dense: dataset.scale=minmax moves their zeros" in made.notes) == (shape != "a9a")


def test_sparse_rows_stay_sparse_unless_they_take_less_memory_dense_or_are_asked_for(data_dir, tmp_path):
    X, y = a9a()
    dump_svmlight_file(X, y, str(tmp_path / "x"), zero_based=False)
    settings = {"name": "svmlight", "path": str(tmp_path / "x")}
    dense, thin = load_dataset(settings | {"sparse": False}), load_dataset(settings)
    assert "sparse rows made dense: dataset.sparse=false" in dense.notes
    assert sparse.issparse(thin.X_train)
    full = np.random.default_rng(0).random((40, 5))
    dump_svmlight_file(full, y[:40], str(tmp_path / "full"), zero_based=False)
    filled = settings | {"path": str(tmp_path / "full")}
    assert "sparse rows made dense: they take less memory so" in load_dataset(filled).notes
    assert sparse.issparse(load_dataset(filled | {"sparse": True}).X_train)
    assert thin.X_train.dtype == np.float32
    np.testing.assert_array_equal(thin.X_train.toarray(), dense.X_train)
    np.testing.assert_array_equal(thin.X_test.toarray(), dense.X_test)
    part = load_dataset(settings | {"sparse": True, "max_train": 50})
    assert part.X_train.shape[0] == 50
    halved = load_dataset(settings | {"sparse": True, "scale": 2})
    np.testing.assert_array_equal(halved.X_train.toarray(), dense.X_train / 2)
    assert len({d.fingerprint for d in (thin, part, halved)}) == 3
    _refused(
        settings | {"sparse": True, "scale": "standard"}, r"dataset\.scale: standard moves the zeros of sparse rows"
    )
    _refused(settings | {"sparse": "perhaps"}, r"dataset\.sparse: 'perhaps'; use true, false, or null")
    assert "dataset.scale=standard moves their zeros" in load_dataset(settings | {"scale": "standard"}).notes[0]


def test_wide_sparse_rows_are_refused_before_they_fill_the_memory(data_dir, tmp_path):
    (tmp_path / "wide").write_text("".join(f"{k % 2} {k + 1}:1 9000000:1\n" for k in range(40)))
    settings = {"name": "svmlight", "path": str(tmp_path / "wide"), "max_gb": 0.5}
    message = r"dataset\.max_gb: 40 dense rows of 9,000,000 values take 1\.4 GB"
    _refused(settings | {"sparse": False}, message)
    data = load_dataset(settings)
    assert data.X_train.shape == (30, 9_000_000)
    # The stages: test rows are dense, training rows of a model that needs them so.
    with pytest.raises(UserError, match=message):
        for_stages(data, settings, "mine", takes_sparse=False)
    with pytest.raises(UserError, match=r"dataset\.max_gb: 10 dense rows .* take 0\.4 GB"):
        for_stages(data, settings | {"max_gb": 0.3}, "mine", takes_sparse=True)


def test_the_stages_read_windows_of_sparse_training_rows_as_of_an_array(data_dir, tmp_path):
    X, y = a9a()
    dump_svmlight_file(X, y, str(tmp_path / "x"), zero_based=False)
    settings = {"name": "svmlight", "path": str(tmp_path / "x"), "max_gb": 4}
    data, dense = load_dataset(settings), load_dataset(settings | {"sparse": False})
    staged, filled = (for_stages(data, settings, "mine", takes_sparse=takes) for takes in (True, False))
    assert any("training rows stay sparse (0.11 of" in note for note in staged.notes)
    assert "training rows made dense: model=mine takes no sparse ones" in filled.notes
    assert "test rows made dense: an attacker may change any of their values" in staged.notes
    assert sparse.issparse(training_rows(staged))
    np.testing.assert_array_equal(staged.X_train[5:9], dense.X_train[5:9])
    np.testing.assert_array_equal(staged.X_train[np.array([3, 1])], dense.X_train[[3, 1]])
    np.testing.assert_array_equal(filled.X_train, dense.X_train)
    np.testing.assert_array_equal(staged.X_test, dense.X_test)
    np.testing.assert_array_equal(row_digests(staged.X_train), row_digests(dense.X_train))
    assert len(staged.X_train) == len(dense.X_train)
    assert training_rows(dense) is dense.X_train
    assert for_stages(dense, settings, "mine", takes_sparse=False) is dense


def test_a_test_file_may_use_fewer_or_more_columns(data_dir, tmp_path):
    (tmp_path / "a").write_text("1 1:0.5\n-1 2:0.5\n" * 4)
    (tmp_path / "b").write_text("1 1:0.5 5:1\n-1 2:0.5\n" * 4)
    for first, second in (("a", "b"), ("b", "a")):
        made = load_dataset({"name": "svmlight", "path": str(tmp_path / first), "test_path": str(tmp_path / second)})
        assert made.X_train.shape == made.X_test.shape == (8, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:0.5\n" * 5000 + "1 x:1\n" + "-1 1:1\n" * 9, r"dataset\.path: .*line 5001: "),
        ("1 1:0.5\n-1 2:0.5\n1 3\n", r"dataset\.path: .*line 3: "),
        ("1 1:0.5\n-1 0:0.5\n", r"dataset\.path: .*line 2: column 0; .* dataset\.zero_based=true"),
        ("1,2 1:0.5\n-1 2:0.5\n", r"dataset\.path: .*line 1: "),
        ("spam 1:0.5\n", r"dataset\.path: .*line 1: "),
        ("1 1:nan\n-1 1:1\n" * 3, r"dataset\.path: .*NaN"),
        ("", r"dataset\.path: .*empty"),
        ("1 1:1\n" * 9, r"dataset\.path: all labels are of one class \(1\); a classifier needs two"),
        ("0.5 1:1\n1.5 1:0\n" * 9, r"dataset\.path: .*labels hold decimals \(0\.5, 1\.5"),
        ("1 1:3\n-1 1:2\n" * 9, r"dataset\.scale: .*outside \[0, 1\]"),
        ("1 1:1\x1b[31m\n", r"dataset\.path: .*line 1"),
    ],
)
def test_an_unreadable_svmlight_line_is_named_by_its_number(data_dir, tmp_path, text, message):
    (tmp_path / "x").write_text(text)
    _refused({"name": "svmlight", "path": str(tmp_path / "x")}, message)


def test_columns_counted_from_zero_are_a_setting(data_dir, tmp_path):
    (tmp_path / "x").write_text("1 0:0.5\n-1 1:0.5\n" * 4)
    made = load_dataset({"name": "svmlight", "path": str(tmp_path / "x"), "zero_based": True})
    assert made.X_train.shape[1] == 2


def _frame(n=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"length": rng.random(n), "width": rng.random(n), "label": ["cat", "dog"] * (n // 2)})


def test_csv_parquet_and_arff_of_one_table_are_one_dataset(data_dir, tmp_path):
    frame = _frame()
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet", index=False)
    lines = [
        "@relation x",
        "@attribute length numeric",
        "@attribute width numeric",
        "@attribute label {cat,dog}",
        "@data",
    ]
    (tmp_path / "x.arff").write_text("\n".join([*lines, *frame.astype(str).agg(",".join, axis=1)]) + "\n")
    made = [
        load_dataset({"name": "csv", "path": str(tmp_path / "x.csv")}),
        load_dataset({"name": "parquet", "path": str(tmp_path / "x.parquet")}),
        load_dataset({"name": "openml", "path": str(tmp_path / "x.arff"), "label": "label"}),
    ]
    assert len({dataset.fingerprint for dataset in made}) == 1
    assert made[0].feature_names == ("length", "width")
    assert made[0].class_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,label\n1,1,x\n0,0,1,y\n", r"line 3 of .* has 4 fields, the header 3"),
        ("a,b,label\n7,1,1,x\n8,0,0,y\n", r"line 2 of .* has 4 fields, the header 3"),
        ("a,b,label\n1,1,x\n0,y\n", r"line 3 of .* has 2 fields, the header 3"),
        ('a,b,label\n1,1,"x\ny"\n0,0\n', r"line 4 of .* has 2 fields"),
        (",a,label\n0,1,x\n1,0,y\n", r"column 1 of .* has no name; if it is a row number"),
        ("a,a,label\n0,1,x\n1,0,y\n", r"two columns of .* are called 'a'"),
        ("a,b,label\n1,1,0.5\n0,0,1.5\n", r"labels hold decimals"),
        ("a,b\x1b[2J,label\n1,u,x\n0,v,y\n", r"column 'b\\+x1b\[2J' of .* is not numeric"),
        ("a,b,label\n1,1,x\n0,0,x\n", r"dataset\.path: all labels are of one class \(x\)"),
        ("a,b,label\n1,1,x\n0,,y\n", r"dataset\.path: .* NaN or infinite values, first column 'b' of row 2"),
        (
            "a,b,label\n1,9,x\n0,8,y\n" + "1,2,x\n0,3,y\n" * 4,
            r"dataset\.scale: .*set dataset\.scale=standard or minmax, each",
        ),
        ("a,b,kind\n1,1,x\n0,0,y\n", r"its only column of texts is 'kind': dataset\.label=kind"),
        ("a;b;label\n1;1;x\n", r"dataset\.separator: .* one column, 'a;b;label'; set dataset\.separator=';'"),
    ],
)
def test_rows_of_a_csv_are_never_moved_or_made_up(data_dir, tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    _refused({"name": "csv", "path": str(tmp_path / "x.csv")}, message)


def test_a_byte_order_mark_and_a_packed_csv_are_no_obstacle(data_dir, tmp_path):
    text = _frame().to_csv(index=False).encode()
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text))
    prints = {load_dataset({"name": "csv", "path": str(tmp_path / name)}).fingerprint for name in ("x.csv", "x.csv.gz")}
    assert len(prints) == 1
    assert load_dataset({"name": "csv", "path": str(tmp_path / "x.csv")}).feature_names == ("length", "width")


def test_labels_cannot_steer_a_terminal(data_dir, tmp_path):
    (tmp_path / "x.csv").write_text("a,label\n" + "0.5,\x1b[31mred\n0.1,\x07bell\n" * 6)
    made = load_dataset({"name": "csv", "path": str(tmp_path / "x.csv")})
    assert all(name.isprintable() for name in made.class_names)
    assert made.class_names == ("\\x07bell", "\\x1b[31mred")


def test_a_small_npz_that_unpacks_to_gigabytes_is_refused_unread(data_dir, tmp_path):
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("X.npy", "w", force_zip64=True) as out,
    ):
        np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (6_000, 5_000)})
        for _ in range(30):
            out.write(bytes(8 * 1_000_000))
    assert path.stat().st_size < 1_000_000
    _refused({"name": "npz", "path": str(path), "max_gb": 0.2}, r"dataset\.max_gb: .*0\.2 GB when unpacked")


def test_a_header_that_lies_about_its_array_is_refused_unread(data_dir, tmp_path):
    path = tmp_path / "liar.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("X.npy", "w") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6)})
    _refused({"name": "npz", "path": str(path)}, r"dataset\.max_gb: .* when unpacked")


def test_a_packed_text_that_never_ends_is_stopped(data_dir, tmp_path):
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a,label\n" + b"0.5,x\n" * 500_000))
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"1 1:1\n" * 500_000))
    for name, file in (("csv", "x.csv.gz"), ("svmlight", "x.gz")):
        _refused(
            {"name": name, "path": str(tmp_path / file), "max_gb": 0.002}, r"dataset\.max_gb: .*more than 0\.002 GB"
        )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("Couldn't deserialize thrift: TProtocolException: Invalid data\nmore"),
         "Couldn't deserialize thrift: Invalid data"),
        (EOFError(), "unreadable"),
    ],
)  # fmt: skip
def test_what_a_reader_says_is_told_without_the_names_of_exceptions(error, line):
    assert first_line(error) == line


def test_a_parquet_of_long_runs_is_refused_unread(data_dir, tmp_path):
    pd.DataFrame({"a": np.zeros(400_000), "label": np.zeros(400_000)}).to_parquet(tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 100_000
    _refused({"name": "parquet", "path": str(tmp_path / "x.parquet"), "max_gb": 0.001}, r"dataset\.max_gb: ")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nonsense PAR1")
    _refused({"name": "parquet", "path": str(tmp_path / "x.parquet")}, r"dataset\.path: .*is not a Parquet file")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("@relation x\n@attribute a string\n@attribute class {u,v}\n@data\nred,u\nblue,v\n", "a dense ARFF file"),
        ("@relation x\n@attribute a {r,b}\n@attribute class {u,v}\n@data\nr,u\nb,v\n", "column 'a' .* is not numeric"),
        ("@relation x\n@attribute a numeric\n@attribute class {u,v}\n@data\n{0 1}\n{1 v}\n", "a dense ARFF file"),
        ("nonsense", "a dense ARFF file"),
        ("@relation x\n@attribute a numeric\n@attribute z {u,v}\n@data\n1,u\n", r"dataset\.label: .*no column 'class'"),
    ],
)
def test_an_unusable_arff_is_one_line(data_dir, tmp_path, body, message):
    (tmp_path / "x.arff").write_text(body)
    _refused({"name": "openml", "path": str(tmp_path / "x.arff")}, message)


ARFF = (
    "@relation credit\n@attribute age numeric\n@attribute sum numeric\n@attribute class {good,bad}\n@data\n"
    + "".join(f"0.{k % 7},0.{k % 5},{('good', 'bad')[k % 2]}\n" for k in range(40))
)


@pytest.fixture
def openml(data_dir, monkeypatch):
    """A stand-in for openml.org: one dataset, number 31, called credit-g; notes what it was asked."""
    asked: list[str] = []
    served = {"arff": ARFF.encode()}
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = unquote(self.path)
            asked.append(path)
            if path == "/json/data/31":
                described = {
                    "url": f"{address}/download/credit.arff",
                    "md5_checksum": hashlib.md5(ARFF.encode(), usedforsecurity=False).hexdigest(),
                    "default_target_attribute": "class",
                }
                body = json.dumps({"data_set_description": described}).encode()
            elif path.startswith("/json/data/list/data_name/credit-g/"):
                body = json.dumps({"data": {"dataset": [{"did": 31}]}}).encode()
            elif path == "/download/credit.arff":
                body = served["arff"]
            else:
                self.send_error(412)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"name": "openml", "server": f"{address}/json"}, asked, served
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("number", ["credit-g", 31])
def test_openml_by_name_or_number_is_fetched_once_and_then_offline(openml, number, monkeypatch):
    settings, asked, _ = openml
    made = load_dataset(settings | {"id": number})
    assert made.feature_names == ("age", "sum")
    assert made.class_names == ("bad", "good")
    assert len(made.X_train) + len(made.X_test) == 40
    times = len(asked)
    monkeypatch.setenv("ADVSVM_OFFLINE", "1")
    assert load_dataset(settings | {"id": number}).fingerprint == fingerprint(settings | {"id": number})
    assert len(asked) == times


def test_openml_refuses_other_bytes_than_its_checksum(openml, data_dir):
    settings, _, served = openml
    served["arff"] = ARFF.replace("0.1", "0.2").encode()
    _refused(settings | {"id": 31}, r"dataset\.id: '31' .*has a wrong checksum")
    assert not list(data_dir.rglob("data.arff"))


def test_openml_without_a_network_or_a_dataset_is_one_line(openml, monkeypatch):
    settings, _, _ = openml
    _refused(settings | {"id": "nobody"}, r"dataset\.id: 'nobody'")
    _refused(settings, r"dataset\.id: name a dataset of OpenML")
    _refused(settings | {"id": 31, "server": "http://127.0.0.1:9"}, r"dataset\.id: '31' .*no connection")
    monkeypatch.setenv("ADVSVM_OFFLINE", "1")
    _refused(settings | {"id": 31}, r"dataset\.id: '31' .*ADVSVM_OFFLINE")


def test_openml_sends_no_more_than_the_limit(openml):
    settings, _, served = openml
    served["arff"] = ARFF.encode() * 1000
    _refused(settings | {"id": 31, "max_gb": 1e-5}, r"longer than its 10,000 bytes")


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "scale"), [("a9a", "none"), ("ijcnn1", "standard"), ("covtype", "minmax")])
def test_libsvm_files_run_end_to_end_in_their_own_box(tmp_path, shape, scale):
    X, y = SHAPES[shape][0](300)
    dump_svmlight_file(X, y, str(tmp_path / "x"), zero_based=False)
    arguments = f"dataset=svmlight dataset.path=x dataset.scale={scale} tune=none attack=pgd checks=full".split()
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HYDRA", "ADVSVM"))}
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.run", *arguments, "evaluation.max_attacked=20"],
        cwd=tmp_path, capture_output=True, text=True, env=clean | {"ADVSVM_DATA": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "  result  clean" in done.stdout
    assert "03_ball_and_box failed" not in done.stdout
    assert ("an attacker's values lie in" in done.stdout) == (scale == "standard")
