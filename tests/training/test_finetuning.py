"""Fine-tuning: initial weights (runs, published weights, heads), learning rates and the final checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from place import Place, place
from rich.console import Console
from tuning import QUICK, SMALL, Tuning, sentences, tuning

from meristem import api
from meristem.checkpoint.folder_layout import read_pointer
from meristem.checkpoint.load_run import load_run
from meristem.config.errors import RecipeError
from meristem.config.recipe import HeadSettings
from meristem.evaluation.task_predictions import predict
from meristem.finetune.labelled_data import LabelledData
from meristem.learning.build import build_learner
from meristem.training.data.pretraining_data import load_pretraining_data
from meristem.training.default_learning_rate import default_learning_rate
from meristem.training.init.initial_weights import load_start_weights

__all__ = ["place", "tuning"]

HEAD = "heads.classification"
STILL: dict[str, Any] = {"train.learning_rate": 1e-12, "train.steps": 1}


# ------------------------------------------------------------ folders as transformers saves them


def published(folder: Path, labels: dict[int, str], tuning: Tuning, width: int = 32) -> Any:
    """A tiny BERT with a classifier as transformers writes it, and a tokenizer beside it."""
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=120, hidden_size=width, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=24, id2label=labels, label2id={label: number for number, label in labels.items()},
        problem_type="single_label_classification",
    )  # fmt: skip
    torch.manual_seed(5)
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(folder)
    words = sorted({word for text, _ in sentences(48) for word in text.split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    vocabulary += [f"[unused{number}]" for number in range(120 - len(vocabulary))]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}), encoding="utf-8"
    )
    return model


def test_a_folder_of_transformers_is_a_start_and_its_head_is_kept_by_the_names_of_its_labels(tuning: Tuning) -> None:
    theirs = published(tuning.root / "folder", {0: "good", 1: "bad"}, tuning)
    tuning.learn({"from": "folder", **STILL})
    ours, base = tuning.weights(), theirs.state_dict()
    assert api.load(tuning.root / "run").recipe.task.labels == ("bad", "good")
    torch.testing.assert_close(ours[f"{HEAD}.score.weight"], base["classifier.weight"].flip(0), atol=1e-6, rtol=0)
    torch.testing.assert_close(ours[f"{HEAD}.dense.weight"], base["bert.pooler.dense.weight"], atol=1e-6, rtol=0)
    assert "head classification: loaded, its labels reordered" in tuning.said.getvalue()
    tuning.learn({"from": "folder", **STILL, "train.steps": 2})  # the same folder is the same start
    (tuning.root / "folder").rename(tuning.root / "moved")
    tuning.learn({"from": "moved", **STILL, "train.steps": 3})


def test_a_published_classifier_of_pairs_is_a_start_for_pairs(tuning: Tuning) -> None:
    theirs = published(tuning.root / "folder", {0: "same", 1: "other"}, tuning).state_dict()
    texts = [text for text, _ in sentences(24)]
    rows = [f"{text}\t{texts[number // 3]}\t{('same', 'other')[number % 2]}" for number, text in enumerate(texts)]
    for name in ("train", "validation"):
        (tuning.root / f"{name}.tsv").write_text("\n".join(["text\ttext_b\tlabel", *rows]) + "\n", encoding="utf-8")
    told = {"from": "folder", "data.train": "train.tsv", "data.validation": "validation.tsv", **QUICK, **STILL}
    api.finetune("pair", told, out=tuning.root / "run", console=Console(file=tuning.said, width=300))
    assert api.load(tuning.root / "run").recipe.task.labels == ("other", "same")
    torch.testing.assert_close(
        tuning.weights()["heads.pair.score.weight"], theirs["classifier.weight"].flip(0), atol=1e-6, rtol=0
    )
    assert "head pair: loaded, its labels reordered" in tuning.said.getvalue()


def test_a_head_with_other_labels_is_newly_initialized_and_says_so(tuning: Tuning) -> None:
    theirs = published(tuning.root / "folder", {0: "spam", 1: "ham"}, tuning)
    tuning.learn({"from": "folder", **STILL})
    assert not torch.allclose(tuning.weights()[f"{HEAD}.score.weight"], theirs.state_dict()["classifier.weight"])
    output = tuning.said.getvalue()
    assert "head classification: newly initialized, since its labels are spam, ham there and bad, good here" in output
    assert (
        f"newly initialized: {HEAD}.dense.weight, {HEAD}.dense.bias, {HEAD}.score.weight, {HEAD}.score.bias" in output
    )


def test_a_task_starts_from_a_run_of_the_same_task(tuning: Tuning) -> None:
    tuning.learn(run="first")
    tuning.learn({"from": "first", **STILL}, run="second")
    first, second = load_run(tuning.root / "first").learner.model.state_dict(), tuning.weights("second")
    assert all(torch.allclose(first[name], second[name], atol=1e-9) for name in first)


def test_pretrained_weights_get_a_default_learning_rate_unless_one_is_set(tuning: Tuning) -> None:
    published(tuning.root / "folder", {0: "good", 1: "bad"}, tuning, width=512)
    file = tuning.root / "mine.yaml"
    file.write_text(
        "task: classification\ndata: {train: train.tsv}\ntrain: {steps: 3, learning_rate: 2e-3}\n", encoding="utf-8"
    )

    def rate(told: dict[str, Any], recipe: str | Path = "choice") -> float:
        return float(api.resolve_task_recipe(recipe, {"from": "folder", **told}).train.learning_rate)

    assert rate({}) == rate({}, "entities") == 7.5e-5
    assert rate({"train.learning_rate": 1e-3}) == 1e-3
    assert rate({"from.train": "head"}) == rate({"from.load": "nothing"}) == rate({"from.lora.rank": 4}) == 2e-3
    assert rate({}, file) == 2e-3
    assert rate({}, "senses") == 1e-2
    tuning.file("train.tsv", sentences(16))
    told = {name: value for name, value in QUICK.items() if name != "train.learning_rate"} | {"train.steps": 1}
    console = Console(file=tuning.said, width=300)
    api.finetune("classification", {"from": "folder", "data.train": "train.tsv", **told}, out="run", console=console)
    said = "Learning rate 7.5e-05, chosen for these pretrained weights (train.learning_rate sets another)"
    assert said in tuning.said.getvalue()


@pytest.mark.parametrize(
    ("optimizer", "width", "rate"),
    [("adamw", 256, None), ("adamw", 768, 3.3e-5), ("adamw", 1024, 1.9e-5), ("muon", 256, 1e-3), ("muon", 512, 2.5e-4)],
)
def test_default_learning_rates(optimizer: str, width: int, rate: float | None) -> None:
    told = {"train.optimizer": optimizer, "model.hidden_size": width}
    assert default_learning_rate(api.resolve_pretrain_recipe("bert-mini", told)) == rate
    assert default_learning_rate(api.resolve_pretrain_recipe("rnn-mini", told)) is None


def test_scratch_misspelt_is_not_taken_for_a_run() -> None:
    with pytest.raises(RecipeError, match="from: no run scrach, did you mean scratch"):
        api.finetune("classification", {"from": "scrach"})


def test_take_nothing_keeps_only_the_architecture_and_the_tokenizer(tuning: Tuning) -> None:
    tuning.learn(run="first")
    tuning.learn({"from": "first", "from.load": "nothing", **STILL, "train.seed": 9}, run="second")
    first, second = tuning.weights("first"), tuning.weights("second")
    assert not any(torch.equal(first[name], second[name]) for name in first if name.endswith("project.weight"))
    assert (tuning.root / "first/tokenizer.json").read_bytes() == (tuning.root / "second/tokenizer.json").read_bytes()


# ------------------------------------------------------------ words that were added


def test_with_three_more_special_tokens_everything_else_is_loaded(tuning: Tuning, place: Place) -> None:
    place.train("train.steps=4", family="gpt2", run="gpt2")
    tuning.learn({"from": "gpt2", "task.lm_weight": 0.5, **STILL})
    old, new = load_run(tuning.root / "gpt2"), load_run(tuning.root / "run")
    before, after = (one.learner.model.state_dict() for one in (old, new))
    table = "backbone.embed.tokens.weight"
    assert new.tokenizer.vocab_size == old.tokenizer.vocab_size + 3
    torch.testing.assert_close(after[table][: old.tokenizer.vocab_size], before[table], atol=1e-9, rtol=0)
    assert all(torch.allclose(before[n], after[n], atol=1e-9) for n in before if after[n].shape == before[n].shape)
    taken = next(line for line in tuning.said.getvalue().splitlines() if line.startswith("from gpt2: loaded:"))
    held, total = (int(word) for word in taken.split() if word.isdigit())
    assert total - held == 1, "only the task's own head is new"
    assert f"newly initialized: {HEAD}.weight\n" in tuning.said.getvalue()
    assert "left:" not in tuning.said.getvalue()
    assert "embeddings of all tokens but <|start|>, <|delimiter|>, <|extract|>, which are new" in tuning.said.getvalue()


# ------------------------------------------------------------ the best checkpoint


@pytest.fixture
def judged(tuning: Tuning, monkeypatch: pytest.MonkeyPatch) -> Tuning:
    """A task whose validation is best at the second of four looks, whatever the model does."""
    looks = iter([0.5, 0.9, 0.7, 0.6])
    evaluator = LabelledData.build_evaluator

    def told(self: LabelledData, recipe: Any, learner: Any, split: str, say: Any) -> Any:
        measured = evaluator(self, recipe, learner, split, say)
        assert measured is not None
        return lambda: {**measured(), **({"accuracy": next(looks, -1.0)} if split == "validation" else {})}

    monkeypatch.setattr(LabelledData, "build_evaluator", told)
    return tuning


LOOKS = {"train.steps": 8, "train.evaluate_every": 2, "train.keep_checkpoints": 1}


def test_a_finished_task_is_its_best_checkpoint(judged: Tuning) -> None:
    judged.learn(LOOKS)
    run = judged.root / "run"
    assert read_pointer(run / "checkpoints", "best") == 4 and read_pointer(run / "checkpoints", "latest") == 8
    best = judged.weights(step=4)
    opened = api.load(run)
    assert opened.loaded_run.step == 4
    assert all(torch.equal(best[name], tensor) for name, tensor in opened.model.state_dict().items())
    facts = json.loads((run / "finished.json").read_bytes())
    assert facts["best_step"] == 4 and facts["judged_by"] == "accuracy"
    samples = [opened.loaded_run.learner.objectives["task"].parse_input(text) for text, _ in sentences(8, 40)]  # type: ignore[attr-defined]  # a task
    golds = [label for _, label in sentences(8, 40)]
    said = [one["label"] for one in opened.predict([text for text, _ in sentences(8, 40)])]
    assert facts["test"]["accuracy"] == pytest.approx(sum(a == b for a, b in zip(said, golds, strict=True)) / 8)
    assert len(predict(opened.loaded_run.learner, samples).predictions) == 8
    assert "Using the checkpoint with the best validation: step 4 of 8" in judged.said.getvalue()


def test_the_last_one_where_that_is_asked_for(judged: Tuning) -> None:
    judged.learn({**LOOKS, "train.load_best_at_end": False})
    assert api.load(judged.root / "run").loaded_run.step == 8
    assert api.load(judged.root / "run", which="best").loaded_run.step == 4


def test_patience_stops_and_the_best_is_what_is_used(judged: Tuning) -> None:
    ended = judged.learn({**LOOKS, "train.patience": 1})
    assert ended.step == 6
    assert api.load(judged.root / "run").loaded_run.step == 4


def test_without_validation_a_task_is_its_last_checkpoint(tuning: Tuning) -> None:
    tuning.learn({"data.validation": None, "data.held_out": 0.0})
    opened = api.load(tuning.root / "run").loaded_run
    assert opened.step == 6 and not opened.notices


def test_pretraining_ends_with_its_last_checkpoint_unless_set(place: Place) -> None:
    assert not place.recipe("bert").uses_best_checkpoint
    assert place.recipe("bert", "train.patience=2").uses_best_checkpoint
    assert place.recipe("bert", "train.load_best_at_end=true").uses_best_checkpoint
    assert not place.recipe("bert", "train.patience=2", "train.load_best_at_end=false").uses_best_checkpoint


def test_labels_of_heads_are_known_by_name() -> None:
    recipe = api.resolve_task_recipe("classification", {**SMALL, "task.labels": ["b", "a"]})
    assert recipe.head_labels("classification") == ("b", "a") and recipe.head_labels("tagging") == ()
    brought = {"tagging": HeadSettings(kind="tags", sizes={"classes": 2}, labels=("O", "B"))}
    assert replace(recipe, heads=brought).head_labels("tagging") == ("O", "B")


def test_a_head_with_one_number_has_no_labels() -> None:
    recipe = api.resolve_task_recipe("classification", SMALL)
    brought = {"classification": HeadSettings(kind="pooled", sizes={"classes": 1}, labels=("LABEL_0",))}
    assert replace(recipe, task=None, heads=brought).head_labels("classification") == ()


def test_vocabulary_rows_are_not_confused_with_other_rows_of_the_same_number(tuning: Tuning, place: Place) -> None:
    """A dense layer as wide as there are tokens is no table of words."""
    place.train(
        "train.steps=2", "model.hidden_size=300", "model.heads=2", "tokenizer.vocab_size=300", family="bert", run="bert"
    )
    other = load_run(tuning.root / "bert")
    assert other.tokenizer.vocab_size == 300
    own = place.recipe("bert", "model.hidden_size=300", "tokenizer.vocab_size=290", "from=bert", "from.tokenizer=own")
    tokenizer = load_pretraining_data(own, None, Console(quiet=True)).tokenizer
    model = build_learner(own, tokenizer).model
    start_weights = load_start_weights(model, tokenizer, other)
    before, after = other.learner.model.state_dict(), model.state_dict()
    assert after["heads.nsp.dense.weight"].equal(before["heads.nsp.dense.weight"])
    known = [
        (n, m)
        for n in range(tokenizer.vocab_size)
        if (m := other.tokenizer.token_to_id(tokenizer.id_to_token(n))) is not None
    ]
    here, there = torch.tensor(known).unbind(1)
    bias = "heads.mlm.bias"
    assert before[bias].any() and after[bias][here].equal(before[bias][there])
    assert "newly initialized:" not in start_weights and "not used:" not in start_weights
