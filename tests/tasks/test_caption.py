"""Image captioning: rows equal those of the pretraining objective; image files; metrics of built-in images."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))

from writers import MODELS, finetuned, fresh, overfitted, recipe_of, written

from meristem import api, samples
from meristem.config.errors import MeristemError, RecipeError
from meristem.data.images import builtin_image_reference
from meristem.evaluation.task_predictions import evaluate_predictions, predict
from meristem.inputs.batch import Row
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.objective import OBJECTIVES
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import TASKS
from meristem.learning.learner import check_task
from meristem.objectives.caption import CaptionObjective as Objective
from meristem.utils.randomness import SampleRng

MODELS["captioner"] = {
    "family": "captioner", "image_stem": "convolutions", "image_size": 16, "patch_size": 4, "norm_position": "pre",
    "output_init": "zero",
}  # fmt: skip
SAMPLES = [
    Sample(inputs={"picture": builtin_image_reference(name)}, gold=(caption,), location=f"pictures:{number}")
    for number, (name, caption) in enumerate(samples.paired_documents("microworld-pictures?size=4"))
]


def image_file(path: Path, colour: tuple[int, int, int]) -> Path:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (20, 20), colour).save(path)
    return path


def test_rows_are_those_of_the_objective() -> None:
    task: Any = fresh(recipe_of("caption", "captioner", SAMPLES), SAMPLES).objectives["task"]
    objective = Objective(OBJECTIVES["caption"].Settings(), task.tokenizer)
    for number, piece in enumerate(task.encode_samples(SAMPLES)):
        row = task.prepare(Row(inputs={}, metadata={"piece": piece}), SampleRng(0, 0, number))
        caption = np.append(task.tokenizer.encode(SAMPLES[number].gold[0]).ids, task.tokenizer.end)
        image = samples.draw_image(f"microworld:0:{number}", 16)
        before = objective.prepare(Row(inputs={"tokens": caption, "image": image}), SampleRng(0, 0, number))
        for name, value in before.inputs.items():
            assert np.array_equal(row.inputs[name], value)
        assert all(
            np.array_equal(row.targets["caption"][key], value) for key, value in before.targets["caption"].items()
        )


def test_it_overfits_a_few_images() -> None:
    learner = overfitted("caption", "captioner", SAMPLES)
    task: Any = learner.objectives["task"]
    assert written(learner, SAMPLES) == [sample.gold[0] for sample in SAMPLES]
    answers = predict(learner, SAMPLES).predictions
    assert task.format_output(answers[0], SAMPLES[0]) == {"generated_text": SAMPLES[0].gold[0]}
    evaluation = evaluate_predictions(task, answers, SAMPLES)
    assert evaluation.metrics == {"bleu": pytest.approx(100.0), "chrf": pytest.approx(100.0), "named": 1.0}
    worse = evaluate_predictions(task, answers[::-1], SAMPLES).metrics
    assert worse["named"] < 1.0 and worse["bleu"] < 100.0


def test_image_files(tmp_path: Path) -> None:
    red, blue = image_file(tmp_path / "red.png", (250, 0, 0)), image_file(tmp_path / "blue.png", (0, 0, 250))
    (tmp_path / "captions.tsv").write_text("file\tcaption\n" + "red.png\ta red one\nblue.png\ta blue one\n" * 4)
    settings = {"train.steps": 2, "data.held_out": 0.0, "task.max_tokens": 6}
    finetuned("caption", "captioner", tmp_path / "captions.tsv", tmp_path / "run", settings)
    loaded = api.load(tmp_path / "run")
    task: Any = loaded.loaded_run.learner.objectives["task"]
    assert loaded.recipe.task.image_size == 16
    assert list(loaded.predict(str(red))) == ["generated_text"]
    assert list(loaded.predict({"picture": str(blue)})) == list(loaded.predict({"image": str(blue)}))
    known = [Sample(inputs={"picture": str(red)}, gold=("a red one",), location="captions.tsv:2")]
    assert "named" not in task.metrics.compute(predict(loaded.loaded_run.learner, known).predictions, known)
    assert task.example_commands("run", known[0]) == [f"meristem predict run --image {red}"]
    assert task.example_commands("run", SAMPLES[0]) == []


def test_a_broken_image_is_reported_with_its_location(tmp_path: Path) -> None:
    task: Any = fresh(recipe_of("caption", "captioner", SAMPLES), SAMPLES).objectives["task"]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG no more than that")
    for path, why in ((broken, "not an image"), (tmp_path / "none.png", "image missing")):
        with pytest.raises(MeristemError, match=rf"captions.tsv:7: .*{path.name}: {why}"):
            task.encode_samples([Sample(inputs={"picture": str(path)}, gold=("x",), location="captions.tsv:7")])
        with pytest.raises(MeristemError, match=rf"^[^:]*{path.name}: {why}"):
            task.encode_samples([task.parse_input(path)])


def test_an_image_with_several_captions_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task: Any = fresh(recipe_of("caption", "captioner", SAMPLES), SAMPLES).objectives["task"]
    path, opened = image_file(tmp_path / "red.png", (250, 0, 0)), []
    load_image = type(task.parts.encoder)._load_image
    encoder = type(task.parts.encoder)
    monkeypatch.setattr(encoder, "_load_image", lambda self, image: opened.append(image) or load_image(self, image))
    inputs = {"picture": str(path)}
    task.encode_samples(
        [Sample(inputs=inputs, gold=(caption,), location=f"x:{caption}") for caption in ("a", "b", "c")]
    )
    assert len(opened) == 1


def test_models_without_image_input_are_rejected() -> None:
    task: Any = fresh(recipe_of("caption", "captioner", SAMPLES), SAMPLES).objectives["task"]
    with pytest.raises(RecipeError, match=r"Families that support it: captioner"):
        check_task(TASKS["caption"], MODEL_FAMILIES["transformer"], "transformer")
    with pytest.raises(MeristemError, match=r"caption takes an image: give its file \(--image F"):
        task.parse_input({"text": "a red one"})
