"""Rewards as a person meets them: what each thinks of a text, and the best of several texts by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cli_runner import Meristem
from example_rewards import GRAMMAR, TINY, sentences

import meristem as package
from meristem.api import load
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.reinforce.reward_base import REWARDS, RewardScore
from meristem.tokenizers.train import train_tokenizer

LINES = [f"Ada walked from the old harbour to garden {n}, and it rained at sea." for n in range(40)]
FEW = ["--best-of", 4, "--max-tokens", 8]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal model that was never trained."""
    model = {"family": "gpt2", "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 48}
    recipe = resolve_recipe(
        "run", {"model": model, "objective": "clm", "tokenizer": {"kind": "wordpiece", "vocab_size": 400}}
    )
    words = train_tokenizer(recipe.tokenizer, LINES)
    learner = build_learner(recipe, words)
    generator = torch.Generator().manual_seed(3)
    for parameter in learner.model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    out = tmp_path_factory.mktemp("runs") / "causal"
    return write_run(out, recipe, words, {key: value.detach() for key, value in state.items()}, {}).path


# ------------------------------------------------------------ what a reward thinks


def test_without_a_name_every_reward_has_a_line(meristem: Meristem) -> None:
    result = meristem("reward")
    lines = result.out.split("\n\n")[0].splitlines()
    assert result.code == 0 and [line.split()[0] for line in lines] == list(REWARDS)
    assert all(len(line.split()) > 4 and "SPEC" not in line for line in lines)


def test_without_a_text_its_settings_are_explained(meristem: Meristem) -> None:
    result = meristem("reward", "length")
    assert result.code == 0 and "target" in result.out and "required" in result.out and "slack" in result.out
    assert meristem("reward", "lenght").err == "meristem: no reward 'lenght', did you mean length?\n"


def test_a_value_and_why_in_a_table_and_in_json(meristem: Meristem) -> None:
    result = meristem("reward", "length", "target=[2,4]", "--text", "a b c", "--text", "a b c d e f g")
    head, *rows = result.out.splitlines()
    assert head.split() == ["value", "reward", "why", "text"] and len(rows) == 2
    assert rows[0].split() == ["1.0000", "length", "words", "3,", "wanted:", "2", "to", "4", "a", "b", "c"]
    first, second = meristem("reward", "length", "target=[2,4]", "--text", "a b c", "--text", "x", "--json").answers
    assert first == {"text": "a b c", "prompt": "", "value": 1.0, "parts": {"length": 1.0},
                     "why": {"length": {"words": 3.0, "wanted": "2 to 4"}}}  # fmt: skip
    assert second["value"] < 0.5


def test_several_rewards_of_a_file_and_their_sum(meristem: Meristem) -> None:
    Path("my.yaml").write_text("rewards: [repetition, {name: length, target: 2, weight: 0.5}]\n", encoding="utf-8")
    rows = meristem("reward", "my.yaml", "--text", "a b").out.splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [["0.0000", "repetition"], ["1.0000", "length"], ["0.5000", "sum"]]
    assert "1 · repetition + 0.5 · length" in rows[3]


def test_texts_of_a_file_with_their_prompts_and_columns(meristem: Meristem) -> None:
    rows = ["a boat at sea", json.dumps({"text": "a boat", "words": ["boat", "sea"]})]
    Path("texts.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    command = ["reward", "includes", "required_column=words", "--file", "texts.txt", "--json"]
    assert [answer["value"] for answer in meristem(*command, "--column", "words=sea").answers] == [1.0, 0.5]
    result = meristem(*command)
    assert result.code == 1 and result.err.startswith(
        "meristem: texts.txt:1: includes: the column 'words' has no words"
    )
    Path("texts.txt").write_text('{"prompt": "x"}\n', encoding="utf-8")
    assert 'texts.txt:1: expected {"text": …}' in meristem(*command).err


def test_references_and_prompts_reach_a_reward(meristem: Meristem) -> None:
    Path("mine.py").write_text(
        "def score(prompts, completions, references, topic):\n"
        "    return [len(p) + 10 * len(r) + (t == 'sea') for p, r, t in zip(prompts, references, topic)]\n"
    )
    arguments = [
        "--text",
        "x",
        "--prompt",
        "abc",
        "--reference",
        "r",
        "--reference",
        "s",
        "--column",
        "topic=sea",
        "--json",
    ]
    (scored,) = meristem("reward", "function", "call=mine:score", *arguments).answers
    assert scored["value"] == 24.0


@pytest.mark.usefixtures("small_peak")
def test_grammar_trains_its_judge_first(meristem: Meristem) -> None:
    judge = json.dumps({**TINY, "train.steps": 2})
    arguments = [
        "reward",
        "grammar",
        f"corpus={GRAMMAR['corpus']}",
        f"judge_settings={judge}",
        "reference_sentences=32",
        "--json",
    ]
    result = meristem(*arguments, "--text", sentences(1)[0], "--text", "the the the the")
    good, dull = result.answers
    assert good["value"] > dull["value"] == -5.0 and "repetitive" in dull["why"]["grammar"]["guard"]
    assert "Training a judge: gpt2-mini" in result.err and "32 correct sentences have" in result.err
    assert "trained first, for 2 steps, and reused" in result.err and "run=RUN" in result.err
    completed = meristem(*arguments, "--text", sentences(1)[0])
    assert completed.answers[0]["value"] == good["value"] and "Training" not in completed.err


def test_a_corpus_that_is_too_small_is_refused_before_a_judge_is_trained(meristem: Meristem) -> None:
    Path("small.txt").write_text("One sentence of some words. And another one here.\n", encoding="utf-8")
    result = meristem("reward", "grammar", "corpus=small.txt", "--text", "x")
    assert result.code == 1 and "small.txt holds out 0 sentences, and at least 8 are needed" in result.err
    assert "Training" not in result.err


@pytest.mark.parametrize(("words", "code", "message"), [
    (["gramar", "--text", "x"], 2, "reward.0.name: no 'gramar', did you mean grammar?"),
    (["length", "traget=3", "--text", "x"], 2, "reward.0.traget: unknown setting, did you mean target?"),
    (["length", "oops", "--text", "x"], 2, "'oops' is not a setting; write key=value"),
    (["meaning", "vectors=absent.txt", "--text", "x"], 1, "absent.txt: no file of word vectors"),
    (["function", "call=nowhere:f", "--text", "x"], 1, "reward nowhere:f: no module nowhere"),
    (["length", "target=3", "--file", "absent.txt"], 1, "absent.txt"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_what_to_do(meristem: Meristem, words: list[str], code: int, message: str) -> None:
    result = meristem("reward", *words)
    assert result.code == code and message in result.err and result.out == ""


def test_a_failing_function_is_told_with_its_text(meristem: Meristem) -> None:
    Path("failing.py").write_text("def score(prompts, completions):\n    return [1 / len(c) for c in completions]\n")
    result = meristem("reward", "function", "call=failing:score", "--text", "ok", "--text", "")
    assert result.code == 1 and "ZeroDivisionError: division by zero (failing.py:2)\n  text ''" in result.err


# ------------------------------------------------------------ the best of several


def test_the_best_of_several_is_what_the_reward_likes(meristem: Meristem, run: Path) -> None:
    arguments = ["generate", run, "--prompt", "Ada", "--max-tokens", 8, "--seed", 0, "--json"]
    (all_,) = (json.loads(meristem(*arguments, "--count", 4).out),)
    (best,) = json.loads(meristem(*arguments, "--best-of", 4, "--reward", "length,target=3").out)
    values = [package.reward("length", text=completion["text"], target=3).value for completion in all_]
    assert best["text"] == all_[values.index(max(values))]["text"] and best["value"] == max(values) > min(values)
    assert best["parts"] == {"length": best["value"]} and best["finished"] and best["prompt"] == "Ada"


def test_the_best_in_words_with_its_value(meristem: Meristem, run: Path) -> None:
    result = meristem("generate", run, "--prompt", "Ada", *FEW, "--count", 2, "--reward", "length,target=3", "--reward",
                    "repetition,weight=2")  # fmt: skip
    assert result.code == 0 and len(result.out.splitlines()) == 2 and result.out.startswith("Ada")
    assert result.err.count("best of 4 (length ") == 2


def test_rewards_of_a_file_and_of_a_run(meristem: Meristem, run: Path) -> None:
    Path("trained").mkdir()
    for path in (Path("my.yaml"), Path("trained/recipe.yaml")):
        path.write_text("rewards: [{name: length, target: 3}]\n", encoding="utf-8")
    arguments = ["generate", run, "--prompt", "Ada", *FEW, "--seed", 0, "--json", "--reward"]
    assert (
        meristem(*arguments, "my.yaml").out
        == meristem(*arguments, "trained").out
        == meristem(*arguments, "length,target=3").out
    )


def test_every_prompt_of_a_file_has_its_best(meristem: Meristem, run: Path) -> None:
    Path("prompts.txt").write_text("Ada\nthe old\n", encoding="utf-8")
    payload = json.loads(
        meristem("generate", run, "--file", "prompts.txt", *FEW, "--json", "--reward", "repetition").out
    )
    assert [completion["prompt"] for completion in payload] == ["Ada", "the old"]


@pytest.mark.parametrize(("words", "code", "message"), [
    (["--best-of", "3"], 2, "--best-of: needs --reward NAME (meristem reward lists them) as well"),
    (["--reward", "repetition"], 2, "--reward: needs --best-of N as well"),
    (["--reference", "x"], 2, "--reference: needs --best-of N and --reward NAME"),
    (["--best-of", "2", "--reward", "repetition", "--count", "3"], 1, "between 1 and 2 texts can be kept, not 3"),
    (["--best-of", "2", "--reward", "meaning,vectors=none.txt"], 1, "none.txt: no file of word vectors"),
    (["--best-of", "2", "--reward", "includes,required_column=words"], 1,
     "prompt 1: includes: the column 'words' has no words"),
])  # fmt: skip
def test_what_cannot_be_ranked(meristem: Meristem, run: Path, words: list[str], code: int, message: str) -> None:
    result = meristem("generate", run, "--prompt", "Ada", "--max-tokens", "4", *words)
    assert result.code == code and message in result.err, result.err


# ------------------------------------------------------------ from Python


def test_the_same_from_python(run: Path, tmp_path: Path) -> None:
    reward_score = package.reward("length", text="a b c", target=3)
    assert reward_score == RewardScore(value=1.0, why={"words": 3.0, "wanted": "3"})
    assert [word_score.value for word_score in package.reward("includes", text=["sea", "sun"], required=["sea"])] == [
        1.0,
        0.0,
    ]
    combined_score = package.reward([{"name": "length", "target": 2}, "repetition"], text="a b")
    assert combined_score.value == 1.0 and combined_score.why == {"length": 1.0, "repetition": 0.0}
    ((best,),) = load(run).best("Ada", of=4, rewards=["length,target=3"], max_tokens=8, seed=0)
    assert best.value == max(
        package.reward("length", text=completion.text, target=3).value
        for completion in load(run).generate("Ada", count=4, max_tokens=8, seed=0)[0]
    )
    best_texts = load(run).best(["Ada", "the"], of=3, keep=2, rewards={"name": "length", "target": 3}, max_tokens=4)
    assert [len(texts_of_prompt) for texts_of_prompt in best_texts] == [2, 2] and all(
        a.value >= b.value for a, b in best_texts
    )


def test_references_of_every_prompt(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("sea 1 0 0\nrain 0 1 0\nada 0 0 1\nharbour 1 0.2 0\nold 0.3 0.3 0.2\n", encoding="utf-8")
    reward_settings = {"name": "meaning", "vectors": str(path)}
    best_texts = load(run).best(
        ["Ada", "the"], of=2, rewards=reward_settings, references=[["sea"], ["rain"]], max_tokens=4
    )
    assert len(best_texts) == 2
    for wrong in (["sea", "rain"], [["sea"]]):
        with pytest.raises(MeristemError, match="references: expected a list of texts for each of the 2 prompts"):
            load(run).best(["Ada", "the"], of=2, rewards=reward_settings, references=wrong, max_tokens=4)
    with pytest.raises(MeristemError, match="prompt 2: meaning: no reference for the prompt 'the'"):
        load(run).best(["Ada", "the"], of=2, rewards=reward_settings, references=[["sea"], []], max_tokens=4)
