"""Complete reward runs: they learn, resume bit for bit, write a report, and refuse what cannot work."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from run_factory import RunFactory

from meristem import api
from meristem.checkpoint.load import load_checkpoint
from meristem.config.errors import MeristemError
from meristem.finetune import finetuning
from meristem.reinforce import reward_setup
from meristem.reinforce_resolution import resolve_policy_recipe
from meristem.training import pretraining
from meristem.training.loop import TrainingLoop
from meristem.training.stop_signals import TrainingStopped

RECIPE = """
from:    run
data:    {train: prompts.tsv, held_out: 0.25}
rewards: [{name: includes, required: [the, a]}, {name: function, call: "liking:short", weight: 0.5}]
judge:   [{name: length, target: [2, 8]}]
policy:  {num_generations: 3, max_new_tokens: 6, eval_prompts: 6}
train:   {steps: 4, batch_samples: 4, learning_rate: 3e-3, schedule: constant, warmup: 0.0, log_every: 1,
          evaluate_every: 2,
          threads: 1}
"""
LIKING = """
def short(prompts, completions, topic, **columns):
    return [-float(len(text)) / 20 + (kind == "x") for text, kind in zip(completions, topic)]


def greedy(prompts, completions, **columns):
    return [float(text.count(" a")) for text in completions]


def wrong(prompts, completions, **columns):
    return [float("nan") if "e" in text else 0.0 for text in completions]
"""
PROMPTS = "prompt\ttarget\ttopic\n" + "".join(
    f"{name} {verb}\tto the town\t{'xy'[n % 2]}\n"
    for n, name in enumerate(("Anna", "Ben", "Dora", "Emil"))
    for verb in ("went", "saw", "has", "was")
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that writes, trained once."""
    root = tmp_path_factory.mktemp("writer")
    RunFactory(root).train("train.steps=12", "train.learning_rate=3e-3")
    return root / "run"


@pytest.fixture
def writer(run_factory: RunFactory, trained: Path) -> RunFactory:
    """A run that writes, prompts, a recipe and a reward of one's own."""
    sys.modules.pop("liking", None)
    shutil.copytree(trained, run_factory.root / "run")
    for name, text in (("r.yaml", RECIPE), ("liking.py", LIKING), ("prompts.tsv", PROMPTS)):
        (run_factory.root / name).write_text(text, encoding="utf-8")
    return run_factory


def reinforced(run_factory: RunFactory, *overrides: str, out: str = "better", fresh: bool = False) -> Any:
    console = Console(file=run_factory.output, width=200)
    return api.reinforce("r.yaml", overrides, out=run_factory.root / out, fresh=fresh, console=console)


def weights(run_factory: RunFactory, out: str) -> dict[str, torch.Tensor]:
    checkpoint = load_checkpoint(run_factory.root / out / "checkpoints")
    assert checkpoint is not None
    return checkpoint.snapshot.model


def test_a_run_learns_reports_and_can_be_used(writer: RunFactory) -> None:
    result = reinforced(writer)
    assert (
        result.judged_by == "leashed" and {"reward", "reward.includes", "kl", "judge.length"} <= result.metrics.keys()
    )
    for name in ("reward", "reward.includes", "reward.function", "kl", "leash", "distinct2", "written"):
        assert all(name in line for line in writer.lines("train", "better")), name
    assert not any(name.startswith("_") for line in writer.lines("train", "better") for name in line)
    report = json.loads((writer.root / "better" / "report.json").read_bytes())
    assert (
        report["prompts"] == 4
        and len(report["pairs"]) == 4
        and [best_of["count"] for best_of in report["best_of"]][-1] == 8
    )
    assert [best_of["start"] for best_of in report["best_of"]] == sorted(
        best_of["start"] for best_of in report["best_of"]
    )
    assert "<script" not in (writer.root / "better" / "report.html").read_text(encoding="utf-8")
    assert "## Rewards" in (writer.root / "better" / "README.md").read_text(encoding="utf-8")
    assert "reward 0" in writer.output.getvalue() or "reward -" in writer.output.getvalue()
    loaded = api.load(writer.root / "better")
    assert loaded.lm_kind == "causal" and loaded.generate("Anna went", max_tokens=4)[0][0].tokens
    assert any(command.startswith("meristem generate") for command in result.example_commands)


@pytest.mark.parametrize(
    "overrides",
    [
        ("policy.baseline=learned", "policy.updates_per_rollout=2", "policy.supervised_weight=0.3"),
        pytest.param((), marks=pytest.mark.slow),
        pytest.param(("train.micro_batch_tokens=64",), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_run_that_was_stopped_ends_where_the_unbroken_one_does(
    writer: RunFactory, overrides: tuple[str, ...]
) -> None:
    reinforced(writer, *overrides, out="whole")
    reinforced(writer, *overrides, "train.steps=2", out="broken")
    reinforced(writer, *overrides, out="broken")
    expected_weights, broken = weights(writer, "whole"), weights(writer, "broken")
    assert expected_weights.keys() == broken.keys() and all(
        torch.equal(expected_weights[name], broken[name]) for name in expected_weights
    )
    assert float(expected_weights["heads.leash.known"][0]) > 3  # what adapts is among them
    assert not torch.equal(expected_weights["heads.leash.price"], torch.ones((), dtype=torch.float64))


def test_a_task_run_still_predicts_after_its_rewards(writer: RunFactory) -> None:
    data = {"data.train": "builtin:microworld-queries?size=40&seed=1", "data.text": "query", "data.target": "text",
            "data.held_out": 0.2}  # fmt: skip
    tiny = {"model.family": "gpt2", "model.layers": 1, "model.hidden_size": 32, "model.heads": 2,
            "model.max_length": 48,
            "tokenizer.vocab_size": 400, "train.steps": 3, "train.threads": 1, "task.max_tokens": 8}  # fmt: skip
    api.finetune("lines", {**data, **tiny}, out=writer.root / "lines", console=Console(quiet=True))
    result = reinforced(writer, "from=lines", "data.train=builtin:microworld-queries?size=24&seed=2", "data.text=query",
                       "rewards=[{name: includes, required: [free]}]", "judge=null", "train.steps=1")  # fmt: skip
    assert result.example_commands[0].startswith("meristem predict")
    assert "translation_text" in api.load(writer.root / "better").predict("rent a lamp in Thornbury")


@pytest.mark.slow
def test_two_runs_with_one_seed_are_the_same_and_another_seed_is_another(writer: RunFactory) -> None:
    for out, seed in (("one", 1), ("two", 1), ("other", 2)):
        reinforced(writer, f"train.seed={seed}", "train.steps=2", out=out)
    first_weights, second_weights, other = (weights(writer, out) for out in ("one", "two", "other"))
    assert all(torch.equal(first_weights[name], second_weights[name]) for name in first_weights)
    assert not all(torch.equal(first_weights[name], other[name]) for name in first_weights)


def test_a_runaway_stops_the_run_and_says_why(writer: RunFactory) -> None:
    loose = (
        "train.learning_rate=0.3",
        "policy.kl.target=0.01",
        "policy.stop_patience=2",
        "policy.kl.adaptation_rate=0",
        "train.steps=30",
    )
    result = reinforced(writer, *loose)
    assert 2 <= result.step < 30
    assert "the policy diverged" in writer.output.getvalue()
    assert "the policy diverged" in json.loads((writer.root / "better" / "report.json").read_bytes())["stopped"]
    before = result.step
    assert reinforced(writer, *loose).step == before  # it does not go on from there


def test_ctrl_c_keeps_what_was_learned(writer: RunFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TrainingLoop._record_step

    def interrupted(loop: TrainingLoop, step_result: Any, use: int) -> None:
        plain(loop, step_result, use)
        if loop.state.step == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TrainingLoop, "_record_step", interrupted)
    with pytest.raises(TrainingStopped, match="stopped at step 2"):
        reinforced(writer)
    monkeypatch.setattr(TrainingLoop, "_record_step", plain)
    assert reinforced(writer).step == 4
    reinforced(writer, out="whole")
    expected_weights, broken = weights(writer, "whole"), weights(writer, "better")
    assert all(torch.equal(expected_weights[name], broken[name]) for name in expected_weights)


def test_without_a_kl_penalty_the_reward_is_hacked_and_the_report_warns(writer: RunFactory) -> None:
    """A reward that pays for one letter, thirty steps: held, the texts stay what they were; loose, they do not."""
    greedy = ("rewards=[{name: function, call: 'liking:greedy'}]", "policy.max_new_tokens=10",
              "policy.num_generations=6",
              "train.steps=30", "train.learning_rate=1e-2", "train.batch_samples=8",
              "train.evaluate_every=30")  # fmt: skip
    reinforced(writer, *greedy, "policy.kl.coefficient=0", "policy.min_distinct2_ratio=null", out="loose")
    reinforced(
        writer, *greedy, "policy.kl.target=0.5", "policy.kl.coefficient=2", "policy.kl.adaptation_rate=0.5", out="held"
    )
    loose, controlled = (json.loads((writer.root / out / "report.json").read_bytes()) for out in ("loose", "held"))
    kinds = {warning["kind"] for warning in loose["warnings"] if warning["severity"] == "serious"}
    assert kinds & {"repetition", "sameness"}, loose["warnings"]
    assert sum(loose["after"]) > 2 * sum(loose["before"])
    assert not {warning["kind"] for warning in controlled["warnings"]} & {"repetition", "sameness"}, controlled[
        "warnings"
    ]
    assert loose["kl"] > 4 * controlled["kl"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("from=nowhere",), "nowhere"),
        (("from=null",), "from: missing; give a generative model"),
        (("rewards=[]",), "rewards: missing"),
        (("rewards=[{name: gramar}]",), "did you mean grammar"),
        (("policy.num_generation=3",), "did you mean num_generations"),
        (("policy.num_generations=1",), "at least 2"),
        (("train.fsdp=true",), "train.fsdp"),
        (("data.train=nothing.tsv",), "nothing.tsv"),
        (("data.text=promt",), "did you mean prompt"),
        (("objective=clm",), "policy and objective"),
        (("rewards=[{name: function, call: 'liking:longer'}]",), "longer"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_starts(
    writer: RunFactory, overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(MeristemError, match=message):
        reinforced(writer, *overrides)
    assert not (writer.root / "better" / "checkpoints").exists()


def test_a_reward_that_fails_names_the_text_and_the_last_checkpoint_stays(writer: RunFactory) -> None:
    wrong = "rewards=[{name: function, call: 'liking:wrong'}]"
    with pytest.raises(MeristemError, match=r"not a finite number(.|\n)*text '"):
        reinforced(writer, wrong, "train.save_every=1")
    reinforced(writer, "train.steps=2", out="good")
    (writer.root / "liking.py").write_text(LIKING.replace("-float(len(text)) / 20", "1 / 0"), encoding="utf-8")
    sys.modules.pop("liking", None)
    with pytest.raises(MeristemError, match="ZeroDivisionError"):
        reinforced(writer, out="good")
    assert writer.steps("good") == [2]


def test_what_a_run_says_is_not_executed(writer: RunFactory) -> None:
    reinforced(writer, "train.steps=1", "judge=null")
    for ask in (
        lambda: api.reinforce(writer.root / "better", (), out=writer.root / "again", console=Console(quiet=True)),
        lambda: api.load(writer.root / "better").best("Anna", of=2, rewards=[str(writer.root / "better")]),
    ):
        with pytest.raises(MeristemError, match="liking:short"):
            ask()


def test_models_that_do_not_write_are_refused(writer: RunFactory) -> None:
    writer.train("train.steps=2", run="masked", family="bert")
    with pytest.raises(MeristemError, match="is a masked model"):
        reinforced(writer, "from=masked")


def test_another_start_is_refused(writer: RunFactory) -> None:
    reinforced(writer, "train.steps=2")
    facts = writer.root / "better" / "data.json"
    before = facts.read_bytes()
    facts.write_bytes(b"\x97" + before)
    with pytest.raises(MeristemError, match=r"data\.json: not UTF-8"):
        reinforced(writer, "train.steps=3")
    facts.write_bytes(before)
    writer.train("train.steps=14", "train.learning_rate=3e-3")
    with pytest.raises(MeristemError, match="have changed since this run started"):
        reinforced(writer)


def test_the_start_may_be_a_recipe(writer: RunFactory) -> None:
    tiny = Path("tiny.yaml")
    tiny.write_text(
        "corpus: {source: 'builtin:microworld-en?size=40', processes: 1}\n"
        "tokenizer: {kind: bpe, vocab_size: 300}\nobjective: clm\n"
        "model: {family: gpt2, layers: 1, hidden_size: 32, heads: 2, max_length: 32}\n"
        "train: {steps: 3, batch_tokens: 128, threads: 1}\n",
        encoding="utf-8",
    )
    reinforced(writer, "from=null", "from.recipe=tiny.yaml", "train.steps=1")
    assert (writer.root / "better-start" / "recipe.yaml").is_file()
    assert "Training the start model first" in writer.output.getvalue()


def test_a_text_file_is_a_prompt_a_line(writer: RunFactory) -> None:
    lines = ["Anna went, as the title says, home", "", "Ben saw", "   ", "Dora has\ta tab", "Emil was", "Ada came"]
    (writer.root / "prompts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    plain = ("rewards=[{name: length, target: 4}]", "judge=null", "train.steps=1", "data.held_out=0.2")
    reinforced(writer, "data.train=prompts.txt", *plain)
    report = json.loads((writer.root / "better" / "report.json").read_bytes())
    output = writer.output.getvalue()
    assert "4 train, 1 validation prompts" in output and "empty prompt: 2 (prompts.txt:2, prompts.txt:4)" in output
    assert report["prompts"] == 1 and report["pairs"][0]["prompt"] in lines
    (writer.root / "tabbed.txt").write_text("prompt\ttopic\nAnna went\tx\nBen saw\ty\nDora\tz\n", encoding="utf-8")
    reinforced(writer, "data.train=tabbed.txt", *plain, out="tabbed")
    assert "  Anna went → " in writer.output.getvalue()


def test_own_prompts_take_the_place_of_all_built_in_ones(writer: RunFactory) -> None:
    (writer.root / "prompts.txt").write_text("Anna went\nBen saw\n", encoding="utf-8")
    overrides = ("from=run", "data.train=prompts.txt")
    recipe = resolve_policy_recipe("clicks-microworld", overrides, writer.root / "start", Console(quiet=True))
    assert recipe.data.train == "prompts.txt" and recipe.data.validation is None is recipe.data.test is recipe.data.text


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.train=nothing.tsv",), "data.train: .*nothing.tsv"),
        (("data.test=builtin:nothing",), "builtin:nothing"),
        (("policy.num_generation=3",), "did you mean num_generations"),
        (
            ("rewards=[{name: grammar, corpus: small.txt}]",),
            "small.txt holds out 0 sentences, and at least 8 are needed",
        ),
        (("judge=[{name: grammar, corpus: small.txt}]",), "small.txt holds out 0 sentences"),
        (("rewards=[{name: grammar, run: nowhere}]",), "run=nowhere is not a run folder"),
        (
            ("rewards=[{name: grammar, corpus: large.txt, document: line, reference_corpus: small.txt}]",),
            "small.txt has 1 sent",
        ),
        (
            ("rewards=[{name: grammar, corpus: large.txt, judge_recipe: t5-mini}]",),
            "t5-mini is trained with denoising and cannot",
        ),
        (("rewards=[{name: classifier, run: run, label: x}]",), "run is not a classifier .it was trained for clm"),
        (("rewards=[{name: function, call: liking}]",), "expected module:function"),
        (("rewards=[{name: meaning, corpus: small.txt}]",), "small.txt has 0 words that occur at least 2 times"),
        (("rewards=[{name: meaning, vectors: none.bin}]",), "none.bin: no file of word vectors"),
        (("rewards=[{name: clicks, table: none.csv}]",), "none.csv"),
        (("rewards=[{name: classifier, run: nowhere, label: x}]",), "nowhere"),
        (("rewards=[{name: function, call: 'liking:longer'}]",), "longer"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_minutes_are_spent(
    writer: RunFactory, overrides: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERISTEM_CACHE", str(writer.root / "cache"))
    (writer.root / "small.txt").write_text("Only one sentence stands here today.\n", encoding="utf-8")
    lines = "".join(f"The {word} boat number {n} sails home.\n" for n, word in enumerate(["red", "old", "new"] * 40))
    (writer.root / "large.txt").write_text(lines, encoding="utf-8")
    for module, name in ((pretraining, "pretrain"), (finetuning, "finetune"), (reward_setup, "pretrain")):
        monkeypatch.setattr(module, name, _refused)  # neither a start nor a judge
    with pytest.raises(MeristemError, match=message):
        reinforced(writer, "from=null", "from.recipe=gpt2-mini", *overrides)


def _refused(*_: Any, **__: Any) -> Any:
    raise AssertionError("something was trained")
