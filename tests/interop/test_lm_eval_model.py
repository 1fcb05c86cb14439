"""lm-eval on runs: a small local task, with the same numbers as the runs' own scores."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("lm_eval")

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

import meristem
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.interop.lm_eval_model import MeristemLM, main
from meristem.learning.build import build_learner
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

TEXTS = ["the old gardener planted the apple tree. my sister sold seventeen boats and a small garden."] * 3
QUESTIONS = [
    {
        "context": f"the {subject} planted",
        "choices": [" the apple tree", " seventeen boats", " a sister"],
        "label": n % 3,
    }
    for n, subject in enumerate(
        ["old gardener", "small sister", "garden", "apple tree", "old sister", "boats", "old tree"]
    )
]
TASK = {
    "task": "local_choice",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{context}}",
    "doc_to_choice": "choices",
    "doc_to_target": "label",
    "target_delimiter": "",
    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
}


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer(TokenizerSettings.model_validate({"kind": "bpe", "vocab_size": 300}), TEXTS)


@pytest.fixture(scope="module")
def runs(words: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each way, with weights large enough that answers differ."""
    folder = tmp_path_factory.mktemp("runs")
    shapes = {
        "causal": ("gpt2", "clm"),
        "masked": ("bert", "mlm"),
        "source": ("transformer", "denoising"),
        "nsp": ("bert", "nsp"),
    }
    return {
        attention_kind: build_run(folder / attention_kind, family, objective, words)
        for attention_kind, (family, objective) in shapes.items()
    }


def build_run(path: Path, family: str, objective: str, words: Tokenizer) -> Path:
    model = {"family": family, "layers": 2, "hidden_size": 32, "heads": 4, "max_length": 48, "init_std": 0.3}
    recipe = resolve_recipe(path.name, {"model": model, "objective": [{"name": objective}]})
    learner = build_learner(recipe, words)
    text = yaml.safe_dump(recipe.to_dict(), sort_keys=False)
    run = RunFolder.create(path, text, None)
    words.save(run.tokenizer_path)
    save_checkpoint(
        run.checkpoints,
        Snapshot(
            step=0,
            model=learner.model.state_dict(),
            optimizer={},
            memory={},
            state={},
            recipe=text,
            tokenizer=run.tokenizer_path,
        ),
    )
    return path


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A multiple-choice task in a folder."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    kwargs = {"data_files": {"test": str(tmp_path / "questions.jsonl")}, "cache_dir": str(tmp_path / "cache")}
    (folder / "local.yaml").write_text(yaml.safe_dump({**TASK, "dataset_kwargs": kwargs}))
    return folder


def build_requests(kind: str, *arguments: Any) -> list[Instance]:
    return [Instance(request_type=kind, doc={}, arguments=argument, idx=n) for n, argument in enumerate(arguments)]


def evaluated(model: Any, task: Path, **evaluator_options: Any) -> dict[str, float]:
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    manager = TaskManager(include_path=str(task), include_defaults=False)
    evaluation = lm_eval.simple_evaluate(
        model=model,
        tasks=["local_choice"],
        task_manager=manager,
        bootstrap_iters=0,
        log_samples=False,
        **evaluator_options,
    )
    return {name.split(",")[0]: value for name, value in evaluation["results"]["local_choice"].items() if "acc" in name}


def implied(run: Path) -> dict[str, float]:
    """Accuracy by the run's own scores of whole texts: what its tokens after the context add up to."""
    loaded = meristem.load(run)
    right = {"acc": 0, "acc_norm": 0}
    for question in QUESTIONS:
        totals = []
        for choice in question["choices"]:
            (full_score,) = loaded.score(question["context"] + choice)
            (context,) = loaded.score(question["context"])
            totals.append(sum(value for _, value in full_score.per_token[context.tokens :]))
        normed = [total / len(choice) for total, choice in zip(totals, question["choices"], strict=True)]
        right["acc"] += max(range(3), key=totals.__getitem__) == question["label"]
        right["acc_norm"] += max(range(3), key=normed.__getitem__) == question["label"]
    return {name: count / len(QUESTIONS) for name, count in right.items()}


@pytest.mark.parametrize("attention_kind", ["causal", "masked"])
def test_accuracies_are_what_the_scores_imply(attention_kind: str, runs: dict[str, Path], task: Path) -> None:
    metrics = evaluated(MeristemLM(runs[attention_kind]), task)
    expected = implied(runs[attention_kind])
    assert {name: metrics[name] for name in expected} == expected
    assert 0 < expected["acc"] < 1  # random weights answer some of them


def test_by_name_and_arguments(runs: dict[str, Path], task: Path) -> None:
    metrics = evaluated("meristem", task, model_args=f"run={runs['causal']}", batch_size=4, device="cpu")
    assert metrics == evaluated(MeristemLM(runs["causal"]), task)


def test_an_encoder_decoder_answers_too(runs: dict[str, Path], task: Path) -> None:
    assert 0 <= evaluated(MeristemLM(runs["source"]), task)["acc"] <= 1
    (logprob,) = MeristemLM(runs["source"]).loglikelihood_rolling(build_requests("loglikelihood_rolling", ("the old",)))
    assert logprob == pytest.approx(meristem.load(runs["source"]).score("the old")[0].logprob)  # as one gap


@pytest.mark.parametrize("attention_kind", ["causal", "masked"])
def test_rolling_is_the_score(attention_kind: str, runs: dict[str, Path]) -> None:
    texts = ["the old gardener", "", "老 apple 😀", "my sister sold seventeen boats. " * 8]
    logprobs = MeristemLM(runs[attention_kind]).loglikelihood_rolling(
        build_requests("loglikelihood_rolling", *((text,) for text in texts))
    )
    assert logprobs == [text_score.logprob for text_score in meristem.load(runs[attention_kind]).score(texts)]


def test_continuations_and_whether_they_are_greedy(runs: dict[str, Path]) -> None:
    loaded = meristem.load(runs["causal"])
    ((completion,),) = loaded.generate("the old", greedy=True, max_tokens=4)
    evaluator = MeristemLM(runs["causal"])
    greedy = evaluator.tokenizer.decode([*evaluator.tokenizer.encode("the old").ids, *completion.tokens])[
        len("the old") :
    ]
    results = evaluator.loglikelihood(
        build_requests("loglikelihood", ("the old", greedy), ("the old", " gardener"), ("the old", ""))
    )
    if evaluator.tokenizer.encode("the old" + greedy).ids[-len(completion.tokens) :].tolist() == list(
        completion.tokens
    ):
        assert results[0] == (pytest.approx(completion.score, abs=1e-4), True)
    assert results[1][1] is False
    assert results[2] == (0.0, True)


@pytest.mark.parametrize("attention_kind", ["causal", "masked", "source"])
def test_writing_stops_at_the_stop_string(attention_kind: str, runs: dict[str, Path]) -> None:
    evaluator = MeristemLM(runs[attention_kind])
    (free,) = evaluator.generate_until(build_requests("generate_until", ("the old", {"until": [], "max_gen_toks": 12})))
    assert len(free) > 2
    stop = free[len(free) // 2]
    asks = build_requests(
        "generate_until",
        ("the old", {"until": [stop], "max_gen_toks": 12}),
        ("the old", {"until": stop, "max_new_tokens": 12}),
        ("the old", {"max_gen_toks": 12}),
        ("the", {"until": ["\n\n\n"], "max_gen_toks": 3, "do_sample": True, "temperature": 0.7, "top_k": 5}),
    )
    cut, same_text, full_text, sampled_text = evaluator.generate_until(asks)
    assert cut == same_text == free[: free.index(stop)]
    assert full_text == free
    assert len(evaluator.tokenizer.encode(sampled_text).ids) <= 12


def test_a_run_without_words_is_refused(runs: dict[str, Path]) -> None:
    with pytest.raises(MeristemError, match="has no language-model head"):
        MeristemLM(runs["nsp"])


@pytest.mark.slow
def test_the_command_line(runs: dict[str, Path], task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {
        "--model": "meristem",
        "--model_args": f"run={runs['causal']}",
        "--tasks": "local_choice",
        "--include_path": str(task),
        "--output_path": str(tmp_path / "out"),
    }
    monkeypatch.setattr(sys, "argv", ["lm_eval", "run", *(word for pair in arguments.items() for word in pair)])
    main()
    (results_file,) = (tmp_path / "out").rglob("results*.json")
    results = json.loads(results_file.read_text())["results"]["local_choice"]
    assert results["acc,none"] == implied(runs["causal"])["acc"]


def test_nothing_else_needs_it_and_a_missing_extra_is_named() -> None:
    code = """
import sys, meristem.api, meristem.cli
assert not any(name.startswith(("lm_eval", "transformers")) for name in sys.modules)
sys.modules["lm_eval"] = None
import meristem.interop.lm_eval_model
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.stderr.rstrip().endswith(
        'MeristemError: evaluating with lm-eval needs lm-eval: pip install "meristem-lm[eval]"'
    )
