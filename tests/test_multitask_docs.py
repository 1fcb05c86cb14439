"""The chain of docs/multitask.md: encoder, text and pictures in one model, rewards; run as it stands there, smaller."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from cli_runner import Meristem

from meristem.checkpoint.load_run import load_run
from meristem.config.recipe import builtin_reward_recipes, builtin_task_recipes, parse_recipe_file
from meristem.samples.microworld import draw, generate_scene

PAGE = Path(__file__).parent.parent / "docs" / "multitask.md"
SMALL = ["model.layers=1", "model.hidden_size=16", "model.heads=2", "model.max_length=32", "tokenizer.vocab_size=300",
         "train.batch_tokens=128", "train.steps=6", "train.evaluate_every=6", "train.evaluate_tokens=256",
         "corpus.limit=60", "corpus.validation=0.1", "corpus.test=0.1", "train.threads=1"]  # fmt: skip
JUDGE = {key: json.loads(value) for key, _, value in (word.partition("=") for word in SMALL) if key != "corpus.limit"}
SHORT = ["train.steps=2", "train.batch_samples=4", "train.evaluate_every=2", "train.log_every=1", "train.threads=1"]
POLICY = ["policy.eval_prompts=4", "policy.num_generations=2", "policy.max_new_tokens=6"]


def blocks(language: str) -> list[str]:
    """The code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def fewer(text: str) -> str:
    """The same built-in data, a few of them."""
    return re.sub(r"size=\d+", "size=80", text)


def smaller(command: str) -> list[str]:
    """The command's words with a tiny model and little data."""
    words = [fewer(word) for word in shlex.split(command)[1:]]
    out_index = words.index("--out") if "--out" in words else len(words)
    if words[0] == "pretrain":
        without_model = [word for word in words if not word.startswith("model.")]
        out_index = without_model.index("--out")
        mix = parse_mix() if "multitask-mini" in words else []
        has_start = any(word.startswith("from=") for word in without_model)  # whose tokenizer is kept
        small = [word for word in SMALL if not (has_start and word.startswith("tokenizer."))]
        return [*without_model[:out_index], *small, *mix, *without_model[out_index:]]
    if words[:2] == ["finetune", "sentiment"]:
        data = parse_recipe_file(builtin_task_recipes()["sentiment"])["data"]
        words[out_index:out_index] = [*SHORT, *(f"data.{key}={fewer(value)}" for key, value in data.items())]
    if words[0] == "reinforce":
        words[out_index:out_index] = [*SHORT, *POLICY]
        if words[1] in builtin_reward_recipes():
            words[out_index:out_index] = rewards_of(words[1])
    return words


def parse_mix() -> list[str]:
    """The tasks of multitask-mini on little data."""
    from meristem.config.recipe import builtin_recipes

    mix = parse_recipe_file(builtin_recipes()["multitask-mini"])["mix"]
    return [f"mix={json.dumps(json.loads(fewer(json.dumps(mix))))}", "corpus.source=builtin:microworld-en?size=60"]


def rewards_of(recipe: str) -> list[str]:
    """The rewards of a shipped recipe with tiny judges on little data."""
    plain = json.loads(fewer(json.dumps(parse_recipe_file(builtin_reward_recipes()[recipe]))))
    for reward_settings in (*plain["rewards"], *plain["judge"]):
        if reward_settings["name"] == "grammar":
            reward_settings["judge_settings"] = {**JUDGE, "corpus.validation": 0.2}
    data = [f"data.{split}={plain['data'][split]}" for split in ("train", "validation", "test")]
    return [*data, *(f"{section}={json.dumps(plain[section])}" for section in ("rewards", "judge"))]


@pytest.mark.usefixtures("small_peak")
def test_the_chain_runs_from_an_encoder_to_rewards(
    meristem: Meristem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # over 10 s: an encoder, a mix with its baselines, a judge, two reward runs, a task, and every verb
    image = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    image.fromarray(draw(generate_scene(0, 3), 40)).save("picture.png")
    (captions,) = blocks("yaml")
    Path("captions.yaml").write_text(yaml.safe_dump(yaml.safe_load(fewer(captions))))
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    assert [line.split()[1] for line in commands[:4]] == ["pretrain", "pretrain", "reinforce", "reinforce"]
    for command in commands:
        result = meristem(*smaller(command))
        assert result.code == 0, f"{command}\n{result.out}\n{result.err}"
    report = json.loads(Path("runs/multitask/report.json").read_text())
    assert [task["term"] for task in report["tasks"]] == ["mlm", "nsp", "clm", "denoising", "caption"]
    assert "the layers of this bert are the encoder" in Path("runs/multitask/log.txt").read_text()
    for name, rewards in (("rewarded", ("grammar", "meaning", "clicks")), ("captions", ("meaning", "repetition"))):
        lines = (Path("runs") / name / "metrics.jsonl").read_text().splitlines()
        logged = {key for line in map(json.loads, lines) for key in line}
        assert all(any(reward in key for key in logged) for reward in rewards)
        # what rewards do not train is still there
        assert {"mlm", "nsp", "clm", "seq2seq"} <= set(load_run(Path("runs") / name).learner.model.heads)
