"""Whatever a file holds, it is read or refused in one line: random bytes, cut and flipped files, random settings."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file
from sklearn.svm import SVC

from pipeline.data import load_dataset, read_settings, summary
from pipeline.errors import UserError

_X, _Y = np.random.default_rng(0).random((24, 3)).round(3), np.arange(24) % 2


def _good(name: str) -> bytes:
    out = io.BytesIO()
    frame = pd.DataFrame(_X, columns=["a", "b", "c"]).assign(label=_Y)
    if name == "npz":
        np.savez_compressed(out, X=_X, y=_Y)
    elif name == "csv":
        out.write(frame.to_csv(index=False).encode())
    elif name == "parquet":
        frame.to_parquet(out)
    elif name == "svmlight":
        dump_svmlight_file(_X, _Y, out, zero_based=False)
    else:
        out.write(b"@relation x\n" + b"".join(b"@attribute %s numeric\n" % c for c in (b"a", b"b", b"c")))
        out.write(b"@attribute class {0,1}\n@data\n" + frame.to_csv(index=False, header=False).encode())
    return out.getvalue()


GOOD = {name: _good(name) for name in ("npz", "csv", "parquet", "svmlight", "openml")}
_PIECES = (b"", b"\0", b"\xff\xfe", b",", b"\n", b"nan", b"1e999", b'"', b"\x1b[2J", b"-", b":", b"{", b"@")
_KEYS = ["classes", "scale", "box", "mutable", "monotone", "image_shape", "max_gb", "test_fraction", "split_seed"]
_KEYS += ["max_train", "max_test", "label", "separator", "test_path"]
_OFTEN = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _read_or_refused(name: str, path: Path, data_dir: Path, **changes) -> None:
    refusal = "dataset.path: none"
    try:
        made = load_dataset(read_settings(name, {"path": str(path), "max_gb": 0.05, **changes}), data_dir)
        assert np.isfinite(made.X_train).all()
        assert np.isfinite(made.X_test).all()
    except UserError as error:
        refusal = str(error)
    assert refusal.isprintable()  # one line, too
    assert refusal.startswith("dataset.")
    assert "Error" not in refusal.split("(")[0]


@pytest.mark.parametrize("name", GOOD)
def test_the_good_files_are_read(name, tmp_path):
    (tmp_path / "x").write_bytes(GOOD[name])
    assert load_dataset({"name": name, "path": str(tmp_path / "x")}, tmp_path).X_train.shape == (18, 3)


@pytest.mark.parametrize("name", GOOD)
@_OFTEN
@given(data=st.binary(max_size=300))
def test_random_bytes_are_refused_in_one_line(name, tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    _read_or_refused(name, tmp_path / "x", tmp_path)


@pytest.mark.parametrize("name", GOOD)
@_OFTEN
@given(data=st.data())
def test_damaged_files_are_read_or_refused_in_one_line(name, tmp_path, data):
    whole = bytearray(GOOD[name])
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(whole) - 1))
        piece = data.draw(
            st.sampled_from([b"", b"\0", b"\xff\xfe", b",", b"\n", b"nan", b"1e999", b'"', b"\x1b[2J", b"-", b":"])
        )
        whole[place : place + data.draw(st.integers(0, 3))] = piece
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole))) :]
    suffix = data.draw(st.sampled_from(["", "", ".gz"]))
    content = gzip.compress(bytes(whole)) if suffix and data.draw(st.booleans()) else bytes(whole)
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    _read_or_refused(name, path, tmp_path)


_ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**6), st.floats(), st.text(max_size=6),
    st.lists(st.integers(-2, 9), max_size=4),
    st.dictionaries(st.text(max_size=3), st.lists(st.floats(), max_size=3), max_size=2),
    st.sampled_from(["all", "minmax", "standard", "none", "data", "label", ["0", "1"], ["a"], ["-b"], [0, 1]]),
)  # fmt: skip


@_OFTEN
@given(changes=st.dictionaries(st.sampled_from(_KEYS), _ODD, min_size=1, max_size=3))
def test_random_settings_are_heeded_or_refused_in_one_line(tmp_path, changes):
    (tmp_path / "x").write_bytes(GOOD["csv"])
    _read_or_refused("csv", tmp_path / "x", tmp_path, **{"label": "label", **changes})


@pytest.mark.parametrize("name", GOOD)
def test_a_folder_a_device_and_a_pipe_are_no_files(name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(UserError, match=r"dataset\.path"):
            load_dataset(read_settings(name, {"path": str(path)}), tmp_path)


def test_an_array_of_objects_is_refused_unread(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive, archive.open("X.npy", "w") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "|O", "fortran_order": False, "shape": (3,)})
        out.write(b"cos\nsystem\n(S'true'\ntR.")
    _read_or_refused("npz", tmp_path / "x.npz", tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("dataset.name=a/b", "dataset.name must be a name without /"),
        ("dataset.split_seed=-1", "dataset.split_seed: -1"),
        ("dataset.max_train=1", "dataset.max_train: 1"),
        ("dataset.loader=nowhere.load", "dataset.loader: cannot import nowhere.load"),
    ],
)
@pytest.mark.parametrize("sweep", [(), ("-m",)])
def test_a_wrong_dataset_is_refused_before_a_run_or_a_sweep_exists(command, tmp_path, change, message, sweep):
    done = command(*sweep, change, ADVSVM_DATA=str(tmp_path / "data"))
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "mlruns").exists()


# What is wrong → the file's text, the settings that go with it, and a part of the line that it is answered with.
_TABLE = "a,b,label\n" + "".join(f"0.{k},0.{9 - k},{'yn'[k % 2]}\n" for k in range(10)) * 2
_FITTED = ["dataset=csv", "model=fitted"]
BAD_INPUT = {
    "an unreadable line": ("1 1:0.5\n-1 1:x\n", ["dataset=svmlight"], "line 2: "),
    "one class": (_TABLE.replace(",n\n", ",y\n"), ["dataset=csv"], "all labels are of one class (y)"),
    "a column of texts": (
        _TABLE.replace(",0.7", ",red"),
        ["dataset=csv"],
        "'b' of file is not numeric, such as 'red' in row 3",
    ),
    "labels that are decimals": (
        _TABLE.replace("y", "1").replace("n", "0"),
        ["dataset=csv", "dataset.label=a"],
        "labels hold decimals (0.1, 0.2, 0.3)",
    ),
    "features of another model": (_TABLE, [*_FITTED, "model.path=m.skops"], "takes 3 features, rows of csv have 2"),
    "an untrusted pickle": (_TABLE, [*_FITTED, "model.path=m.pkl"], "m.pkl is a pickle"),
    "too few rows": (_TABLE, ["dataset=csv", "dataset.max_train=6"], "tune.folds=5: class"),
}


@pytest.mark.parametrize(("text", "arguments", "message"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_line_and_leaves_no_store(command, tmp_path, text, arguments, message):
    (tmp_path / "file").write_text(text)
    skops.io.dump(SVC().fit(_X, _Y), tmp_path / "m.skops")
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(SVC().fit(_X, _Y)))
    done = command(*arguments, "dataset.path=file", ADVSVM_DATA=str(tmp_path / "data"))
    assert done.returncode == 1
    assert message in done.stderr.replace(f"{tmp_path}/", "")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "mlruns").exists()


def test_data_that_were_read_before_are_looked_at_before_a_store_is_made(command, tmp_path):
    (tmp_path / "file").write_text(_TABLE)
    skops.io.dump(SVC().fit(_X, _Y), tmp_path / "m.skops")
    data = tmp_path / "data"
    assert summary(read_settings("csv", {"path": str(tmp_path / "file")}), data) is None
    load_dataset(read_settings("csv", {"path": str(tmp_path / "file")}), data)
    done = command(*_FITTED, f"dataset.path={tmp_path / 'file'}", "model.path=m.skops", ADVSVM_DATA=str(data))
    assert "takes 3 features" in done.stderr
    assert not (tmp_path / "mlruns").exists()
