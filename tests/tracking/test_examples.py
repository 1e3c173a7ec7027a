"""Adversarial examples on disk: perturbations where that is exact, and the same bits again in every case."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attacks import FGSM, PGD, CarliniWagner, Suite
from models import AdvSVM
from pipeline.cache import Entry
from pipeline.cache import entry as entries
from pipeline.stages.attack import Attacked, perturbations, perturbed
from pipeline.tracking import examples as module
from pipeline.tracking.examples import read_examples, write_examples

GENERATOR = np.random.default_rng(0)
PIXELS = (GENERATOR.integers(0, 256, (60, 64), dtype=np.uint8)).astype(np.float32) / np.float32(255)
LABELS = np.where(PIXELS[:, 0] > 0.5, 1, -1)


@pytest.fixture(scope="module")
def model() -> AdvSVM:
    return AdvSVM(expansion="support_vectors", C=8.0, batch_size=10).fit(PIXELS[:40], LABELS[:40])


def attacked(model: AdvSVM, attack: object) -> Attacked:
    rows = np.arange(40, 60)
    X, y = np.ascontiguousarray(PIXELS[rows]), LABELS[rows]
    return Attacked(attack(model, X, y), rows, model.predict(X) != y, 0.5)


@pytest.mark.parametrize(
    "attack",
    [FGSM(epsilon=0.1), PGD(epsilon=0.1), CarliniWagner(steps=5, binary_search_steps=2), Suite([FGSM(epsilon=0.1)])],
    ids=lambda attack: type(attack).__name__,
)
def test_a_stored_attack_comes_back_bit_for_bit(model: AdvSVM, attack: object, tmp_path: Path) -> None:
    made = attacked(model, attack)
    entries.write(made.to_entry(PIXELS), tmp_path / "entry")
    again = Attacked.from_entry(entries.read(tmp_path / "entry"), PIXELS)
    for name in ("examples", "success", "scores", "distortion_l2", "queries"):
        before, after = getattr(made.result, name), getattr(again.result, name)
        assert before.dtype == after.dtype
        assert before.tobytes() == after.tobytes()
    assert type(again.result) is type(made.result)
    np.testing.assert_array_equal(again.rows, made.rows)


def test_what_is_stored_of_a_step_by_signs_is_small(model: AdvSVM, tmp_path: Path) -> None:
    made = attacked(model, FGSM(epsilon=0.1))
    kept = made.to_entry(PIXELS)
    assert kept.values["perturbations"] == ["/result/examples"]
    delta, inside = kept.arrays["/result/examples"], (made.result.examples > 0) & (made.result.examples < 1)
    # What is not cut off at the box is one step up or down, but for a few roundings.
    assert len(np.unique(delta[inside])) <= 12 < len(np.unique(made.result.examples)) / 10
    entries.write(kept, tmp_path / "kept")
    entries.write(Entry(kept.values, kept.arrays | {"/result/examples": made.result.examples}), tmp_path / "whole")
    sizes = [(tmp_path / name / "arrays.safetensors").stat().st_size for name in ("kept", "whole")]
    assert sizes[0] < 0.75 * sizes[1]


def test_a_difference_that_does_not_add_up_again_is_not_used() -> None:
    clean, examples = np.array([[1e8, 0.5]]), np.array([[1e-12, 0.5]])
    assert perturbations(examples, clean) is None
    assert perturbations(examples.astype(np.float32), clean) is None
    assert perturbations(np.float32([[1e-12]]), np.float32([[1.0]])) is None
    delta = perturbations(clean + 0.25, clean)
    assert delta is not None
    np.testing.assert_array_equal(perturbed(clean, delta), clean + 0.25)


@pytest.mark.parametrize("limit", [0, 10**9])
@pytest.mark.parametrize("clean", [PIXELS, PIXELS * np.float32(0.7)], ids=["pixels", "no pixels"])
def test_the_artifact_gives_the_examples_whole_or_in_parts(clean, limit, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_WHOLE", limit)
    moved = np.clip(clean + np.where(clean > 0.5, np.float32(-0.1), np.float32(0.1)), 0, 1)
    write_examples(tmp_path / "examples.npz", moved, clean, success=LABELS > 0)
    with np.load(tmp_path / "examples.npz", allow_pickle=False) as stored:
        in_parts = limit == 0 and clean is PIXELS
        assert set(stored) == {"perturbations" if in_parts else "examples", "success"}
    assert read_examples(tmp_path / "examples.npz").tobytes() == moved.tobytes()
    assert (tmp_path / "clean.npz").exists() == in_parts


def test_examples_of_other_attacks_on_the_same_rows_have_the_same_clean_pixels(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_WHOLE", 0)
    for name, step in (("one", 0.1), ("two", 0.2)):
        (tmp_path / name).mkdir()
        write_examples(tmp_path / name / "examples.npz", np.clip(PIXELS + np.float32(step), 0, 1), PIXELS)
    first, second = ((tmp_path / name / "clean.npz").read_bytes() for name in ("one", "two"))
    assert first == second


def test_a_file_of_before_holds_its_pixels_itself(tmp_path: Path) -> None:
    codes, delta = np.rint(PIXELS * 255).astype(np.uint8), np.full(PIXELS.shape, 0.25)
    np.savez_compressed(tmp_path / "examples.npz", clean=codes, perturbations=delta)
    np.testing.assert_array_equal(read_examples(tmp_path / "examples.npz"), perturbed(PIXELS, delta))
