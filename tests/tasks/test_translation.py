"""Translation: rows equal those of pretraining on the same pairs; beam search, truncation, metrics."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parent))

from writers import batch_of, finetuned, fresh, overfitted, pairs, recipe_of, written

from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.corpus.document import Document
from meristem.corpus.paired_text import PAIR_SEPARATOR
from meristem.dataset.build import build_dataset
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.views.examples import ExamplesView
from meristem.evaluation.task_predictions import evaluate_predictions, predict
from meristem.generation.generate import generate
from meristem.generation.settings import SamplingSettings
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.objective import OBJECTIVES
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import TASKS
from meristem.learning.learner import Learner, check_task
from meristem.objectives.seq2seq import Seq2SeqObjective
from meristem.utils.randomness import SampleRng

PAIRS = [
    ("the cat sleeps", "die Katze schläft"),
    ("the dog eats an apple in the old garden", "der Hund frisst Obst im Garten"),
    ("birds sing", "Vögel singen"),
    ("my sister reads the old book", "meine Schwester liest das alte Buch"),
    ("we drink tea", "wir trinken Tee"),
    ("the boat is small", "das Boot ist klein"),
]
SAMPLES = pairs(PAIRS)
WAYS = ["transformer", "gpt2"]


@pytest.fixture(scope="module", params=WAYS)
def learner(request: pytest.FixtureRequest) -> Learner:
    return overfitted("translation", request.param, SAMPLES)


def task_of(learner: Learner) -> Any:
    return learner.objectives["task"]


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("length", [64, 8])
def test_rows_are_those_of_pretraining_on_the_same_pairs(length: int, tmp_path: Path) -> None:
    learner = fresh(recipe_of("translation", "bart", SAMPLES, {"task.max_length": length}), SAMPLES)
    task = task_of(learner)
    documents = [Document(f"{source}{PAIR_SEPARATOR}{target}", "test") for source, target in PAIRS]
    store = build_dataset(documents, task.tokenizer, tmp_path / "store", DatasetSettings(), processes=1)
    view = ExamplesView(store.split("train"), task.tokenizer, length)
    objective = Seq2SeqObjective(OBJECTIVES["seq2seq"].Settings(), task.tokenizer)
    batch = batch_of(learner, SAMPLES)
    for number in range(len(view)):
        before = objective.prepare(view.row(number, SampleRng(0, 0, number)), SampleRng(0, 0, number))
        row = task.prepare(_row(task, number), SampleRng(0, 0, number))
        assert set(row.inputs) == set(before.inputs) and set(row.targets) == set(before.targets)
        for name, value in before.inputs.items():
            assert np.array_equal(row.inputs[name], value)
        for name, value in before.targets["seq2seq"].items():
            assert np.array_equal(row.targets["seq2seq"][name], value)
    cut = [piece.num_truncated for piece in task.encode_samples(SAMPLES)]
    assert any(cut) == (length == 8)
    assert batch.target_counts["seq2seq"] == len(batch.targets["seq2seq"]["at"])


def _row(task: Any, number: int, samples: Any = SAMPLES) -> Any:
    from meristem.inputs.batch import Row

    return Row(inputs={}, metadata={"piece": task.encode_samples(samples)[number]})


def test_a_causal_model_has_both_in_one_sequence_and_predicts_only_the_target() -> None:
    task = task_of(fresh(recipe_of("translation", "gpt2", SAMPLES), SAMPLES))
    start, delimiter, extract = (
        task.tokenizer.token_to_id(name) for name in ("<|start|>", "<|delimiter|>", "<|extract|>")
    )
    source, target = (task.tokenizer.encode(text).ids.tolist() for text in PAIRS[0])
    row = task.prepare(_row(task, 0), SampleRng(0, 0, 0))
    assert row.inputs["tokens"].tolist() == [start, *source, delimiter, *target]
    assert row.targets["clm"]["values"].tolist() == [*target, extract]
    assert row.targets["clm"]["at"].tolist() == list(range(len(source) + 1, len(source) + len(target) + 2))
    assert set(row.targets) == {"clm"}


def test_the_language_model_loss_is_the_causal_loss_over_the_sequence() -> None:
    learner = fresh(recipe_of("translation", "gpt2", SAMPLES, {"task.lm_weight": 0.5}), SAMPLES)
    batch = batch_of(learner, SAMPLES)
    task, tokens, present = task_of(learner), batch.inputs["tokens"], batch.inputs["present"]
    assert task.loss_weights == {"clm": 1.0, "lm": 0.5}
    learner.eval()
    with torch.no_grad():
        outcome = learner("task", batch, batch.target_counts)
        logits = learner.model.heads["clm"](learner.model.backbone(tokens=tokens, causal=True).last_hidden_state)
    line = torch.nn.functional.cross_entropy(logits[:, :-1][present[:, 1:]], tokens[:, 1:][present[:, 1:]])
    ends = torch.stack(
        [
            logits[n, int(size) - 1].log_softmax(-1)[task.parts.head.layout.end_id]
            for n, size in enumerate(present.sum(1))
        ]
    )
    whole = float(line) * int(present[:, 1:].sum()) - float(ends.sum())
    assert float(outcome.loss_sums["lm"]) == pytest.approx(whole, rel=1e-5)
    with pytest.raises(MeristemError, match=r"task\.lm_weight: only causal models"):
        fresh(recipe_of("translation", "transformer", SAMPLES, {"task.lm_weight": 0.5}), SAMPLES)


@pytest.mark.parametrize("model", WAYS)
def test_padding_changes_no_loss(model: str) -> None:
    learner = fresh(recipe_of("translation", model, SAMPLES), SAMPLES).eval()
    with torch.no_grad():
        together = predict(learner, SAMPLES, with_predictions=False).losses["loss"]
        counts = [sum(batch_of(learner, [item]).target_counts.values()) for item in SAMPLES]
        each = [predict(learner, [item], with_predictions=False).losses["loss"] for item in SAMPLES]
    assert together == pytest.approx(float(np.dot(each, counts) / sum(counts)), rel=1e-5)


def test_label_smoothing_is_used_in_training_only() -> None:
    learner = fresh(recipe_of("translation", "transformer", SAMPLES, {"task.label_smoothing": 0.3}), SAMPLES)
    plain = fresh(recipe_of("translation", "transformer", SAMPLES), SAMPLES)
    batch = batch_of(learner, SAMPLES)
    with torch.no_grad():
        for parameter, other in zip(learner.parameters(), plain.parameters(), strict=True):
            other.copy_(parameter.add_(torch.randn_like(parameter) * 0.3))
        measured = [float(item.eval()("task", batch, batch.target_counts).loss) for item in (learner, plain)]
    taught = [item.train()("task", batch, batch.target_counts).loss.item() for item in (learner, plain)]
    assert measured[0] == measured[1] == pytest.approx(taught[1], rel=1e-5)
    assert abs(taught[0] - taught[1]) > 1e-3


def test_no_segment_memory_is_carried_between_batches() -> None:
    learner = fresh(recipe_of("translation", "transformer_xl", SAMPLES), SAMPLES)
    batch = batch_of(learner, SAMPLES)
    assert learner("task", batch, batch.target_counts).state == {}


def test_batches_group_similar_lengths() -> None:
    task = task_of(fresh(recipe_of("translation", "transformer", SAMPLES), SAMPLES))
    for piece in task.encode_samples(SAMPLES):
        row = task.prepare(_row(task, piece.sample_index), SampleRng(0, 0, 0))
        assert piece.num_tokens == max(len(row.inputs["source"]), len(row.inputs["tokens"]))


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("model", ["bart", "t5", "rnn", "transformer_xl", "modern"])
def test_it_overfits_a_few_pairs_and_generates_them(model: str) -> None:
    learner = overfitted("translation", model, SAMPLES)
    assert written(learner, SAMPLES) == [target for _, target in PAIRS]


def test_generation_does_not_depend_on_the_batch(learner: Learner) -> None:
    texts = [target for _, target in PAIRS]
    assert written(learner, SAMPLES) == texts
    assert written(learner, SAMPLES[::-1]) == texts[::-1]
    assert [written(learner, [item])[0] for item in SAMPLES] == texts
    new = pairs([("the cat eats the small book", ""), ("we", ""), ("the old dog", "")])
    together, apart = written(learner, new), [written(learner, [item])[0] for item in new]
    assert together == apart == written(learner, new)


def test_all_beams_are_ranked(learner: Learner) -> None:
    task = task_of(learner)
    (answer,) = predict(learner, SAMPLES[:1]).predictions
    assert task.format_output(answer, SAMPLES[0]) == {"translation_text": PAIRS[0][1]}
    ranked = task.format_top_outputs(answer, SAMPLES[0], 5)
    assert len(ranked) == 3 and ranked[0]["translation_text"] == PAIRS[0][1]
    assert 0.5 < answer.confidence <= 1.0
    each = [item / tokens for item, tokens in zip(answer.logprobs, answer.tokens, strict=True)]
    assert each == sorted(each, reverse=True)


def test_one_beam_is_greedy_decoding() -> None:
    learner = overfitted("translation", "transformer", SAMPLES, {"task.beams": 1})
    texts = generate(
        learner.model, task_of(learner).tokenizer, [s for s, _ in PAIRS], SamplingSettings(greedy=True, max_tokens=30)
    )
    assert written(learner, SAMPLES) == [some[0].text.strip() for some in texts] == [target for _, target in PAIRS]


def test_an_empty_source_has_a_prediction(learner: Learner) -> None:
    task = task_of(learner)
    (answer,) = predict(learner, [task.parse_input("")]).predictions
    assert isinstance(answer.text, str)
    assert task.encode_samples([task.parse_input("")])[0].num_truncated == 0


def test_a_source_longer_than_the_model_is_truncated_and_counted(learner: Learner) -> None:
    task = task_of(learner)
    long = pairs([("the cat sleeps " * 40, "die Katze"), *PAIRS[:1], ("the cat", "die Katze schläft " * 40)])
    first, second, third = (piece.num_truncated for piece in task.encode_samples(long))
    room = (
        task.parts.head.layout.max_target_tokens
        if task.parts.head.layout.end_id is not None
        else task.settings.max_length
    )
    assert (
        first == len(task.tokenizer.encode(long[0].inputs["source"]).ids) - task.parts.head.layout.max_source_tokens > 0
    )
    assert second == 0
    assert third == len(task.tokenizer.encode(long[2].gold[0]).ids) - room > 0
    length = task.settings.max_length
    for piece in task.encode_samples(long):
        start = task.parts.head.layout.generation_inputs(piece)
        row = task.prepare(_row(task, piece.sample_index, long), SampleRng(0, 0, 0))
        assert all(len(value) <= length for value in row.inputs.values())
        assert len(start.prompt_ids) + task.parts.head.sampling.max_tokens <= length + 1 and all(
            len(v) <= length for v in start.inputs.values()
        )
    assert all(isinstance(text, str) for text in written(learner, long))


@pytest.mark.parametrize("model", WAYS)
def test_chinese(model: str) -> None:
    samples = pairs(
        [("the old tree", "那棵老树。"), ("she sells boats", "她卖船。"), ("seventeen letters", "十七封信。")]
    )
    learner = overfitted("translation", model, samples)
    assert written(learner, samples) == [item.gold[0] for item in samples]
    evaluation = evaluate_predictions(task_of(learner), predict(learner, samples).predictions, samples)
    assert evaluation.metrics == {"bleu": pytest.approx(100.0), "chrf": pytest.approx(100.0)}
    assert "tok:zh" in evaluation.signature


# ---------------------------------------------------------------- numbers


def test_all_references_are_scored(learner: Learner) -> None:
    golds = [
        ("etwas anderes und mehr", target, "noch etwas") if n % 2 else (target,) for n, (_, target) in enumerate(PAIRS)
    ]
    samples = [
        Sample(inputs=item.inputs, gold=gold, location=item.location) for item, gold in zip(SAMPLES, golds, strict=True)
    ]
    answers = predict(learner, SAMPLES).predictions
    evaluation = evaluate_predictions(task_of(learner), answers, samples)
    assert evaluation.metrics["bleu"] == pytest.approx(100.0) and not evaluation.mistakes
    assert evaluation.intervals["bleu"] == pytest.approx((100.0, 100.0))
    assert "BLEU" in evaluation.signature and "tok:13a" in evaluation.signature
    wrong = evaluate_predictions(task_of(learner), answers[::-1], samples)
    assert wrong.metrics["bleu"] < 50
    assert [item.confidence for item in wrong.mistakes] == sorted(
        (item.confidence for item in wrong.mistakes), reverse=True
    )
    assert wrong.mistakes[0].location.startswith("pairs.tsv:") and wrong.mistakes[0].prediction


def test_the_first_gold_is_trained_on() -> None:
    samples = [Sample(inputs={"source": "tea"}, gold=("Tee", "Kaffee"), location="x:1")]
    task = task_of(fresh(recipe_of("translation", "transformer", samples), samples))
    assert task.tokenizer.decode(task.encode_samples(samples)[0].features["target"]) == "Tee"


# ---------------------------------------------------------------- runs and refusals


@pytest.mark.parametrize("model", WAYS)
def test_an_interrupted_run_resumes_bit_for_bit(model: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join(["source\ttarget", *("\t".join(pair) for pair in PAIRS * 2)]) + "\n", encoding="utf-8")

    def weights(out: str, steps: int) -> dict[str, torch.Tensor]:
        settings = {"train.steps": steps, "train.batch_samples": 4, "model.dropout": 0.1, "data.held_out": 0.2}
        finetuned("translation", model, file, tmp_path / out, settings)
        checkpoint = load_checkpoint(RunFolder.open(tmp_path / out).checkpoints)
        assert checkpoint is not None and checkpoint.snapshot.step == steps
        return dict(checkpoint.snapshot.model)

    whole = weights("whole", 5)
    weights("parted", 3)
    parted = weights("parted", 5)
    assert all(torch.equal(value, parted[name]) for name, value in whole.items())


def test_a_family_that_cannot_generate_is_rejected_naming_those_that_can() -> None:
    task = TASKS["translation"]
    for family in ("bert", "elmo", "captioner", "xlnet"):
        with pytest.raises(RecipeError, match=r"Families that support it: .*gpt2.*rnn.*transformer"):
            check_task(task, MODEL_FAMILIES[family], family)


def test_input_formats() -> None:
    task = task_of(fresh(recipe_of("translation", "transformer", SAMPLES), SAMPLES))
    assert (
        task.parse_input("tea").inputs
        == task.parse_input({"source": "tea"}).inputs
        == task.parse_input({"text": "tea"}).inputs
    )
    with pytest.raises(MeristemError, match=r"translation takes one text"):
        task.parse_input({"question": "?"})


def test_a_length_without_space_for_text_is_rejected() -> None:
    with pytest.raises(MeristemError, match=r"task\.max_length: 4 leaves no room"):
        fresh(recipe_of("translation", "gpt2", SAMPLES, {"task.max_length": 4}), SAMPLES)
