"""Reward runs of captioning models, whose prompts are images, and of models with several heads."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from place import Place
from rich.console import Console

from meristem import api
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.recipe_resolution import resolve_policy_recipe
from meristem.reinforce.reinforcement import complete_policy_recipe
from meristem.samples import draw_picture
from meristem.samples.microworld import describe_scene, generate_scene
from meristem.training.pretraining import pretrain

RECIPE = """
from:    captioner
data:    {train: "builtin:microworld-pictures?size=40&seed=4", held_out: 0.2}
rewards: [{name: includes, required: [red, circle]}, {name: function, call: "seeing:near", weight: 0.5}]
judge:   [{name: function, title: named, call: "meristem.samples.microworld.caption_accuracy:named_share"}]
policy:  {num_generations: 3, max_new_tokens: 8, eval_prompts: 6}
train:   {steps: 4, batch_samples: 4, learning_rate: 3e-3, schedule: constant, warmup: 0.0, log_every: 1,
          evaluate_every: 2,
          threads: 1}
"""
SEEING = """
asked = []

def near(prompts, completions, references, **columns):
    asked.extend(zip(prompts, references, columns.get("query", prompts)))
    return [float(len(text)) / 20 for text in completions]
"""
TINY = {"model.layers": 1, "model.hidden_size": 32, "model.heads": 2, "train.batch_tokens": 128, "train.steps": 4,
        "train.threads": 1, "train.evaluate_tokens": 512, "corpus.processes": 1}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A captioner that was trained a little, once."""
    out = tmp_path_factory.mktemp("captioner") / "captioner"
    source = "builtin:microworld-pictures?size=60"
    return api.pretrain("captioner-mini", TINY, source=source, out=out, console=Console(quiet=True)).run


@pytest.fixture
def captioner(place: Place, trained: Path) -> Place:
    """A captioner, a recipe, and a reward that says what it was asked."""
    sys.modules.pop("seeing", None)
    shutil.copytree(trained, place.root / "captioner")
    for name, text in (("r.yaml", RECIPE), ("seeing.py", SEEING)):
        (place.root / name).write_text(text, encoding="utf-8")
    return place


def reinforced(place: Place, *overrides: str, out: str = "better") -> Any:
    console = Console(file=place.said, width=200)
    return api.reinforce("r.yaml", overrides, out=place.root / out, console=console)


def weights(place: Place, out: str) -> dict[str, torch.Tensor]:
    checkpoint = load_checkpoint(place.root / out / "checkpoints")
    assert checkpoint is not None
    return checkpoint.snapshot.model


def files(root: Path, number: int) -> list[dict[str, str]]:
    """Pictures as files, with two captions and a query each."""
    from PIL import Image

    (root / "shots").mkdir()
    for n in range(number):
        Image.fromarray(draw_picture(f"microworld:9:{n}", 40)).save(root / "shots" / f"{n}.png")
    told = [(n, describe_scene(generate_scene(9, n), "en")) for n in range(number)]
    return [{"path": f"shots/{n}.png", "caption": text, "query": f"shape {n}"} for n, text in told]


def test_a_captioner_learns_from_rewards_and_can_be_used(captioner: Place) -> None:
    ended = reinforced(captioner)
    assert {"reward", "reward.includes", "kl", "judge.named"} <= ended.metrics.keys()
    output = captioner.said.getvalue()
    assert "  microworld:4:" in output and "parameters, policy, on 32 train" in output
    report = json.loads((captioner.root / "better" / "report.json").read_bytes())
    page = (captioner.root / "better" / "report.html").read_text(encoding="utf-8")
    assert report["prompts"] == 6 and page.count('<img class="picture" alt="" src="data:image/png;base64,') == 6
    assert len({pair["prompt"] for pair in report["pairs"]}) == len(report["pairs"]) == 6
    before, after = load_checkpoint(captioner.root / "captioner" / "checkpoints"), weights(captioner, "better")
    assert before is not None and not torch.equal(
        before.snapshot.model["backbone.look.positions.rows.weight"], after["backbone.look.positions.rows.weight"]
    )
    loaded = api.load(captioner.root / "better")
    ((written,),) = loaded.generate(draw_picture("microworld:0:1", 32), max_tokens=6)
    assert written.tokens and loaded.lm_kind == "source"
    evaluation = loaded.evaluate(limit=8)
    assert (
        evaluation["metrics"]["loss"] > 0 and "captioner" in evaluation["data"] and evaluation["run"].endswith("better")
    )
    assert ended.example_commands == ["meristem generate " + str(captioner.root / "better") + " --image picture.png"]


def test_a_run_that_was_stopped_ends_where_the_unbroken_one_does(captioner: Place) -> None:
    told = ("policy.baseline=learned", "policy.updates_per_rollout=2", "policy.supervised_weight=0.3")
    reinforced(captioner, *told, out="whole")
    reinforced(captioner, *told, "train.steps=2", out="broken")
    reinforced(captioner, *told, out="broken")
    whole, broken = weights(captioner, "whole"), weights(captioner, "broken")
    assert whole.keys() == broken.keys() and all(torch.equal(whole[name], broken[name]) for name in whole)


@pytest.mark.parametrize("kind", ["jsonl", "folder"])
def test_image_files_with_captions_and_columns(captioner: Place, kind: str) -> None:
    rows = files(captioner.root, 10)
    rows.append({**rows[0], "caption": "another caption of it"})
    if kind == "jsonl":
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (captioner.root / "pictures.jsonl").write_text(text, encoding="utf-8")
        told = ("data.train=pictures.jsonl", "data.picture=path")
    else:
        text = "".join(f"{Path(row['path']).name}\t{row['caption']}\n" for row in rows)
        (captioner.root / "shots" / "captions.tsv").write_text(text, encoding="utf-8")
        told = ("data.train=shots",)
    named = "judge=[{name: length, target: [2, 8]}]"
    ended = reinforced(captioner, *told, named, "train.steps=2", "data.held_out=0.2")
    asked = sys.modules["seeing"].asked
    first = next(one for one in asked if one[0].endswith("shots/0.png"))
    assert first[1] == [rows[0]["caption"], "another caption of it"]
    assert first[2] == ("shape 0" if kind == "jsonl" else first[0])
    assert ended.example_commands[0].endswith(".png") and "--image" in ended.example_commands[0]


def test_the_query_of_clicks_is_a_column_of_an_image(captioner: Place) -> None:
    rows = files(captioner.root, 8)
    table = "query,text,shown,clicked\n" + "".join(
        f"shape {n},{word} thing {n},100,{5 + 10 * index}\n"
        for n in range(8)
        for index, word in enumerate(("red", "blue"))
    )
    (captioner.root / "clicks.csv").write_text(table, encoding="utf-8")
    clicks = "rewards=[{name: clicks, table: clicks.csv}]"
    for name, some in (("with", rows), ("without", [{k: v for k, v in row.items() if k != "query"} for row in rows])):
        text = "".join(json.dumps(row) + "\n" for row in some)
        (captioner.root / f"{name}.jsonl").write_text(text, encoding="utf-8")
    told = (clicks, "judge=null", "data.picture=path", "train.steps=1")
    ended = reinforced(captioner, *told, "data.train=with.jsonl")
    assert "reward.clicks" in ended.metrics
    with pytest.raises(MeristemError, match=r"without.jsonl:\d+: clicks: an image is not a query; give the query"):
        reinforced(captioner, *told, "data.train=without.jsonl", out="other")


def test_a_caption_task_still_predicts_after_its_rewards(captioner: Place) -> None:
    few = "builtin:microworld-pictures?size={}&seed={}"
    data = {"data.train": few.format(24, 1), "data.validation": few.format(8, 2), "data.test": few.format(8, 3)}
    tiny = {**{key: value for key, value in TINY.items() if key.startswith("model")}, "train.threads": 1,
            "train.steps": 2, "train.evaluate_every": 2, "task.max_tokens": 8}  # fmt: skip
    api.finetune("caption", {**data, **tiny}, out=captioner.root / "task", console=Console(quiet=True))
    ended = reinforced(captioner, "from=task", "judge=null", "train.steps=1")
    assert ended.example_commands[0].startswith("meristem predict")
    loaded = api.load(captioner.root / "better")
    assert {"bleu", "named"} <= loaded.evaluate(limit=4)["metrics"].keys()
    from PIL import Image

    Image.fromarray(draw_picture("microworld:9:1", 40)).save("p.png")
    assert isinstance(loaded.predict({"picture": "p.png"})["generated_text"], str)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.train=words.txt",), "picture"),
        (
            ("policy.generation_mode=causal",),
            "policy.generation_mode=causal: captioner was not trained for that; it can do image",
        ),
        (("rewards=[{name: meaning, vectors: v.txt, compare_with: prompt}]",), "no reference caption|no file of word"),
        (("from=writer",), "the prompts are images, and writer generates from text only"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_starts(
    captioner: Place, overrides: tuple[str, ...], message: str
) -> None:
    (captioner.root / "words.txt").write_text("no picture\n", encoding="utf-8")
    captioner.train("train.steps=1", run="writer")
    with pytest.raises(MeristemError, match=message):
        reinforced(captioner, *overrides)
    assert not (captioner.root / "better" / "checkpoints").exists()


def test_heads_that_rewards_do_not_train_stay_with_the_model(place: Place) -> None:
    mix = "mix=[{objective: clm, weight: 1}, {objective: mlm, weight: 1}]"
    plain = place.recipe("gpt2").to_dict()
    plain.pop("objective")
    plain |= {"model": {"family": "modern", "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 32},
              "tokenizer": {"kind": "wordpiece", "vocab_size": 300}}  # fmt: skip
    recipe = resolve_recipe("tiny", plain, [mix, "train.steps=2"])
    pretrain(recipe, place.root / "both", fresh=False, console=Console(quiet=True))
    (place.root / "prompts.tsv").write_text("prompt\ttopic\n" + "Anna went\tx\nBen saw\ty\n" * 4, encoding="utf-8")
    (place.root / "r.yaml").write_text(RECIPE, encoding="utf-8")
    told = ("data.train=prompts.tsv", "rewards=[{name: length, target: 4}]", "judge=null", "train.steps=2")
    reinforced(place, *told, "from=both")
    loaded = api.load(place.root / "better")
    assert set(loaded.model.heads) == {"clm", "mlm", "leash"} and loaded.fill("Anna [MASK] home.")[0].candidates
    reinforced(place, *told, "from=better", out="again")
    assert set(api.load(place.root / "again").model.heads) == {"clm", "mlm", "leash"}


def test_a_multi_task_model_writes_from_what_the_prompts_are(place: Place) -> None:
    mix = """mix=[{objective: clm, weight: 1}, {objective: denoising, weight: 1},
              {objective: caption, weight: 1, corpus: "builtin:microworld-pictures?size=40"}]"""
    plain = {**place.recipe("gpt2").to_dict(), "dataset": {"image_size": 16}}
    plain.pop("objective")
    plain["model"] = {
        "family": "multitask",
        "layers": 1,
        "hidden_size": 32,
        "heads": 2,
        "max_length": 32,
        "image_size": 16,
    }
    recipe = resolve_recipe("tiny", plain, [mix, "train.steps=3", "train.single_task_baselines=false"])
    pretrain(recipe, place.root / "all", fresh=False, console=Console(quiet=True))
    (place.root / "prompts.txt").write_text("Anna went\nBen saw\nDora has\nEmil was\n", encoding="utf-8")
    (place.root / "r.yaml").write_text(RECIPE, encoding="utf-8")
    start = load_run(place.root / "all")
    for told, way in (
        ((), "image"),
        (("data.train=prompts.txt",), "causal"),
        (("data.train=prompts.txt", "policy.generation_mode=encoder_decoder"), "encoder_decoder"),
    ):
        policy_recipe = resolve_policy_recipe("r.yaml", ("from=all", *told), place.root / "start", Console(quiet=True))
        found = complete_policy_recipe(policy_recipe, start)
        used = "clm" if way == "causal" else "seq2seq"
        assert found.policy.generation_mode == way and {*found.heads, used} == {"clm", "seq2seq"}
        assert found.policy.image_size == (16 if way == "image" else None)
    reinforced(place, "from=all", "rewards=[{name: length, target: 4}]", "judge=null", "train.steps=1")
    loaded = api.load(place.root / "better")
    assert set(loaded.model.heads) == {"clm", "seq2seq", "leash"} and loaded.recipe.policy.generation_mode == "image"
    assert loaded.generate(draw_picture("microworld:0:1", 16), max_tokens=4)[0][0].tokens
    assert loaded.generate("Anna went", max_tokens=4)[0][0].tokens
