"""Captions: the pretraining objective's rows over pictures in files, and built-in ones judged by what is in them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))

from writers import MODELS, finetuned, fresh, overfitted, recipe_of, written

from meristem import api, samples
from meristem.batch import Row
from meristem.corpus.pictures import drawn
from meristem.errors import MeristemError, RecipeError
from meristem.evaluation.answering import answer, judge
from meristem.learning.learner import carries
from meristem.objectives.caption import Caption as Objective
from meristem.randomness import Draw
from meristem.settings import find
from meristem.task import Sample

MODELS["captioner"] = {
    "family": "captioner", "look": "convolutions", "picture": 16, "patch": 4, "norm_place": "pre",
    "output_initial": "zero",
}  # fmt: skip
SAMPLES = [
    Sample(given={"picture": drawn(name)}, gold=(told,), place=f"pictures:{number}")
    for number, (name, told) in enumerate(samples.pairs("microworld-pictures?size=4"))
]


def picture_file(path: Path, colour: tuple[int, int, int]) -> Path:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (20, 20), colour).save(path)
    return path


def test_rows_are_those_of_the_objective() -> None:
    task: Any = fresh(recipe_of("caption", "captioner", SAMPLES), SAMPLES).objectives["task"]
    objective = Objective(find("objectives", "caption").Settings(), task.tokenizer)
    for number, piece in enumerate(task.pieces(SAMPLES)):
        row = task.prepare(Row(inputs={}, notes={"piece": piece}), Draw(0, 0, number))
        caption = np.append(task.tokenizer.encode(SAMPLES[number].gold[0]).ids, task.tokenizer.end)
        image = samples.picture(f"microworld:0:{number}", 16)
        before = objective.prepare(Row(inputs={"tokens": caption, "image": image}), Draw(0, 0, number))
        for name, value in before.inputs.items():
            assert np.array_equal(row.inputs[name], value)
        assert all(np.array_equal(row.goals["caption"][key], value) for key, value in before.goals["caption"].items())


def test_it_learns_a_few_pictures_by_heart() -> None:
    learner = overfitted("caption", "captioner", SAMPLES)
    task: Any = learner.objectives["task"]
    assert written(learner, SAMPLES) == [one.gold[0] for one in SAMPLES]
    answers = answer(learner, SAMPLES).answers
    assert task.shown(answers[0], SAMPLES[0]) == {"generated_text": SAMPLES[0].gold[0]}
    found = judge(task, answers, SAMPLES)
    assert found.metrics == {"bleu": pytest.approx(100.0), "chrf": pytest.approx(100.0), "named": 1.0}
    worse = judge(task, answers[::-1], SAMPLES).metrics
    assert worse["named"] < 1.0 and worse["bleu"] < 100.0


def test_pictures_in_files(tmp_path: Path) -> None:
    red, blue = picture_file(tmp_path / "red.png", (250, 0, 0)), picture_file(tmp_path / "blue.png", (0, 0, 250))
    (tmp_path / "captions.tsv").write_text("file\tcaption\n" + "red.png\ta red one\nblue.png\ta blue one\n" * 4)
    settings = {"train.steps": 2, "data.held_out": 0.0, "task.max_tokens": 6}
    finetuned("caption", "captioner", tmp_path / "captions.tsv", tmp_path / "run", settings)
    loaded = api.load(tmp_path / "run")
    task: Any = loaded.revived.learner.objectives["task"]
    assert loaded.recipe.task.picture == 16
    assert list(loaded.predict(str(red))) == ["generated_text"]
    assert list(loaded.predict({"picture": str(blue)})) == list(loaded.predict({"image": str(blue)}))
    known = [Sample(given={"picture": str(red)}, gold=("a red one",), place="captions.tsv:2")]
    assert "named" not in task.score(answer(loaded.revived.learner, known).answers, known)
    assert task.commands("run", known[0]) == [f"meristem predict run --image {red}"]
    assert task.commands("run", SAMPLES[0]) == []


def test_a_broken_picture_is_named_with_its_place(tmp_path: Path) -> None:
    task: Any = fresh(recipe_of("caption", "captioner", SAMPLES), SAMPLES).objectives["task"]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG no more than that")
    for path, why in ((broken, "not a picture"), (tmp_path / "none.png", "picture missing")):
        with pytest.raises(MeristemError, match=rf"captions.tsv:7: .*{path.name}: {why}"):
            task.pieces([Sample(given={"picture": str(path)}, gold=("x",), place="captions.tsv:7")])
        with pytest.raises(MeristemError, match=rf"^[^:]*{path.name}: {why}"):
            task.pieces([task.asked(path)])


def test_a_picture_with_several_captions_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task: Any = fresh(recipe_of("caption", "captioner", SAMPLES), SAMPLES).objectives["task"]
    path, opened = picture_file(tmp_path / "red.png", (250, 0, 0)), []
    whole = type(task)._picture
    monkeypatch.setattr(type(task), "_picture", lambda self, one: opened.append(one) or whole(self, one))
    given = {"picture": str(path)}
    task.pieces([Sample(given=given, gold=(told,), place=f"x:{told}") for told in ("a", "b", "c")])
    assert len(opened) == 1


def test_what_cannot_look_is_refused() -> None:
    task: Any = fresh(recipe_of("caption", "captioner", SAMPLES), SAMPLES).objectives["task"]
    with pytest.raises(RecipeError, match=r"Families that can carry it: captioner"):
        carries(find("tasks", "caption"), find("models", "transformer"), "transformer")
    with pytest.raises(MeristemError, match=r"caption tells of a picture: give its file \(--image F"):
        task.asked({"text": "a red one"})
