"""Fine-tuning: initial weights (runs, published weights, heads), learning rates and the final checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from finetune_factory import QUICK, SMALL, FinetuneFactory, finetune_factory, sentences
from rich.console import Console
from run_factory import RunFactory, run_factory

from meristem import api
from meristem.checkpoint.folder_layout import read_pointer
from meristem.checkpoint.load_run import load_run
from meristem.config.errors import RecipeError
from meristem.config.recipe_parts import HeadSettings
from meristem.evaluation.task_predictions import predict
from meristem.finetune.labelled_data import LabelledData
from meristem.learning.build import build_learner
from meristem.training.data.pretraining_data import load_pretraining_data
from meristem.training.default_learning_rate import default_learning_rate
from meristem.training.init.initial_weights import load_start_weights

__all__ = ["finetune_factory", "run_factory"]

HEAD = "heads.classification"
STILL: dict[str, Any] = {"train.learning_rate": 1e-12, "train.steps": 1}


# ------------------------------------------------------------ folders as transformers saves them


def published(folder: Path, labels: dict[int, str], finetune_factory: FinetuneFactory, width: int = 32) -> Any:
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


def test_a_folder_of_transformers_is_a_start_and_its_head_is_kept_by_the_names_of_its_labels(
    finetune_factory: FinetuneFactory,
) -> None:
    theirs = published(finetune_factory.root / "folder", {0: "good", 1: "bad"}, finetune_factory)
    finetune_factory.learn({"from": "folder", **STILL})
    ours, base = finetune_factory.weights(), theirs.state_dict()
    assert api.load(finetune_factory.root / "run").recipe.task.labels == ("bad", "good")
    torch.testing.assert_close(ours[f"{HEAD}.score.weight"], base["classifier.weight"].flip(0), atol=1e-6, rtol=0)
    torch.testing.assert_close(ours[f"{HEAD}.dense.weight"], base["bert.pooler.dense.weight"], atol=1e-6, rtol=0)
    assert "head classification: loaded, its labels reordered" in finetune_factory.output.getvalue()
    finetune_factory.learn({"from": "folder", **STILL, "train.steps": 2})  # the same folder is the same start
    (finetune_factory.root / "folder").rename(finetune_factory.root / "moved")
    finetune_factory.learn({"from": "moved", **STILL, "train.steps": 3})


def test_a_published_classifier_of_pairs_is_a_start_for_pairs(finetune_factory: FinetuneFactory) -> None:
    theirs = published(finetune_factory.root / "folder", {0: "same", 1: "other"}, finetune_factory).state_dict()
    texts = [text for text, _ in sentences(24)]
    rows = [f"{text}\t{texts[number // 3]}\t{('same', 'other')[number % 2]}" for number, text in enumerate(texts)]
    for name in ("train", "validation"):
        (finetune_factory.root / f"{name}.tsv").write_text(
            "\n".join(["text\ttext_b\tlabel", *rows]) + "\n", encoding="utf-8"
        )
    settings = {"from": "folder", "data.train": "train.tsv", "data.validation": "validation.tsv", **QUICK, **STILL}
    api.finetune(
        "pair", settings, out=finetune_factory.root / "run", console=Console(file=finetune_factory.output, width=300)
    )
    assert api.load(finetune_factory.root / "run").recipe.task.labels == ("other", "same")
    torch.testing.assert_close(
        finetune_factory.weights()["heads.pair.score.weight"], theirs["classifier.weight"].flip(0), atol=1e-6, rtol=0
    )
    assert "head pair: loaded, its labels reordered" in finetune_factory.output.getvalue()


def test_a_head_with_other_labels_is_newly_initialized_and_says_so(finetune_factory: FinetuneFactory) -> None:
    theirs = published(finetune_factory.root / "folder", {0: "spam", 1: "ham"}, finetune_factory)
    finetune_factory.learn({"from": "folder", **STILL})
    assert not torch.allclose(
        finetune_factory.weights()[f"{HEAD}.score.weight"], theirs.state_dict()["classifier.weight"]
    )
    output = finetune_factory.output.getvalue()
    assert "head classification: newly initialized, since its labels are spam, ham there and bad, good here" in output
    assert (
        f"newly initialized: {HEAD}.dense.weight, {HEAD}.dense.bias, {HEAD}.score.weight, {HEAD}.score.bias" in output
    )


def test_a_task_starts_from_a_run_of_the_same_task(finetune_factory: FinetuneFactory) -> None:
    finetune_factory.learn(run="first")
    finetune_factory.learn({"from": "first", **STILL}, run="second")
    first, second = (
        load_run(finetune_factory.root / "first").learner.model.state_dict(),
        finetune_factory.weights("second"),
    )
    assert all(torch.allclose(first[name], second[name], atol=1e-9) for name in first)


def test_pretrained_weights_get_a_default_learning_rate_unless_one_is_set(finetune_factory: FinetuneFactory) -> None:
    published(finetune_factory.root / "folder", {0: "good", 1: "bad"}, finetune_factory, width=512)
    file = finetune_factory.root / "mine.yaml"
    file.write_text(
        "task: classification\ndata: {train: train.tsv}\ntrain: {steps: 3, learning_rate: 2e-3}\n", encoding="utf-8"
    )

    def rate(overrides: dict[str, Any], recipe: str | Path = "choice") -> float:
        return float(api.resolve_task_recipe(recipe, {"from": "folder", **overrides}).train.learning_rate)

    assert rate({}) == rate({}, "entities") == 7.5e-5
    assert rate({"train.learning_rate": 1e-3}) == 1e-3
    assert rate({"from.train": "head"}) == rate({"from.load": "nothing"}) == rate({"from.lora.rank": 4}) == 2e-3
    assert rate({}, file) == 2e-3
    assert rate({}, "senses") == 1e-2
    finetune_factory.file("train.tsv", sentences(16))
    quick_settings = {name: value for name, value in QUICK.items() if name != "train.learning_rate"} | {
        "train.steps": 1
    }
    console = Console(file=finetune_factory.output, width=300)
    api.finetune(
        "classification", {"from": "folder", "data.train": "train.tsv", **quick_settings}, out="run", console=console
    )
    message = "Learning rate 7.5e-05, chosen for these pretrained weights (train.learning_rate sets another)"
    assert message in finetune_factory.output.getvalue()


@pytest.mark.parametrize(
    ("optimizer", "width", "rate"),
    [("adamw", 256, None), ("adamw", 768, 3.3e-5), ("adamw", 1024, 1.9e-5), ("muon", 256, 1e-3), ("muon", 512, 2.5e-4)],
)
def test_default_learning_rates(optimizer: str, width: int, rate: float | None) -> None:
    settings = {"train.optimizer": optimizer, "model.hidden_size": width}
    assert default_learning_rate(api.resolve_pretrain_recipe("bert-mini", settings)) == rate
    assert default_learning_rate(api.resolve_pretrain_recipe("rnn-mini", settings)) is None


def test_scratch_misspelt_is_not_taken_for_a_run() -> None:
    with pytest.raises(RecipeError, match="from: no run scrach, did you mean scratch"):
        api.finetune("classification", {"from": "scrach"})


def test_take_nothing_keeps_only_the_architecture_and_the_tokenizer(finetune_factory: FinetuneFactory) -> None:
    finetune_factory.learn(run="first")
    finetune_factory.learn({"from": "first", "from.load": "nothing", **STILL, "train.seed": 9}, run="second")
    first, second = finetune_factory.weights("first"), finetune_factory.weights("second")
    assert not any(torch.equal(first[name], second[name]) for name in first if name.endswith("project.weight"))
    assert (finetune_factory.root / "first/tokenizer.json").read_bytes() == (
        finetune_factory.root / "second/tokenizer.json"
    ).read_bytes()


# ------------------------------------------------------------ words that were added


def test_with_three_more_special_tokens_everything_else_is_loaded(
    finetune_factory: FinetuneFactory, run_factory: RunFactory
) -> None:
    run_factory.train("train.steps=4", family="gpt2", run="gpt2")
    finetune_factory.learn({"from": "gpt2", "task.lm_weight": 0.5, **STILL})
    old, new = load_run(finetune_factory.root / "gpt2"), load_run(finetune_factory.root / "run")
    before, after = (tokenizer_of_run.learner.model.state_dict() for tokenizer_of_run in (old, new))
    table = "backbone.embed.tokens.weight"
    assert new.tokenizer.vocab_size == old.tokenizer.vocab_size + 3
    torch.testing.assert_close(after[table][: old.tokenizer.vocab_size], before[table], atol=1e-9, rtol=0)
    assert all(torch.allclose(before[n], after[n], atol=1e-9) for n in before if after[n].shape == before[n].shape)
    loaded_line = next(
        line for line in finetune_factory.output.getvalue().splitlines() if line.startswith("from gpt2: loaded:")
    )
    num_loaded, total = (int(word) for word in loaded_line.split() if word.isdigit())
    assert total - num_loaded == 1, "only the task's own head is new"
    assert f"newly initialized: {HEAD}.weight\n" in finetune_factory.output.getvalue()
    assert "left:" not in finetune_factory.output.getvalue()
    assert (
        "embeddings of all tokens but <|start|>, <|delimiter|>, <|extract|>, which are new"
        in finetune_factory.output.getvalue()
    )


# ------------------------------------------------------------ the best checkpoint


@pytest.fixture
def scripted_accuracies(finetune_factory: FinetuneFactory, monkeypatch: pytest.MonkeyPatch) -> FinetuneFactory:
    """A task whose validation is best at the second of four looks, whatever the model does."""
    accuracies = iter([0.5, 0.9, 0.7, 0.6])
    evaluator = LabelledData.build_evaluator

    def build_evaluator(self: LabelledData, recipe: Any, learner: Any, split: str, report: Any) -> Any:
        measured = evaluator(self, recipe, learner, split, report)
        assert measured is not None
        return lambda: {**measured(), **({"accuracy": next(accuracies, -1.0)} if split == "validation" else {})}

    monkeypatch.setattr(LabelledData, "build_evaluator", build_evaluator)
    return finetune_factory


LOOKS = {"train.steps": 8, "train.evaluate_every": 2, "train.keep_checkpoints": 1}


def test_a_finished_task_is_its_best_checkpoint(scripted_accuracies: FinetuneFactory) -> None:
    scripted_accuracies.learn(LOOKS)
    run = scripted_accuracies.root / "run"
    assert read_pointer(run / "checkpoints", "best") == 4 and read_pointer(run / "checkpoints", "latest") == 8
    best = scripted_accuracies.weights(step=4)
    opened = api.load(run)
    assert opened.loaded_run.step == 4
    assert all(torch.equal(best[name], tensor) for name, tensor in opened.model.state_dict().items())
    facts = json.loads((run / "finished.json").read_bytes())
    assert facts["best_step"] == 4 and facts["judged_by"] == "accuracy"
    samples = [opened.loaded_run.learner.objectives["task"].parse_input(text) for text, _ in sentences(8, 40)]  # type: ignore[attr-defined]  # a task
    golds = [label for _, label in sentences(8, 40)]
    predicted_labels = [prediction["label"] for prediction in opened.predict([text for text, _ in sentences(8, 40)])]
    assert facts["test"]["accuracy"] == pytest.approx(
        sum(a == b for a, b in zip(predicted_labels, golds, strict=True)) / 8
    )
    assert len(predict(opened.loaded_run.learner, samples).predictions) == 8
    assert "Using the checkpoint with the best validation: step 4 of 8" in scripted_accuracies.output.getvalue()


def test_the_last_one_where_that_is_asked_for(scripted_accuracies: FinetuneFactory) -> None:
    scripted_accuracies.learn({**LOOKS, "train.load_best_at_end": False})
    assert api.load(scripted_accuracies.root / "run").loaded_run.step == 8
    assert api.load(scripted_accuracies.root / "run", which="best").loaded_run.step == 4


def test_patience_stops_and_the_best_is_what_is_used(scripted_accuracies: FinetuneFactory) -> None:
    result = scripted_accuracies.learn({**LOOKS, "train.patience": 1})
    assert result.step == 6
    assert api.load(scripted_accuracies.root / "run").loaded_run.step == 4


def test_without_validation_a_task_is_its_last_checkpoint(finetune_factory: FinetuneFactory) -> None:
    finetune_factory.learn({"data.validation": None, "data.held_out": 0.0})
    opened = api.load(finetune_factory.root / "run").loaded_run
    assert opened.step == 6 and not opened.notices


def test_pretraining_ends_with_its_last_checkpoint_unless_set(run_factory: RunFactory) -> None:
    assert not run_factory.recipe("bert").uses_best_checkpoint
    assert run_factory.recipe("bert", "train.patience=2").uses_best_checkpoint
    assert run_factory.recipe("bert", "train.load_best_at_end=true").uses_best_checkpoint
    assert not run_factory.recipe("bert", "train.patience=2", "train.load_best_at_end=false").uses_best_checkpoint


def test_labels_of_heads_are_known_by_name() -> None:
    recipe = api.resolve_task_recipe("classification", {**SMALL, "task.labels": ["b", "a"]})
    assert recipe.head_labels("classification") == ("b", "a") and recipe.head_labels("tagging") == ()
    heads = {"tagging": HeadSettings(kind="tags", sizes={"classes": 2}, labels=("O", "B"))}
    assert replace(recipe, heads=heads).head_labels("tagging") == ("O", "B")


def test_a_head_with_one_number_has_no_labels() -> None:
    recipe = api.resolve_task_recipe("classification", SMALL)
    heads = {"classification": HeadSettings(kind="pooled", sizes={"classes": 1}, labels=("LABEL_0",))}
    assert replace(recipe, task=None, heads=heads).head_labels("classification") == ()


def test_vocabulary_rows_are_not_confused_with_other_rows_of_the_same_number(
    finetune_factory: FinetuneFactory, run_factory: RunFactory
) -> None:
    """A dense layer as wide as there are tokens is no table of words."""
    run_factory.train(
        "train.steps=2", "model.hidden_size=300", "model.heads=2", "tokenizer.vocab_size=300", family="bert", run="bert"
    )
    other = load_run(finetune_factory.root / "bert")
    assert other.tokenizer.vocab_size == 300
    recipe = run_factory.recipe(
        "bert", "model.hidden_size=300", "tokenizer.vocab_size=290", "from=bert", "from.tokenizer=own"
    )
    tokenizer = load_pretraining_data(recipe, None, Console(quiet=True)).tokenizer
    model = build_learner(recipe, tokenizer).model
    start_weights = load_start_weights(model, tokenizer, other)
    before, after = other.learner.model.state_dict(), model.state_dict()
    assert after["heads.nsp.dense.weight"].equal(before["heads.nsp.dense.weight"])
    shared_ids = [
        (n, m)
        for n in range(tokenizer.vocab_size)
        if (m := other.tokenizer.token_to_id(tokenizer.id_to_token(n))) is not None
    ]
    new_ids, old_ids = torch.tensor(shared_ids).unbind(1)
    bias = "heads.mlm.bias"
    assert before[bias].any() and after[bias][new_ids].equal(before[bias][old_ids])
    assert "newly initialized:" not in start_weights and "not used:" not in start_weights
