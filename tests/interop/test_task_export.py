"""Task runs exported with their head: the same predictions in transformers' pipelines, and after importing again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers_models import opened, run_card, scatter

import meristem
from meristem.api import LoadedModel, load
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.interfaces.task import TASKS
from meristem.interop.import_weights import write_run
from meristem.learning.build import build_learner
from meristem.tokenizers.train import train_tokenizer

SHAPE = {"layers": 2, "hidden_size": 32, "heads": 2, "max_length": 40}
BART = {"norm_position": "post", "position_encoding": "learned", "embedding_norm": True, "activation": "gelu",
        "scale_embeddings": False}  # fmt: skip
T5 = {"norm_position": "pre", "norm": "rms", "norm_epsilon": 1e-6, "bias": False, "position_encoding": "none",
      "relative_buckets": 32, "activation": "geglu", "ffn_size": 48, "scale_embeddings": False,
      "scale_attention": False}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"family": "bert", "way": "bidirectional", "kind": "wordpiece"},
    "roberta": {"family": "roberta", "way": "bidirectional", "kind": "bpe"},
    "electra": {"family": "electra", "way": "bidirectional", "kind": "wordpiece"},
    "xlnet": {"family": "xlnet", "way": "bidirectional", "kind": "unigram"},
    "gpt2": {"family": "gpt2", "way": "causal", "kind": "bpe"},
    "gpt": {"family": "gpt", "way": "causal", "kind": "bpe"},
    "modern": {"family": "modern", "way": "causal", "kind": "bpe"},
    "mistral": {"family": "modern", "way": "causal", "kind": "bpe", "model": {"attention_window": 16}},
    "t5": {"family": "transformer", "way": "encoder_decoder", "kind": "bpe", "model": T5, "sentinels": 16},
    "bart": {"family": "transformer", "way": "encoder_decoder", "kind": "bpe", "model": BART},
}
LINES = [f"Ada walked from the old harbour of Port{n} to a garden, and it rained on {n} boats." for n in range(60)]
TEXTS = ["The old garden.", "Ada walked to the harbour, and it rained and rained.", "boats", "naïve 😀 boats of Port9"]
SINGLE = {"labels": ["bad", "fair", "good"], "problem_type": "single"}
TAGS = {"labels": ["O", "B-person", "I-person", "B-place", "I-place"]}


def train_run(out: Path, name: str, task: str, kind: str | None = None, **task_overrides: Any) -> Path:
    """A run as fine-tuning leaves it, with random weights everywhere."""
    case = FAMILIES[name] | ({"kind": kind} if kind else {})
    settings = {"name": task, "backbone_mode": case["way"], "max_length": SHAPE["max_length"], **task_overrides}
    model = {"family": case["family"], **SHAPE, **case.get("model", {})}
    pieces = {"kind": case["kind"], "vocab_size": 700, "sentinels": case.get("sentinels", 0)}
    recipe = resolve_recipe(
        "run", {"task": settings, "data": {"train": "none.tsv"}, "model": model, "tokenizer": pieces}
    )
    words = TASKS[task].extend_tokenizer(recipe.task, train_tokenizer(recipe.tokenizer, LINES + TEXTS))
    learner = build_learner(recipe, words)
    scatter(learner.model)
    return write_run(out, recipe, words, dict(learner.model.state_dict()), {}).path


def exported(run: Path, **options: Any) -> Path:
    """The folder that it leaves as."""
    folder = run.with_name(f"{run.name}-exported")
    meristem.export(run, folder, **options)
    return folder


def imported(folder: Path) -> LoadedModel:
    """The folder as a run again."""
    run = folder.with_name(f"{folder.name}-imported")
    meristem.import_folder(folder, run)
    return load(run)


def alike(ours: Any, theirs: Any) -> None:
    """The same answers, scores within 1e-4."""
    assert len(ours) == len(theirs)
    for prediction, other in zip(ours, theirs, strict=True):
        if isinstance(prediction, Mapping):
            assert {**prediction, "score": 0} == {**other, "score": 0}
            assert prediction["score"] == pytest.approx(float(other["score"]), abs=1e-4)
        else:
            alike(prediction, other)


# ------------------------------------------------------------ labels


@pytest.mark.parametrize("name", FAMILIES)
def test_a_classifier_answers_the_same_there_and_back_again(name: str, tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", name, "classification", **SINGLE)
    ours = load(run).predict(TEXTS, top=3)
    assert len({prediction[0]["label"] + f"{prediction[0]['score']:.3f}" for prediction in ours}) > 1, (
        "every text gets the same answer"
    )
    folder = exported(run)
    pipeline = transformers.pipeline("text-classification", model=str(folder))
    alike(ours, pipeline(TEXTS, top_k=None))
    alike(ours, pipeline(TEXTS, top_k=None, batch_size=len(TEXTS)))
    reimported = imported(folder)
    assert list(reimported.tasks) == ["classification"]
    alike(ours, reimported.predict(TEXTS, top=3))


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "bart", "xlnet"])
def test_a_pair_leaves_as_a_classifier(name: str, tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", name, "pair", **SINGLE)
    pairs = [{"text": text, "text_b": other} for text, other in zip(TEXTS, TEXTS[::-1], strict=True)]
    ours = load(run).predict(pairs)
    folder = exported(run)
    assert json.loads((folder / "config.json").read_text())["id2label"] == {"0": "bad", "1": "fair", "2": "good"}
    theirs = transformers.pipeline("text-classification", model=str(folder))
    alike(ours, [theirs({"text": pair["text"], "text_pair": pair["text_b"]}) for pair in pairs])
    reimported = imported(folder)
    assert list(reimported.tasks) == ["pair"]
    alike(ours, reimported.predict(pairs))
    meristem.export(folder.with_name(f"{folder.name}-imported"), tmp_path / "twice")
    files = ("config.json", "model.safetensors", "tokenizer.json")
    assert all((tmp_path / "twice" / name).read_bytes() == (folder / name).read_bytes() for name in files)


@pytest.mark.parametrize(("task", "classes"), [("classification", SINGLE), ("tagging", TAGS)])
@pytest.mark.parametrize("options", [{}, {"onnx": True}])
def test_counted_ngrams_are_refused_by_name(
    task: str, classes: dict[str, Any], options: dict[str, bool], tmp_path: Path
) -> None:
    run = train_run(tmp_path / "run", "bert", task, ngram_buckets=1024, **classes)
    assert load(run).predict(TEXTS)
    with pytest.raises(MeristemError, match="n-grams"):
        exported(run, **options)


@pytest.mark.parametrize("settings", [{"pooling": "mean"}, {"scalar_mix": True}])
def test_a_graph_whose_logits_would_differ_is_refused_by_name(settings: dict[str, Any], tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", "bert", "classification", **SINGLE, **settings)
    with pytest.raises(MeristemError, match=rf"no graph computes .*task\.{next(iter(settings))}"):
        exported(run, onnx=True)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_several_labels_and_numbers_keep_their_meaning(name: str, tmp_path: Path) -> None:
    multi_label_run = train_run(
        tmp_path / "several", name, "classification", labels=["a", "b", "c"], problem_type="multiple"
    )
    theirs = transformers.pipeline("text-classification", model=str(exported(multi_label_run)), top_k=None)
    alike(load(multi_label_run).predict(TEXTS, top=3), theirs(TEXTS))
    number = train_run(tmp_path / "number", name, "classification", problem_type="regression", target_range=(0.0, 5.0))
    folder = exported(number)
    pipeline = transformers.pipeline("text-classification", model=str(folder))
    ours = [prediction["score"] for prediction in load(number).predict(TEXTS)]
    assert ours == pytest.approx([prediction["score"] for prediction in pipeline(TEXTS)], abs=1e-4)
    assert ours == pytest.approx([prediction["score"] for prediction in imported(folder).predict(TEXTS)], abs=1e-4)


def test_a_range_that_begins_elsewhere_is_in_the_bias_or_is_said(tmp_path: Path) -> None:
    with_bias = train_run(
        tmp_path / "bert", "bert", "classification", problem_type="regression", target_range=(1.0, 5.0)
    )
    pipeline = transformers.pipeline("text-classification", model=str(exported(with_bias)))
    alike([{**prediction, "label": "LABEL_0"} for prediction in load(with_bias).predict(TEXTS)], pipeline(TEXTS))
    without = train_run(tmp_path / "gpt2", "gpt2", "classification", problem_type="regression", target_range=(1.0, 5.0))
    assert "add 1 to its output" in meristem.export(without, tmp_path / "out").summary()


# ------------------------------------------------------------ words, spans, choices


@pytest.mark.parametrize(("name", "kind", "strategy"), [
    ("bert", "words", "simple"), ("bert", "wordpiece", "first"), ("electra", "wordpiece", "first"),
])  # fmt: skip
def test_a_tagger_finds_the_same_entities(name: str, kind: str, strategy: str, tmp_path: Path) -> None:
    """`first` reads a word at its first piece, as we do; `simple` is the same where words are whole pieces."""
    run = train_run(tmp_path / "run", name, "tagging", kind, **TAGS)
    folder = exported(run)
    ours = load(run).predict(LINES[:6])
    assert any(ours)
    for text, entities in zip(LINES[:6], ours, strict=True):
        assert all(text[entity["start"] : entity["end"]] == entity["word"] for entity in entities)
    pipeline = transformers.pipeline("token-classification", model=str(folder), aggregation_strategy=strategy)
    theirs = [
        [{**entity, "word": text[entity["start"] : entity["end"]]} for entity in pipeline(text)] for text in LINES[:6]
    ]
    alike(ours, theirs)
    alike(ours, imported(folder).predict(LINES[:6]))


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "gpt2"])
def test_every_word_has_the_tag_that_their_token_has(name: str, tmp_path: Path) -> None:
    """Pieces that begin with a space are words by a guess there, so words are looked up by where they stand."""
    run = train_run(tmp_path / "run", name, "tagging", labels=["A", "B", "C"])
    pipeline = transformers.pipeline("token-classification", model=str(exported(run)), ignore_labels=[])
    predictions = load(run).predict(LINES[:4])
    for text, words in zip(LINES[:4], predictions, strict=True):
        tokens = [entity for entity in pipeline(text) if text[entity["start"] : entity["end"]].strip()]
        for word in words:
            token = next(token for token in tokens if token["start"] <= word["start"] < token["end"])
            assert token["entity"] == word["entity"]
            assert word["score"] == pytest.approx(float(token["score"]), abs=1e-4)
    assert len({f"{word['score']:.3f}" for words in predictions for word in words}) > 9


QUESTIONS = [{"question": "Where did it rain?", "passage": line} for line in LINES[:6]]


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "xlnet", "gpt2", "modern", "mistral", "bart", "t5"])
def test_spans_are_scored_the_same(name: str, tmp_path: Path) -> None:
    """transformers 5 has no pipeline for questions any more: its model's own scores must choose our answer."""
    run = train_run(tmp_path / "run", name, "span")
    ours, folder = load(run).predict(QUESTIONS), exported(run)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    for question, prediction in zip(QUESTIONS, ours, strict=True):
        inputs = words(question["question"], question["passage"], return_tensors="pt", return_offsets_mapping=True)
        offsets, sides = inputs.pop("offset_mapping")[0].tolist(), np.array(inputs.sequence_ids(0)) == 1
        with torch.inference_mode():
            scores = model(**inputs)
        inside = np.flatnonzero(sides)
        sums = (scores.start_logits[0, inside, None] + scores.end_logits[0, None, inside]).numpy()
        limit = np.triu(np.ones_like(sums)) - np.triu(np.ones_like(sums), load(run).task().settings.max_answer_length)
        first, last = np.unravel_index(np.where(limit > 0, sums, -np.inf).argmax(), sums.shape)
        answer = question["passage"][offsets[inside[first]][0] : offsets[inside[last]][1]].strip()
        assert prediction["answer"] in ("", answer)
    assert any(span_prediction["answer"] for span_prediction in ours)
    best = load(run).predict(QUESTIONS[0], top=3)
    assert len(best) == 3 and best[0]["answer"] == ours[0]["answer"] and best[0]["score"] >= best[1]["score"]
    alike(ours, imported(folder).predict(QUESTIONS))


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "xlnet"])
def test_choices_are_scored_the_same(name: str, tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", name, "choice")
    folder, choices = exported(run), ["it rained", "the boats of Ada", "a garden"]
    ours = load(run).predict({"text": TEXTS[1], "choices": choices}, top=3)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMultipleChoice.from_pretrained(folder).eval()
    inputs = words([TEXTS[1]] * 3, choices, return_tensors="pt", padding=True)
    with torch.inference_mode():
        chances = model(**{key: value[None] for key, value in inputs.items()}).logits.softmax(1)[0]
    for prediction in ours:
        assert prediction["choice"] == choices[prediction["label"]]
        assert prediction["score"] == pytest.approx(float(chances[prediction["label"]]), abs=1e-4)
    alike(ours, imported(folder).predict({"text": TEXTS[1], "choices": choices}, top=3))


@pytest.mark.parametrize("name", ["gpt", "gpt2"])
def test_choices_beside_a_language_model_are_scored_the_same(name: str, tmp_path: Path) -> None:
    """The task + λ · LM of the first GPT is a class with two heads there; a choice is read at its last token."""
    run = train_run(tmp_path / "run", name, "choice", lm_weight=0.5)
    folder, choices = exported(run), ["it rained", "the boats of Ada", "a garden"]
    ours = load(run).predict({"text": TEXTS[1], "choices": choices}, top=3)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    (architecture,) = json.loads((folder / "config.json").read_text())["architectures"]
    assert architecture == {"gpt": "OpenAIGPTDoubleHeadsModel", "gpt2": "GPT2DoubleHeadsModel"}[name]
    model = getattr(transformers, architecture).from_pretrained(folder).eval()
    inputs = words([TEXTS[1]] * 3, choices, return_tensors="pt", padding=True, padding_side="right")
    with torch.inference_mode():
        last = inputs["attention_mask"].sum(1) - 1
        chances = model(inputs["input_ids"][None], mc_token_ids=last[None]).mc_logits.softmax(1)[0]
    for prediction in ours:
        assert prediction["score"] == pytest.approx(float(chances[prediction["label"]]), abs=1e-4)
    assert len({f"{choice_prediction['score']:.3f}" for choice_prediction in ours}) > 1
    alike(ours, imported(folder).predict({"text": TEXTS[1], "choices": choices}, top=3))


def test_a_language_model_beside_a_task_stays_at_home(tmp_path: Path) -> None:
    exported_model = meristem.export(
        train_run(tmp_path / "run", "gpt2", "classification", **SINGLE, lm_weight=0.5), tmp_path / "out"
    )
    assert exported_model.architecture == "GPT2ForSequenceClassification"
    assert any(note.startswith("clm: left out") for note in exported_model.notes)


def test_a_translator_writes_the_same(tmp_path: Path) -> None:
    run = train_run(tmp_path / "run", "bart", "translation", beams=1, max_tokens=12)
    folder = exported(run)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    assert type(model).__name__ == "BartForConditionalGeneration"
    for text, prediction in zip(TEXTS[:3], load(run).predict(TEXTS[:3]), strict=True):
        inputs = words(text, return_tensors="pt")
        theirs = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=12)
        assert words.decode(theirs[0], skip_special_tokens=True).strip() == prediction["translation_text"].strip()


@pytest.mark.parametrize(("name", "task", "task_overrides"), [
    ("bert", "classification", SINGLE), ("gpt2", "classification", SINGLE), ("roberta", "tagging", TAGS),
    ("electra", "span", {}), ("xlnet", "span", {}), ("bart", "span", {}), ("bert", "choice", {}),
    ("xlnet", "choice", {}), ("gpt2", "choice", {"lm_weight": 0.5}),
    ("bart", "translation", {"beams": 1, "max_tokens": 12}),
])  # fmt: skip
def test_the_program_on_the_card_runs(
    name: str, task: str, task_overrides: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_card(exported(train_run(tmp_path / "run", name, task, **task_overrides)), monkeypatch)


# ------------------------------------------------------------ refusals, and what others published


@pytest.mark.parametrize(("name", "task", "task_overrides", "message"), [
    ("bert", "tagging", {**TAGS, "crf": True}, "a CRF over tags.*--drop-crf exports the per-word scores"),
    ("bert", "pair", {**SINGLE, "siamese": True}, "two texts encoded separately"),
    ("bert", "classification", {**SINGLE, "scalar_mix": True}, "a mix of layers"),
    ("bert", "classification", {**SINGLE, "network": "recurrent"}, "task.network=recurrent"),
    ("bert", "classification", {**SINGLE, "pooling": "mean"}, "task.pooling=mean"),
    ("gpt2", "pair", {"problem_type": "regression", "target_range": (0, 1)}, "a pair encoded in both orders"),
    ("gpt2", "choice", {}, "transformers has no gpt2 with a head for task choice"),
    ("bert", "commands", {**TAGS, "intents": ["go", "stop"]}, "an intent head and a slot head"),
])  # fmt: skip
def test_what_transformers_has_no_class_for_is_refused_by_name(
    name: str, task: str, task_overrides: dict[str, Any], message: str, tmp_path: Path
) -> None:
    run = train_run(tmp_path / "run", name, task, **task_overrides)
    with pytest.raises(MeristemError, match=message):
        meristem.export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tagger_leaves_without_its_crf_only_on_request(tmp_path: Path) -> None:
    """What leaves is what the run says of each word before its CRF; that the transitions stay is told."""
    run = train_run(tmp_path / "run", "bert", "tagging", **TAGS, crf=True)
    exported_model = meristem.export(run, tmp_path / "out", drop_crf=True)
    assert exported_model.architecture == "BertForTokenClassification"
    (note,) = exported_model.notes
    assert "CRF: left out (--drop-crf)" in note
    assert note in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    plain = train_run(tmp_path / "plain", "bert", "tagging", **TAGS)
    crf_model, plain_model = load(run).loaded_run.learner.model, load(plain).loaded_run.learner.model
    plain_model.load_state_dict({name: crf_model.state_dict()[name] for name in plain_model.state_dict()})
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "out").eval()
    inputs = words(LINES[0], return_tensors="pt")
    with torch.inference_mode():
        expected = model(**inputs).logits
        states = plain_model.backbone(tokens=inputs["input_ids"], segments=inputs["token_type_ids"]).last_hidden_state
        assert torch.allclose(plain_model.heads["tagging"](states), expected, atol=1e-5)
    reimported = imported(tmp_path / "out")
    assert "crf" not in reimported.model.heads and any(reimported.predict(LINES[:6]))


def test_nothing_is_missing_or_left_and_nothing_is_remarked(tmp_path: Path, no_warnings: Any) -> None:
    folder = exported(train_run(tmp_path / "run", "bert", "classification", **SINGLE))
    opened(folder, "BertForSequenceClassification", no_warnings)
    payload = json.loads((folder / "config.json").read_text())
    assert payload["problem_type"] == "single_label_classification" and payload["label2id"]["good"] == 2


def test_weights_published_with_a_head_predict_at_once(tmp_path: Path) -> None:
    """A classifier that this library had no part in."""
    words = exported(train_run(tmp_path / "words", "bert", "classification", **SINGLE))
    config = transformers.BertConfig.from_pretrained(words, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1},
                                                     problem_type=None)  # fmt: skip
    other = transformers.BertForSequenceClassification(config)
    scatter(other, seed=5)
    folder = tmp_path / "published"
    other.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(words).save_pretrained(folder)
    theirs = transformers.pipeline("text-classification", model=str(folder))(TEXTS)
    alike(imported(folder).predict(TEXTS), theirs)


def test_a_causal_classifier_without_marks_is_read_without_marks(tmp_path: Path) -> None:
    marked = exported(train_run(tmp_path / "run", "gpt2", "classification", **SINGLE))
    words = transformers.AutoTokenizer.from_pretrained(marked)
    words.backend_tokenizer.post_processor = None
    model = transformers.AutoModelForSequenceClassification.from_pretrained(marked)
    model.save_pretrained(tmp_path / "bare")
    words.save_pretrained(tmp_path / "bare")
    theirs = transformers.pipeline("text-classification", model=str(tmp_path / "bare"))(TEXTS)
    alike(imported(tmp_path / "bare").predict(TEXTS), theirs)
