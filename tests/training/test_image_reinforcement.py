"""Reward runs of captioning models, whose prompts are images, and of models with several heads."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from run_factory import RunFactory

from meristem import api
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.reinforce.reinforcement import complete_policy_recipe
from meristem.reinforce_resolution import resolve_policy_recipe
from meristem.samples import draw_image
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
def captioner(run_factory: RunFactory, trained: Path) -> RunFactory:
    """A captioner, a recipe, and a reward that says what it was asked."""
    sys.modules.pop("seeing", None)
    shutil.copytree(trained, run_factory.root / "captioner")
    for name, text in (("r.yaml", RECIPE), ("seeing.py", SEEING)):
        (run_factory.root / name).write_text(text, encoding="utf-8")
    return run_factory


def reinforced(run_factory: RunFactory, *overrides: str, out: str = "better") -> Any:
    console = Console(file=run_factory.output, width=200)
    return api.reinforce("r.yaml", overrides, out=run_factory.root / out, console=console)


def weights(run_factory: RunFactory, out: str) -> dict[str, torch.Tensor]:
    checkpoint = load_checkpoint(run_factory.root / out / "checkpoints")
    assert checkpoint is not None
    return checkpoint.snapshot.model


def files(root: Path, number: int) -> list[dict[str, str]]:
    """Pictures as files, with two captions and a query each."""
    from PIL import Image

    (root / "shots").mkdir()
    for n in range(number):
        Image.fromarray(draw_image(f"microworld:9:{n}", 40)).save(root / "shots" / f"{n}.png")
    captions = [(n, describe_scene(generate_scene(9, n), "en")) for n in range(number)]
    return [{"path": f"shots/{n}.png", "caption": text, "query": f"shape {n}"} for n, text in captions]


def test_a_captioner_learns_from_rewards_and_can_be_used(captioner: RunFactory) -> None:
    result = reinforced(captioner)
    assert {"reward", "reward.includes", "kl", "judge.named"} <= result.metrics.keys()
    output = captioner.output.getvalue()
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
    ((completion,),) = loaded.generate(draw_image("microworld:0:1", 32), max_tokens=6)
    assert completion.tokens and loaded.lm_kind == "source"
    evaluation = loaded.evaluate(limit=8)
    assert (
        evaluation["metrics"]["loss"] > 0 and "captioner" in evaluation["data"] and evaluation["run"].endswith("better")
    )
    assert result.example_commands == ["meristem generate " + str(captioner.root / "better") + " --image picture.png"]


def test_a_run_that_was_stopped_ends_where_the_unbroken_one_does(captioner: RunFactory) -> None:
    overrides = ("policy.baseline=learned", "policy.updates_per_rollout=2", "policy.supervised_weight=0.3")
    reinforced(captioner, *overrides, out="whole")
    reinforced(captioner, *overrides, "train.steps=2", out="broken")
    reinforced(captioner, *overrides, out="broken")
    expected_weights, broken = weights(captioner, "whole"), weights(captioner, "broken")
    assert expected_weights.keys() == broken.keys() and all(
        torch.equal(expected_weights[name], broken[name]) for name in expected_weights
    )


@pytest.mark.parametrize("kind", ["jsonl", "folder"])
def test_image_files_with_captions_and_columns(captioner: RunFactory, kind: str) -> None:
    rows = files(captioner.root, 10)
    rows.append({**rows[0], "caption": "another caption of it"})
    if kind == "jsonl":
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (captioner.root / "pictures.jsonl").write_text(text, encoding="utf-8")
        overrides = ("data.train=pictures.jsonl", "data.image=path")
    else:
        text = "".join(f"{Path(row['path']).name}\t{row['caption']}\n" for row in rows)
        (captioner.root / "shots" / "captions.tsv").write_text(text, encoding="utf-8")
        overrides = ("data.train=shots",)
    named = "judge=[{name: length, target: [2, 8]}]"
    result = reinforced(captioner, *overrides, named, "train.steps=2", "data.held_out=0.2")
    completions = sys.modules["seeing"].asked
    first = next(completion for completion in completions if completion[0].endswith("shots/0.png"))
    assert first[1] == [rows[0]["caption"], "another caption of it"]
    assert first[2] == ("shape 0" if kind == "jsonl" else first[0])
    assert result.example_commands[0].endswith(".png") and "--image" in result.example_commands[0]


def test_the_query_of_clicks_is_a_column_of_an_image(captioner: RunFactory) -> None:
    rows = files(captioner.root, 8)
    table = "query,text,shown,clicked\n" + "".join(
        f"shape {n},{word} thing {n},100,{5 + 10 * index}\n"
        for n in range(8)
        for index, word in enumerate(("red", "blue"))
    )
    (captioner.root / "clicks.csv").write_text(table, encoding="utf-8")
    clicks = "rewards=[{name: clicks, table: clicks.csv}]"
    for name, rows_written in (
        ("with", rows),
        ("without", [{k: v for k, v in row.items() if k != "query"} for row in rows]),
    ):
        text = "".join(json.dumps(row) + "\n" for row in rows_written)
        (captioner.root / f"{name}.jsonl").write_text(text, encoding="utf-8")
    overrides = (clicks, "judge=null", "data.image=path", "train.steps=1")
    result = reinforced(captioner, *overrides, "data.train=with.jsonl")
    assert "reward.clicks" in result.metrics
    with pytest.raises(MeristemError, match=r"without.jsonl:\d+: clicks: an image is not a query; give the query"):
        reinforced(captioner, *overrides, "data.train=without.jsonl", out="other")


def test_a_caption_task_still_predicts_after_its_rewards(captioner: RunFactory) -> None:
    source_template = "builtin:microworld-pictures?size={}&seed={}"
    data = {
        "data.train": source_template.format(24, 1),
        "data.validation": source_template.format(8, 2),
        "data.test": source_template.format(8, 3),
    }
    tiny = {**{key: value for key, value in TINY.items() if key.startswith("model")}, "train.threads": 1,
            "train.steps": 2, "train.evaluate_every": 2, "task.max_tokens": 8}  # fmt: skip
    api.finetune("caption", {**data, **tiny}, out=captioner.root / "task", console=Console(quiet=True))
    result = reinforced(captioner, "from=task", "judge=null", "train.steps=1")
    assert result.example_commands[0].startswith("meristem predict")
    loaded = api.load(captioner.root / "better")
    assert {"bleu", "named"} <= loaded.evaluate(limit=4)["metrics"].keys()
    from PIL import Image

    Image.fromarray(draw_image("microworld:9:1", 40)).save("p.png")
    assert isinstance(loaded.predict({"picture": "p.png"})["generated_text"], str)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.train=words.txt",), "image"),
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
    captioner: RunFactory, overrides: tuple[str, ...], message: str
) -> None:
    (captioner.root / "words.txt").write_text("no picture\n", encoding="utf-8")
    captioner.train("train.steps=1", run="writer")
    with pytest.raises(MeristemError, match=message):
        reinforced(captioner, *overrides)
    assert not (captioner.root / "better" / "checkpoints").exists()


def test_heads_that_rewards_do_not_train_stay_with_the_model(run_factory: RunFactory) -> None:
    mix = "mix=[{objective: clm, weight: 1}, {objective: mlm, weight: 1}]"
    plain = run_factory.recipe("gpt2").to_dict()
    plain.pop("objective")
    plain |= {"model": {"family": "modern", "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 32},
              "tokenizer": {"kind": "wordpiece", "vocab_size": 300}}  # fmt: skip
    recipe = resolve_recipe("tiny", plain, [mix, "train.steps=2"])
    pretrain(recipe, run_factory.root / "both", fresh=False, console=Console(quiet=True))
    (run_factory.root / "prompts.tsv").write_text(
        "prompt\ttopic\n" + "Anna went\tx\nBen saw\ty\n" * 4, encoding="utf-8"
    )
    (run_factory.root / "r.yaml").write_text(RECIPE, encoding="utf-8")
    overrides = ("data.train=prompts.tsv", "rewards=[{name: length, target: 4}]", "judge=null", "train.steps=2")
    reinforced(run_factory, *overrides, "from=both")
    loaded = api.load(run_factory.root / "better")
    assert set(loaded.model.heads) == {"clm", "mlm", "leash"} and loaded.fill("Anna [MASK] home.")[0].candidates
    reinforced(run_factory, *overrides, "from=better", out="again")
    assert set(api.load(run_factory.root / "again").model.heads) == {"clm", "mlm", "leash"}


def test_a_multi_task_model_writes_from_what_the_prompts_are(run_factory: RunFactory) -> None:
    mix = """mix=[{objective: clm, weight: 1}, {objective: denoising, weight: 1},
              {objective: caption, weight: 1, corpus: "builtin:microworld-pictures?size=40"}]"""
    plain = {**run_factory.recipe("gpt2").to_dict(), "dataset": {"image_size": 16}}
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
    pretrain(recipe, run_factory.root / "all", fresh=False, console=Console(quiet=True))
    (run_factory.root / "prompts.txt").write_text("Anna went\nBen saw\nDora has\nEmil was\n", encoding="utf-8")
    (run_factory.root / "r.yaml").write_text(RECIPE, encoding="utf-8")
    start = load_run(run_factory.root / "all")
    for overrides, generation_mode in (
        ((), "image"),
        (("data.train=prompts.txt",), "causal"),
        (("data.train=prompts.txt", "policy.generation_mode=encoder_decoder"), "encoder_decoder"),
    ):
        policy_recipe = resolve_policy_recipe(
            "r.yaml", ("from=all", *overrides), run_factory.root / "start", Console(quiet=True)
        )
        completed_recipe = complete_policy_recipe(policy_recipe, start)
        used = "clm" if generation_mode == "causal" else "seq2seq"
        assert completed_recipe.policy.generation_mode == generation_mode and {*completed_recipe.heads, used} == {
            "clm",
            "seq2seq",
        }
        assert completed_recipe.policy.image_size == (16 if generation_mode == "image" else None)
    reinforced(run_factory, "from=all", "rewards=[{name: length, target: 4}]", "judge=null", "train.steps=1")
    loaded = api.load(run_factory.root / "better")
    assert set(loaded.model.heads) == {"clm", "seq2seq", "leash"} and loaded.recipe.policy.generation_mode == "image"
    assert loaded.generate(draw_image("microworld:0:1", 16), max_tokens=4)[0][0].tokens
    assert loaded.generate("Anna went", max_tokens=4)[0][0].tokens
