"""Classification on every backbone: it learns, padding changes nothing, and its settings do what they say."""

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
from meristem.batch import Row, collate
from meristem.checkpoint.load import load
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError, RecipeError
from meristem.evaluation.answering import answer
from meristem.learning.assemble import fill_of
from meristem.objectives.clm import CLM, CLMSettings
from meristem.randomness import Draw
from meristem.task import Sample

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
        Sample(given={"text": text}, gold=gold, place=f"a.tsv:{number}")
        for number, ((text, _), gold) in enumerate(zip(TEXTS, golds, strict=True), 2)
    ]


def made(backbone: str = "bert", golds: Any = None, **told: Any) -> Small:
    return small("classification", samples(golds), backbone, **told)


# ------------------------------------------------------------ every backbone


@pytest.mark.parametrize("backbone", BACKBONES)
def test_it_learns_a_few_texts_by_heart(backbone: str) -> None:
    it = made(backbone)
    first = it.learn(1)
    assert it.learn(150, until=first / 10) < first / 5
    assert it.score()["accuracy"] == 1.0


@pytest.mark.parametrize("backbone", BACKBONES)
def test_padding_changes_no_answer(backbone: str) -> None:
    it = made(backbone)
    it.learn(3)
    alone = [it.answers([sample])[0] for sample in it.samples]
    assert close(it.answers(), alone)
    assert not close(alone[:1], alone[1:2], 1e-4)  # the answers do differ from text to text


def test_a_frozen_elmo_learns_through_the_tasks_own_net() -> None:
    it = made("elmo recurrent")
    before = {name: value.clone() for name, value in it.learner.model.backbone.state_dict().items()}
    weights = it.learner.model.heads["mix_again"].state_dict()["shares"].clone()
    it.learn(150, 1e-2, until=0.05, frozen=True)
    assert it.score()["accuracy"] == 1.0
    assert all(torch.equal(before[name], value) for name, value in it.learner.model.backbone.state_dict().items())
    assert not torch.equal(weights, it.learner.model.heads["mix_again"].state_dict()["shares"])


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
def test_every_pooling_learns_and_ignores_padding(pooling: str) -> None:
    it = made(pooling=pooling)
    it.learn(100, until=0.05)
    assert it.score()["accuracy"] == 1.0
    assert close(it.answers(), [it.answers([sample])[0] for sample in it.samples])


def test_a_captioner_is_refused_with_the_families_that_can() -> None:
    overrides = {"model": {"family": "captioner"}, "data.train": "nowhere.tsv"}
    with pytest.raises(RecipeError, match=r"task classification needs .* captioner is .*carry it: bert, .*xlnet"):
        api.finetune("classification", overrides, console=Console(quiet=True))


# ------------------------------------------------------------ the words beside the task


@pytest.mark.parametrize("backbone", CAUSAL)
def test_the_language_models_term_is_the_loss_of_clm_on_the_same_tokens(backbone: str) -> None:
    it = made(backbone, lm=0.5)
    batch = it.batch()
    outcome = it.learner("task", batch, {"classification": 1, "lm": 1})
    framed = [it.task.reader.frame(piece.parts["text"]).inputs["tokens"] for piece in it.task.pieces(it.samples)]
    clm = CLM(CLMSettings(), it.tokenizer)
    rows = [clm.prepare(Row(inputs={"tokens": tokens}, sample=n), Draw(0, 0, n)) for n, tokens in enumerate(framed)]
    theirs = collate(rows, clm, fill_of(it.tokenizer))
    expected = clm.loss(it.learner.model, clm.encode(it.learner.model, theirs), theirs)
    assert batch.counts["lm"] == theirs.counts["clm"] == sum(len(tokens) - 1 for tokens in framed)
    assert outcome.sums["lm"].item() == pytest.approx(expected.sums["clm"].item(), rel=1e-5)
    assert outcome.loss is not None
    assert outcome.loss.item() == pytest.approx(
        outcome.sums["classification"].item() + 0.5 * outcome.sums["lm"].item(), rel=1e-5
    )


def test_the_language_models_term_changes_no_answer_and_is_refused_elsewhere() -> None:
    with_words, without = made("gpt2", lm=0.5), made("gpt2")
    with_words.learner.model.load_state_dict(without.learner.model.state_dict(), strict=False)
    assert close(with_words.answers(), without.answers())
    with pytest.raises(MeristemError, match=r"task\.lm: only causal models"):
        made("bert", lm=0.5)


# ------------------------------------------------------------ several labels, numbers, weights


def test_several_labels_are_learned_and_shown() -> None:
    it = made(golds=[("a",), ("b",), ("a", "b"), (), ("c",), ("a", "c"), (), ("b", "c")])
    assert it.recipe.task.problem == "multiple"
    it.learn(250, 5e-3, until=0.02)
    assert it.score() == {"f1_micro": 1.0, "f1_macro": 1.0, "exact": 1.0}
    answer = it.answers()[2]
    assert [one["label"] for one in it.task.shown(answer, it.samples[2])] == ["a", "b"]
    assert it.task.shown(it.answers()[3], it.samples[3]) == []


def test_several_labels_may_stand_in_one_column() -> None:
    it = made(golds=["a", "b", "a, b", "", "c", "a,c", "", "b,c"], problem="multiple")
    assert it.recipe.task.labels == ("a", "b", "c")
    assert it.task.right(it.samples[2]) == ("a", "b")


def test_numbers_are_learned_in_their_own_range() -> None:
    golds = ["5.0", "1.5", "1", "4", "0", "5", "4.5", "1"]
    it = made(golds=golds)
    assert (it.recipe.task.problem, it.recipe.task.range) == ("regression", (0.0, 5.0))
    it.learn(150, 5e-3)
    assert it.score()["spearman"] > 0.95
    shown = it.task.shown(it.answers()[0], it.samples[0])
    assert shown["label"] == "score"
    assert shown["score"] == pytest.approx(5.0, abs=0.5)


def test_balanced_weights_make_all_labels_count_the_same() -> None:
    golds = ["a"] * 6 + ["b"] * 2
    it, plain = made(golds=golds, class_weights="balanced"), made(golds=golds)
    assert it.recipe.task.class_weights == {"a": 8 / 12, "b": 8 / 4}
    found = it.learner("task", it.batch(), {"classification": 1}).sums["classification"]
    scores = torch.log_softmax(
        it.task.scores(it.learner.model, it.task.encode(it.learner.model, it.batch()), it.batch()), 1
    )
    each = -scores[torch.arange(8), torch.tensor([0] * 6 + [1] * 2)]
    assert found.item() == pytest.approx((each[:6].sum() * 8 / 12 + each[6:].sum() * 8 / 4).item(), rel=1e-5)
    measured = answer(it.learner, it.samples).losses["loss"]  # what is measured is measured plainly
    assert measured == pytest.approx(answer(plain.learner, plain.samples).losses["loss"], rel=1e-6)


def test_balanced_weights_of_several_labels_weigh_having_one_against_not() -> None:
    it = made(golds=[("a",)] * 2 + [("b",)] * 6, class_weights="balanced")
    assert it.recipe.task.class_weights == {"a": 3.0, "b": pytest.approx(1 / 3)}
    batch = it.batch()
    scores = it.task.scores(it.learner.model, it.task.encode(it.learner.model, batch), batch)
    values = torch.tensor([[1.0, 0.0]] * 2 + [[0.0, 1.0]] * 6)
    each = F.binary_cross_entropy_with_logits(scores, values, reduction="none")
    weights = torch.where(values.bool(), torch.tensor([3.0, 1 / 3]), torch.tensor(1.0))
    found = it.learner("task", batch, {"classification": 1}).sums["classification"]
    assert found.item() == pytest.approx((each * weights).sum().item() / 2, rel=1e-5)


def test_weights_of_unknown_labels_are_named() -> None:
    with pytest.raises(MeristemError, match=r"task\.class_weights\.god: no such label, did you mean good\?"):
        made(class_weights={"god": 2.0})


# ------------------------------------------------------------ what must not happen


def test_labels_that_training_data_lack_are_named_and_counted_as_wrong() -> None:
    it = made()
    others = [
        Sample(given={"text": "so so"}, gold="mixed", place="test.tsv:7"),
        Sample(given={"text": "so what"}, gold="mixed", place="test.tsv:9"),
        it.samples[0],
    ]
    (said,) = it.task.strange(others)
    assert said.startswith("test.tsv:7: the label 'mixed' does not occur in training data; 2 samples")
    found = answer(it.learner, others)
    assert it.task.score(found.answers, others)["accuracy"] <= 1 / 3
    assert found.losses["loss"] == pytest.approx(answer(it.learner, others[2:]).losses["loss"], rel=1e-5)
    assert "mixed" in it.task.confusion(found.answers, others).labels


@pytest.mark.parametrize(("golds", "told", "message"), [
    (["x"] * 8, {}, "every training sample has the label 'x'"),
    (["1.5"] * 7 + ["many"], {"problem": "regression"}, r"a\.tsv:9: 'many' is not a number"),
    (["1.5"] * 7 + ["1e308"], {}, r"a\.tsv:9: '1e308' is too large to learn: numbers reach from -1e\+30 to 1e\+30"),
    (["-1e308", "1.5"] * 4, {"problem": "regression"}, r"a\.tsv:2: '-1e308' is too large to learn"),
    (["a", "b"] * 4, {"class_weights": {"a": 1e308}}, r"task\.class_weights\.a: 1e\+308 is above 1e\+30"),
    (["a", "b"] * 4, {"labels": ("a", "c")}, r"a\.tsv:3: the label 'b' is not among task\.labels"),
    (["a", ["b"]] * 4, {"problem": "single"}, r"a\.tsv:3: \['b'\] is a list of labels"),
    ([()] * 8, {}, "no training sample has any label"),
])  # fmt: skip
def test_golds_that_cannot_be_learned_are_named(golds: Any, told: dict[str, Any], message: str) -> None:
    with pytest.raises(MeristemError, match=message):
        made(golds=golds, **told)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_an_empty_text_has_an_answer(backbone: str) -> None:
    it = made(backbone)
    empty, blank = (it.task.asked(text) for text in ("", " \n"))
    first, second, third = it.answers([empty, it.samples[0], blank])
    assert np.isfinite([first, third]).all()
    assert close([second], it.answers([it.samples[0]]))


@pytest.mark.parametrize("backbone", ["bert", "gpt2", "xlnet", "elmo", "transformer"])
def test_what_does_not_fit_is_cut_and_counted(backbone: str) -> None:
    it = made(backbone, length=8)
    pieces = it.task.pieces(it.samples)
    whole = [len(found.ids) for found in it.task.reader.encode([text for text, _ in TEXTS])]
    room = it.task.reader.room()
    assert [piece.cut for piece in pieces] == [max(0, size - room) for size in whole]
    assert any(piece.cut for piece in pieces)
    assert it.batch().inputs["tokens"].shape[1] == 8
    long = Sample(given={"text": TEXTS[0][0] + " and more" * 50})
    assert len(it.answers([long])) == 1


def test_parts_it_does_not_read_are_refused() -> None:
    with pytest.raises(MeristemError, match="task classification reads a text"):
        made().task.asked({"question": "why?"})


# ------------------------------------------------------------ whole runs


@pytest.mark.parametrize("backbone", ["bert", "elmo"])
def test_a_run_that_was_interrupted_ends_bit_for_bit_like_one_that_was_not(backbone: str, tmp_path: Path) -> None:
    file = tmp_path / "train.tsv"
    lines = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in TEXTS * 3)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    own = {key: value for key, value in BACKBONES[backbone].items() if key not in ("tokenizer", "task")}

    def train(out: str, steps: int) -> dict[str, Any]:
        overrides = {
            "model": {"family": backbone, "length": 32, "dropout": 0.1, **own},
            "tokenizer": {"kind": BACKBONES[backbone].get("tokenizer", "wordpiece"), "size": 300},
            "data": {"train": str(file), "held_out": 0.2},
            "train.steps": steps, "train.schedule": "constant", "train.batch_samples": 4, "train.threads": 1,
            "train.evaluate_every": 3, "train.warmup": 0,
        }  # fmt: skip
        api.finetune("classification", overrides, out=tmp_path / out, console=Console(quiet=True))
        found = load(Run.open(tmp_path / out).checkpoints)
        assert found is not None
        return {"step": found.snapshot.step, **found.snapshot.model}

    whole = train("whole", 7)
    train("parted", 4)
    parted = train("parted", 7)
    assert whole["step"] == parted["step"] == 7
    assert all(torch.equal(value, parted[name]) for name, value in whole.items() if name != "step")
    loaded = api.load(tmp_path / "whole")
    assert loaded.predict(TEXTS[0][0])["label"] in ("good", "bad")
    assert [one["label"] for one in loaded.predict([text for text, _ in TEXTS[:2]])]


# ------------------------------------------------------------ [x; ELMo]


BESIDE = {"network": "recurrent", "network_width": 24, "word_embedding_size": 12}


def test_a_frozen_elmo_is_read_beside_embeddings_that_learn() -> None:
    it = made("elmo", **BESIDE)
    before = {name: value.clone() for name, value in it.learner.model.backbone.state_dict().items()}
    own = it.learner.model.heads["word_embedding"].weight.detach().clone()
    assert own.shape == (it.tokenizer.size, 12)
    assert it.learner.model.heads["network"].recurrent.input_size == 12 + it.learner.model.backbone.width
    it.learn(150, 1e-2, until=0.05, frozen=True)
    assert it.score()["accuracy"] == 1.0
    assert all(torch.equal(before[name], value) for name, value in it.learner.model.backbone.state_dict().items())
    assert not torch.equal(own, it.learner.model.heads["word_embedding"].weight)


@pytest.mark.parametrize("backbone", ["elmo", "bert", "gpt2", "transformer"])
def test_the_net_reads_both_and_padding_changes_nothing(backbone: str) -> None:
    it = made(backbone, **BESIDE)
    it.learn(2, 1e-2)
    answers = it.answers()
    assert close(answers, [it.answers([sample])[0] for sample in it.samples])
    with torch.no_grad():
        it.learner.model.heads["word_embedding"].weight.zero_()
    assert not close(answers, it.answers())


def test_embeddings_without_a_net_are_refused() -> None:
    with pytest.raises(MeristemError, match=r"task\.network=recurrent"):
        made("elmo", word_embedding_size=12)
