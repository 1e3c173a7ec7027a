"""Promises of the figures: true axes, nothing cut or covered, and any shape of data."""

from __future__ import annotations

from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from omegaconf import OmegaConf

from models.scaler import Scaler
from pipeline.figures import of_reports, run_figure
from pipeline.figures.charts import (
    Grid,
    Known,
    Line,
    Panel,
    accuracy_at,
    at_least,
    bars,
    bracket,
    certified_at,
    heat_map,
    lines,
)
from pipeline.figures.gallery import FeatureChanges, feature_changes, picture_shape
from pipeline.figures.registry import load
from pipeline.figures.style import Drawing, save

load("auto")
DISTANCES = arrays(float, st.integers(1, 30), elements=st.floats(0, 3) | st.just(np.inf))


@given(DISTANCES, st.floats(0, 3))
def test_accuracy_over_the_radius_is_the_naive_count(distances: np.ndarray, radius: float) -> None:
    assert accuracy_at(distances, np.array([radius]))[0] == pytest.approx(np.mean(distances > radius))
    certified = np.where(np.isfinite(distances), distances, 0.0)
    naive = np.mean([(r > 0) and (r >= radius) for r in certified])
    assert certified_at(certified, np.array([radius]))[0] == pytest.approx(naive)


@given(DISTANCES)
@settings(max_examples=10, deadline=None)
def test_certified_undecided_and_broken_add_up_to_all_points(nearest: np.ndarray) -> None:
    certified = np.where(np.isfinite(nearest), 0.5 * nearest, 0.3)
    figure = bracket([Known("model", certified, nearest, mark=1.0)])
    (axes,) = figure.axes
    assert axes.get_ylim() == (0, 100)
    tops = [area.get_datalim(axes.transData).y1 for area in axes.collections]
    assert tops[-1] == pytest.approx(100)
    labels = [text.get_text() for text in figure.legends[0].texts]
    assert labels == ["certified", "undecided", "broken", "cap L2 1"]


@given(DISTANCES, st.floats(0.01, 2), st.data())
def test_a_certificate_at_one_radius_is_seen_at_that_radius(radii: np.ndarray, epsilon: float, data) -> None:
    radii = np.where(np.isfinite(radii), radii, 0.0)
    rows = np.flatnonzero(data.draw(arrays(bool, len(radii))))
    certified = data.draw(arrays(bool, len(rows)))
    raised = at_least(radii, rows, certified, epsilon)
    naive = [max(r, epsilon) if i in rows[certified] else r for i, r in enumerate(radii)]
    assert raised.tolist() == naive
    share = certified_at(raised, np.array([epsilon]))[0]
    assert share >= certified.sum() / len(radii) - 1e-12


@pytest.mark.parametrize("value", [0.5, 0.999, 1.0])
def test_no_accuracy_axis_goes_beyond_100(value: float) -> None:
    line = Line.of_curves("model", [[(0, 1.0), (1, value)], [(0, value), (1, value)]])
    assert line is not None
    for figure in (lines([Panel("", "x", "accuracy [%]", [line])]), bars({"model": {"PGD": (50.0, 100 * value)}})):
        low, high = figure.axes[0].get_ylim()
        assert 0 <= low < high <= 100


def test_panels_of_one_scale_show_the_lines_of_all(tmp_path) -> None:
    """Lines are not cut at the axes: one beyond them would be drawn across what stands below."""
    flat, deep = (Line.of_groups("m", {0.0: [1.0], 1.0: [low]}) for low in (0.7, 0.0))
    figure = lines([Panel(title, "x", "y", [line]) for title, line in (("a", flat), ("b", deep))], same_scale=True)
    assert [axes.get_ylim()[0] for axes in figure.axes] == [0.0, 0.0]


def test_title_and_legend_are_inside_the_figure_and_cover_no_curve(tmp_path) -> None:
    drawn = [Line.of_groups(f"a model with a long name {i}", {0: [1.0], 5: [0.2 * i]}) for i in range(5)]
    title = "adv_svm_c · pgd from natural · cifar10_automobile_truck · seed 0 · attack.epsilon=16/255 · tune=certified"
    made = []

    def paint():
        made.append(lines([Panel("", "x", "accuracy [%]", drawn)]))
        return made[-1]

    save(Drawing(title, paint), tmp_path, "figure")
    (figure,) = made
    figure.draw_without_rendering()
    page = figure.bbox
    boxes = [figure._suptitle.get_window_extent(), figure.legends[0].get_window_extent()]
    for box in boxes:
        assert box.x0 >= page.x0
        assert box.x1 <= page.x1 + 1
        assert box.y1 <= page.y1 + 1
    axes = figure.axes[0].get_window_extent()
    assert not any(axes.overlaps(box) for box in boxes)
    assert not boxes[0].overlaps(boxes[1])


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((8, 8), (8, 8)),
        ((1, 8, 8), (8, 8)),
        ((8, 8, 1), (8, 8)),
        ((3, 8, 8), (3, 8, 8)),
        ((8, 8, 3), (8, 8, 3)),
        ((64,), None),
        ((2, 8, 8), None),
        ((2, 2, 4, 4), None),
        ((1, 64), None),
    ],
)
def test_every_run_gets_its_gallery_whatever_the_shape(shape, picture, tmp_path, caplog) -> None:
    assert picture_shape(shape) == picture
    n, d = 3, int(np.prod(shape))
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, d)).astype(np.float32)
    moved = np.clip(X + 0.1, 0, 1)
    result = SimpleNamespace(
        examples=moved,
        success=np.array([True, False, True]),
        distortion_l2=np.linalg.norm(moved - X, axis=1),
        clean_scores=np.ones(n),
        scores=-np.ones(n),
    )
    attacked = SimpleNamespace(result=result, rows=np.arange(n))
    around = SimpleNamespace(rows=np.arange(n), certified=np.full(n, 0.1), nearest=np.array([0.5, np.inf, 0.7]))
    verdicts = SimpleNamespace(certified=np.array([False, True, False]), epsilon=0.4, l2_inside=0.4)
    curves = {"test_error": [(1, 0.5), (2, 0.1)]}
    evaluated = SimpleNamespace(curves=curves, bracket=around, radii=np.full(n, 0.1), verdicts=verdicts)
    results = SimpleNamespace(
        data=SimpleNamespace(
            X_test=X,
            y_test=np.array([1, -1, 1]),
            test_ids=np.arange(n),
            image_shape=shape,
            box=(0.0, 1.0),
            feature_names=(),
            scaler=None,
            class_names=("no", "yes"),
            n_classes=2,
        ),
        attacked=attacked,
        evaluated=evaluated,
        tuned=SimpleNamespace(
            table={"C": [1.0, 2.0], "step": [0.5, 0.5], "mean_accuracy": [0.9, 0.8]}, best={"C": 1.0, "step": 0.5}
        ),
    )
    cfg = OmegaConf.create(
        {
            "dataset": {"name": "mine"}, "model": {"name": "m"}, "attack": {"name": "pgd"}, "surrogate": None,
            "seed": 0, "tune": {"name": "paper", "metric": "accuracy", "folds": 5}, "evaluation": {"l2_cap": 0.5},
        }
    )  # fmt: skip
    drawn = {figure.id for figure in run_figure.draw(tmp_path, cfg, results)}
    assert drawn >= {"gallery", "known", "training_curve", "tuning"}, caplog.text


def test_features_are_named_and_the_largest_change_is_on_top_with_its_size_in_the_files_units(tmp_path) -> None:
    before, after = np.zeros((1, 12)), np.linspace(0, 0.11, 12)[None]
    names = [f"column {i}" for i in range(11)] + ["a column with a name that is much too long for a figure"]
    scaler = Scaler(np.full(12, 5.0), np.full(12, 200.0))
    changes = FeatureChanges.of(before, after, names, ["score +1 → -1"], scaler)
    np.savez(tmp_path / "changes.npz", **vars(changes))
    with np.load(tmp_path / "changes.npz", allow_pickle=False) as stored:
        again = FeatureChanges(**{name: stored[name] for name in stored.files})
    axes = feature_changes(again.some(1)).axes[0]
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert shown[-1] == "a column with a name that…"
    assert shown[-2] == "column 10"
    assert len(shown) == 8
    assert [text.get_text() for text in axes.texts][-2:] == ["5 → 25", "5 → 27"]
    unmoved = FeatureChanges.of(before, before, names, ["kept"])
    assert len(feature_changes(unmoved).axes[0].get_yticklabels()) == 1


def test_the_frame_of_the_grid_stands_around_the_chosen_cell() -> None:
    table = {"C": ["1", "2", "1", "2"], "step": ["1", "1", "2", "2"], "mean_accuracy": ["0.9", "0.9", "", "0.9"]}
    for chosen in ((2.0, 1.0), (2.0, 2.0), (1.0, 1.0)):
        grid = Grid.of_table(table, "accuracy", "model", dict(zip(("C", "step"), map(str, chosen))))
        assert grid is not None
        frame = heat_map([grid]).axes[0].lines[0]
        center = [(data.min() + data.max()) / 2 for data in (frame.get_xdata(), frame.get_ydata())]
        assert (grid.across[int(center[0])], grid.up[int(center[1])]) == chosen
    unknown = Grid.of_table(table, "accuracy", "model", {})
    assert unknown is not None
    assert not heat_map([unknown]).axes[0].lines
    assert Grid.of_table({}, "accuracy", "", {}) is None


def test_figures_leave_the_users_matplotlib_alone(tmp_path) -> None:
    before = dict(matplotlib.rcParams)
    save(Drawing("t", lambda: bars({"m": {"a": (1.0, 2.0)}})), tmp_path, "figure", everywhere=True)
    assert dict(matplotlib.rcParams) == before
    assert {path.name for path in tmp_path.iterdir()} == {"figure.png", "figure-dark.png", "figure.svg"}


def test_accuracy_stands_over_the_seconds_of_training() -> None:
    from pipeline.figures.of_sweeps import Job, accuracy_over_seconds

    def job(model: str, seed: int, seconds: float, attacked: float, attack: str = "pgd") -> Job:
        labels = {"model": model, "seed": seed, "attack": attack}
        metrics = {"train_seconds": seconds, "robust_accuracy": attacked}
        return Job("finished", labels, metrics=metrics, row=model, column="PGD L∞ 8/255")

    jobs = [
        job("svc", 0, 1.0, 0.8),
        job("svc", 1, 3.0, 0.6),
        job("natural", 0, 0.1, 0.5),
        job("dnn_mart", 0, 99.0, 0.9),
    ]
    drawing = accuracy_over_seconds("digits", jobs)
    assert drawing is not None
    (axes,) = drawing.paint().axes
    assert axes.get_xscale() == "log"
    drawn = {line.get_label(): (line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines}
    assert drawn["SVC"] == (2.0, pytest.approx(70.0))
    assert drawn["DNN MART"] == (99.0, pytest.approx(90.0))
    # Two models are a pair of numbers, not a picture, and clean accuracy is no accuracy under attack.
    assert accuracy_over_seconds("digits", jobs[:3]) is None
    assert accuracy_over_seconds("digits", [job(m, 0, 1.0, 0.5, "none") for m in ("a", "b", "c")]) is None


def test_the_report_shows_the_features_of_a_table_where_there_are_no_images() -> None:
    from pipeline.figures.of_reports import _feature_gallery

    changes = FeatureChanges.of(np.zeros((6, 2)), np.ones((6, 2)), ["age", "weight"], [f"row {i}" for i in range(6)])
    stored = {"first": None, "second": vars(changes)}
    reader = SimpleNamespace(arrays=lambda run, path, names: stored[run] and {n: stored[run][n] for n in names})
    cells = {"no attack": SimpleNamespace(first="first"), "PGD": SimpleNamespace(first="second")}
    drawing = _feature_gallery("svc", cells, reader)
    assert drawing is not None
    assert "svc under PGD" in drawing.caption
    figure = drawing.paint()
    assert [axes.get_title() for axes in figure.axes] == [f"row {i}" for i in range(4)]
    assert {label.get_text() for label in figure.axes[0].get_yticklabels()} == {"age", "weight"}
    assert _feature_gallery("svc", {"no attack": cells["no attack"]}, reader) is None


def test_radii_that_one_run_did_not_ask_for_come_from_another() -> None:
    """Of many test points each run knows its sample and its attacked rows; the others are NaN."""
    nan, nothing = np.nan, np.zeros(0, int)
    files = {
        "a": {"radii": np.array([0.3, nan, nan]), "bracket_rows": np.array([0]), "bracket_nearest": np.array([0.5])},
        "b": {"radii": np.array([nan, 0.2, nan]), "bracket_rows": np.array([1]), "bracket_nearest": np.array([0.4])},
    }
    points = {"test_rows": nothing, "state": np.zeros(0, "U9"), "l2_inside": np.array(0.1)}
    reader = SimpleNamespace(arrays=lambda run, path, names: files[run] if path.endswith("radii.npz") else points)
    row = SimpleNamespace(label="model", cells=[SimpleNamespace(first=run) for run in files])
    known = of_reports._known(row, 0.5, reader)
    np.testing.assert_array_equal(known.certified, [0.3, 0.2])
    np.testing.assert_array_equal(known.nearest, [0.5, 0.4])
