"""Text classification on every backbone: training, padding, label handling, settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

sys.path.append(str(Path(__file__).parent))

from small import BACKBONES, Small, close, small

from meristem import api
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.evaluation.task_predictions import predict
from meristem.inputs.batch import Row, collate
from meristem.interfaces.sample import Sample
from meristem.learning.build import pad_values
from meristem.objectives.clm import CLMObjective, CLMObjectiveSettings
from meristem.utils.randomness import SampleRng

TEXTS = [
    ("the soup was warm and the room was bright", "good"),
    ("a cold soup", "bad"),
    ("we waited an hour and nobody came to the table", "bad"),
    ("friendly people", "good"),
    ("never again , never", "bad"),
    ("the best bread in town , and a view of the harbour", "good"),
    ("bright and friendly", "good"),
    ("the bread was old and the table cold", "bad"),
]
CAUSAL = ("modern causal", "gpt", "gpt2", "transformer_xl")


def samples(golds: Any = None) -> list[Sample]:
    golds = [label for _, label in TEXTS] if golds is None else golds
    return [
        Sample(inputs={"text": text}, gold=gold, location=f"a.tsv:{number}")
        for number, ((text, _), gold) in enumerate(zip(TEXTS, golds, strict=True), 2)
    ]


def build_task(backbone: str = "bert", golds: Any = None, **task_settings: Any) -> Small:
    return small("classification", samples(golds), backbone, **task_settings)


# ------------------------------------------------------------ every backbone


@pytest.mark.parametrize("backbone", BACKBONES)
def test_it_overfits_a_few_texts(backbone: str) -> None:
    it = build_task(backbone)
    first = it.learn(1)
    assert it.learn(150, until=first / 10) < first / 5
    assert it.score()["accuracy"] == 1.0


@pytest.mark.parametrize("backbone", BACKBONES)
def test_padding_changes_no_prediction(backbone: str) -> None:
    it = build_task(backbone)
    it.learn(3)
    alone = [it.answers([sample])[0] for sample in it.samples]
    assert close(it.answers(), alone)
    assert not close(alone[:1], alone[1:2], 1e-4)  # the answers do differ from text to text


def test_a_frozen_elmo_learns_through_the_task_network() -> None:
    it = build_task("elmo recurrent")
    before = {name: value.clone() for name, value in it.learner.model.backbone.state_dict().items()}
    weights = it.learner.model.heads["mix_again"].state_dict()["shares"].clone()
    it.learn(150, 1e-2, until=0.05, frozen=True)
    assert it.score()["accuracy"] == 1.0
    assert all(torch.equal(before[name], value) for name, value in it.learner.model.backbone.state_dict().items())
    assert not torch.equal(weights, it.learner.model.heads["mix_again"].state_dict()["shares"])


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
def test_every_pooling_learns_and_ignores_padding(pooling: str) -> None:
    it = build_task(pooling=pooling)
    it.learn(100, until=0.05)
    assert it.score()["accuracy"] == 1.0
    assert close(it.answers(), [it.answers([sample])[0] for sample in it.samples])


def test_a_captioner_is_rejected_with_the_families_that_can() -> None:
    overrides = {"model": {"family": "captioner"}, "data.train": "nowhere.tsv"}
    with pytest.raises(RecipeError, match=r"task classification needs .* captioner is .*support it: bert, .*xlnet"):
        api.finetune("classification", overrides, console=Console(quiet=True))


# ------------------------------------------------------------ the words beside the task


@pytest.mark.parametrize("backbone", CAUSAL)
def test_the_language_model_loss_is_the_loss_of_clm_on_the_same_tokens(backbone: str) -> None:
    it = build_task(backbone, lm_weight=0.5)
    batch = it.batch()
    outcome = it.learner("task", batch, {"classification": 1, "lm": 1})
    token_arrays = [
        it.task.template.build_input(*piece.features["texts"]).inputs["tokens"]
        for piece in it.task.encode_samples(it.samples)
    ]
    clm = CLMObjective(CLMObjectiveSettings(), it.tokenizer)
    rows = [
        clm.prepare(Row(inputs={"tokens": tokens}, sample_id=n), SampleRng(0, 0, n))
        for n, tokens in enumerate(token_arrays)
    ]
    theirs = collate(rows, clm, pad_values(it.tokenizer))
    expected = clm.loss(it.learner.model, clm.encode(it.learner.model, theirs), theirs)
    assert batch.target_counts["lm"] == theirs.target_counts["clm"] == sum(len(tokens) - 1 for tokens in token_arrays)
    assert outcome.loss_sums["lm"].item() == pytest.approx(expected.loss_sums["clm"].item(), rel=1e-5)
    assert outcome.loss is not None
    assert outcome.loss.item() == pytest.approx(
        outcome.loss_sums["classification"].item() + 0.5 * outcome.loss_sums["lm"].item(), rel=1e-5
    )


def test_the_language_model_loss_changes_no_answer_and_is_refused_elsewhere() -> None:
    with_words, without = build_task("gpt2", lm_weight=0.5), build_task("gpt2")
    with_words.learner.model.load_state_dict(without.learner.model.state_dict(), strict=False)
    assert close(with_words.answers(), without.answers())
    with pytest.raises(MeristemError, match=r"task\.lm_weight: only causal models"):
        build_task("bert", lm_weight=0.5)


# ------------------------------------------------------------ several labels, numbers, weights


def test_several_labels_are_learned_and_shown() -> None:
    it = build_task(golds=[("a",), ("b",), ("a", "b"), (), ("c",), ("a", "c"), (), ("b", "c")])
    assert it.recipe.task.problem_type == "multiple"
    it.learn(250, 5e-3, until=0.02)
    assert it.score() == {"f1_micro": 1.0, "f1_macro": 1.0, "exact": 1.0}
    answer = it.answers()[2]
    assert [output["label"] for output in it.task.format_output(answer, it.samples[2])] == ["a", "b"]
    assert it.task.format_output(it.answers()[3], it.samples[3]) == []


def test_several_labels_in_one_column() -> None:
    it = build_task(golds=["a", "b", "a, b", "", "c", "a,c", "", "b,c"], problem_type="multiple")
    assert it.recipe.task.labels == ("a", "b", "c")
    assert it.task.metrics.labels.gold(it.samples[2]) == ("a", "b")


def test_regression_in_the_range_of_the_data() -> None:
    golds = ["5.0", "1.5", "1", "4", "0", "5", "4.5", "1"]
    it = build_task(golds=golds)
    assert (it.recipe.task.problem_type, it.recipe.task.target_range) == ("regression", (0.0, 5.0))
    it.learn(150, 5e-3)
    assert it.score()["spearman"] > 0.95
    shown = it.task.format_output(it.answers()[0], it.samples[0])
    assert shown["label"] == "score"
    assert shown["score"] == pytest.approx(5.0, abs=0.5)


def test_balanced_weights_make_all_labels_count_the_same() -> None:
    golds = ["a"] * 6 + ["b"] * 2
    it, plain = build_task(golds=golds, class_weights="balanced"), build_task(golds=golds)
    assert it.recipe.task.class_weights == {"a": 8 / 12, "b": 8 / 4}
    loss_sum = it.learner("task", it.batch(), {"classification": 1}).loss_sums["classification"]
    scores = torch.log_softmax(
        it.task.parts.head.logit_layer.logits(
            it.learner.model, it.task.encode(it.learner.model, it.batch()), it.batch()
        ),
        1,
    )
    each = -scores[torch.arange(8), torch.tensor([0] * 6 + [1] * 2)]
    assert loss_sum.item() == pytest.approx((each[:6].sum() * 8 / 12 + each[6:].sum() * 8 / 4).item(), rel=1e-5)
    measured = predict(it.learner, it.samples).losses["loss"]  # what is measured is measured plainly
    assert measured == pytest.approx(predict(plain.learner, plain.samples).losses["loss"], rel=1e-6)


def test_class_weights_and_dropout_are_those_of_the_models_mode_whether_gradients_are_recorded_or_not() -> None:
    golds = ["a"] * 6 + ["b"] * 2
    it, plain = build_task(golds=golds, class_weights="balanced", dropout=0.5), build_task(golds=golds)

    def loss_of(small: Any, *, training: bool) -> float:
        torch.manual_seed(0)
        outcome = small.learner.train(training)("task", small.batch(), {"classification": 1})
        return outcome.loss_sums["classification"].item()

    evaluated, trained = loss_of(it, training=False), loss_of(it, training=True)
    assert evaluated == loss_of(plain, training=False)
    assert trained != evaluated
    with torch.no_grad():
        assert (loss_of(it, training=False), loss_of(it, training=True)) == (evaluated, trained)


def test_balanced_weights_of_several_labels_weigh_having_one_against_not() -> None:
    it = build_task(golds=[("a",)] * 2 + [("b",)] * 6, class_weights="balanced")
    assert it.recipe.task.class_weights == {"a": 3.0, "b": pytest.approx(1 / 3)}
    batch = it.batch()
    scores = it.task.parts.head.logit_layer.logits(it.learner.model, it.task.encode(it.learner.model, batch), batch)
    values = torch.tensor([[1.0, 0.0]] * 2 + [[0.0, 1.0]] * 6)
    each = F.binary_cross_entropy_with_logits(scores, values, reduction="none")
    weights = torch.where(values.bool(), torch.tensor([3.0, 1 / 3]), torch.tensor(1.0))
    loss_sum = it.learner("task", batch, {"classification": 1}).loss_sums["classification"]
    assert loss_sum.item() == pytest.approx((each * weights).sum().item() / 2, rel=1e-5)


def test_weights_of_unknown_labels_are_reported() -> None:
    with pytest.raises(MeristemError, match=r"task\.class_weights\.god: no such label, did you mean good\?"):
        build_task(class_weights={"god": 2.0})


# ------------------------------------------------------------ what must not happen


def test_labels_missing_from_training_data_are_reported_and_counted_as_wrong() -> None:
    it = build_task()
    others = [
        Sample(inputs={"text": "so so"}, gold="mixed", location="test.tsv:7"),
        Sample(inputs={"text": "so what"}, gold="mixed", location="test.tsv:9"),
        it.samples[0],
    ]
    (warning,) = it.task.metrics.unseen_labels(others)
    assert warning.startswith("test.tsv:7: the label 'mixed' does not occur in the training data; its 2 samples")
    result = predict(it.learner, others)
    assert it.task.metrics.compute(result.predictions, others)["accuracy"] <= 1 / 3
    assert result.losses["loss"] == pytest.approx(predict(it.learner, others[2:]).losses["loss"], rel=1e-5)
    assert "mixed" in it.task.metrics.confusion(result.predictions, others).labels


@pytest.mark.parametrize(("golds", "task_settings", "message"), [
    (["x"] * 8, {}, "every training sample has the label 'x'"),
    (["1.5"] * 7 + ["many"], {"problem_type": "regression"}, r"a\.tsv:9: 'many' is not a number"),
    (["1.5"] * 7 + ["1e308"], {}, r"a\.tsv:9: '1e308' is too large: numbers must be between -1e\+30 and 1e\+30"),
    (["-1e308", "1.5"] * 4, {"problem_type": "regression"}, r"a\.tsv:2: '-1e308' is too large"),
    (["a", "b"] * 4, {"class_weights": {"a": 1e308}}, r"task\.class_weights\.a: 1e\+308 is above 1e\+30"),
    (["a", "b"] * 4, {"labels": ("a", "c")}, r"a\.tsv:3: the label 'b' is not among task\.labels"),
    (["a", ["b"]] * 4, {"problem_type": "single"}, r"a\.tsv:3: \['b'\] is a list of labels"),
    ([()] * 8, {}, "no training sample has any label"),
])  # fmt: skip
def test_invalid_golds_are_reported(golds: Any, task_settings: dict[str, Any], message: str) -> None:
    with pytest.raises(MeristemError, match=message):
        build_task(golds=golds, **task_settings)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_an_empty_text_has_an_answer(backbone: str) -> None:
    it = build_task(backbone)
    empty, blank = (it.task.parse_input(text) for text in ("", " \n"))
    first, second, third = it.answers([empty, it.samples[0], blank])
    assert np.isfinite([first, third]).all()
    assert close([second], it.answers([it.samples[0]]))


@pytest.mark.parametrize("backbone", ["bert", "gpt2", "xlnet", "elmo", "transformer"])
def test_truncated_tokens_are_counted(backbone: str) -> None:
    it = build_task(backbone, max_length=8)
    pieces = it.task.encode_samples(it.samples)
    whole = [len(encoding.ids) for encoding in it.task.template.tokenize([text for text, _ in TEXTS])]
    room = it.task.template.max_text_tokens()
    assert [piece.num_truncated for piece in pieces] == [max(0, size - room) for size in whole]
    assert any(piece.num_truncated for piece in pieces)
    assert it.batch().inputs["tokens"].shape[1] == 8
    long = Sample(inputs={"text": TEXTS[0][0] + " and more" * 50})
    assert len(it.answers([long])) == 1


def test_other_inputs_are_rejected() -> None:
    with pytest.raises(MeristemError, match="task classification takes a text"):
        build_task().task.parse_input({"question": "why?"})


# ------------------------------------------------------------ whole runs


@pytest.mark.parametrize("backbone", ["bert", "elmo"])
def test_an_interrupted_run_resumes_bit_for_bit(backbone: str, tmp_path: Path) -> None:
    file = tmp_path / "train.tsv"
    lines = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in TEXTS * 3)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    own = {key: value for key, value in BACKBONES[backbone].items() if key not in ("tokenizer", "task")}

    def train(out: str, steps: int) -> dict[str, Any]:
        overrides = {
            "model": {"family": backbone, "max_length": 32, "dropout": 0.1, **own},
            "tokenizer": {"kind": BACKBONES[backbone].get("tokenizer", "wordpiece"), "vocab_size": 300},
            "data": {"train": str(file), "held_out": 0.2},
            "train.steps": steps, "train.schedule": "constant", "train.batch_samples": 4, "train.threads": 1,
            "train.evaluate_every": 3, "train.warmup": 0,
        }  # fmt: skip
        api.finetune("classification", overrides, out=tmp_path / out, console=Console(quiet=True))
        checkpoint = load_checkpoint(RunFolder.open(tmp_path / out).checkpoints)
        assert checkpoint is not None
        return {"step": checkpoint.snapshot.step, **checkpoint.snapshot.model}

    whole = train("whole", 7)
    train("parted", 4)
    parted = train("parted", 7)
    assert whole["step"] == parted["step"] == 7
    assert all(torch.equal(value, parted[name]) for name, value in whole.items() if name != "step")
    loaded = api.load(tmp_path / "whole")
    assert loaded.predict(TEXTS[0][0])["label"] in ("good", "bad")
    assert [output["label"] for output in loaded.predict([text for text, _ in TEXTS[:2]])]


# ------------------------------------------------------------ [x; ELMo]


BESIDE = {"network": "recurrent", "network_hidden_size": 24, "word_embedding_size": 12}


def test_a_frozen_elmo_with_trainable_word_embeddings() -> None:
    it = build_task("elmo", **BESIDE)
    before = {name: value.clone() for name, value in it.learner.model.backbone.state_dict().items()}
    own = it.learner.model.heads["word_embedding"].weight.detach().clone()
    assert own.shape == (it.tokenizer.vocab_size, 12)
    assert it.learner.model.heads["network"].recurrent.input_size == 12 + it.learner.model.backbone.hidden_size
    it.learn(150, 1e-2, until=0.05, frozen=True)
    assert it.score()["accuracy"] == 1.0
    assert all(torch.equal(before[name], value) for name, value in it.learner.model.backbone.state_dict().items())
    assert not torch.equal(own, it.learner.model.heads["word_embedding"].weight)


@pytest.mark.parametrize("backbone", ["elmo", "bert", "gpt2", "transformer"])
def test_the_task_network_uses_both_and_padding_changes_nothing(backbone: str) -> None:
    it = build_task(backbone, **BESIDE)
    it.learn(2, 1e-2)
    answers = it.answers()
    assert close(answers, [it.answers([sample])[0] for sample in it.samples])
    with torch.no_grad():
        it.learner.model.heads["word_embedding"].weight.zero_()
    assert not close(answers, it.answers())


def test_word_embeddings_without_a_task_network_are_rejected() -> None:
    with pytest.raises(MeristemError, match=r"task\.network=recurrent"):
        build_task("elmo", word_embedding_size=12)
