"""Trivial baselines of the task benchmark, without a model."""

from __future__ import annotations

import csv
import json
from collections import Counter
from functools import cache
from pathlib import Path

from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings
from meristem.metrics import bleu_rouge, classification, entity_f1, squad_f1
from meristem.tasks.components.tag_predictions import IGNORED_TAG

Numbers = dict[str, float]


@cache
def commonest_label(data: Path) -> Numbers:
    """SST-2: the most frequent training label for every sentence."""
    train, dev = (_column(data / "sst2" / name, "label") for name in ("train.tsv", "dev.tsv"))
    prediction = Counter(train).most_common(1)[0][0]
    return {"accuracy": sum(label == prediction for label in dev) / len(dev)}


@cache
def shared_words(data: Path) -> Numbers:
    """STS-B: word overlap of the two sentences."""
    rows = [line.split("\t") for line in (data / "stsb" / "sts-dev.csv").read_text(encoding="utf-8").splitlines()]
    predictions = []
    for row in rows:
        first_words_set, other = ({word.strip(".,!?").lower() for word in row[column].split()} for column in (5, 6))
        predictions.append(len(first_words_set & other) / max(1, len(first_words_set | other)))
    return classification.regression_metrics([float(row[4]) for row in rows], predictions)


@cache
def usual_tags(data: Path) -> Numbers:
    """UD: each word's most frequent training tag, and the overall most frequent tag for unseen words."""
    train, test = (_tagged(data / "ud_ewt" / name) for name in ("train.tsv", "test.tsv"))
    return _usual(train, test, names=False)


@cache
def usual_characters(data: Path) -> Numbers:
    """Weibo: each character's most frequent training tag, scored by entity F1."""
    sides = (_tagged(data / "weibo_ner" / f"weiboNER_2nd_conll.{name}") for name in ("train", "test"))
    train, test = ([(word[0], tag) for word, tag in side] for side in sides)
    return _usual(train, test, names=True)


@cache
def usual_senses(data: Path) -> Numbers:
    """Microworld word senses: the most frequent sense of each word."""
    settings = DataSettings.model_validate({})
    train, test = (
        [
            (word, sense)
            for sample in load_samples(f"builtin:microworld-senses?size={size}&seed={seed}", settings, "words")
            for word, sense in zip(sample.inputs["words"], sample.gold, strict=True)
            if sense != IGNORED_TAG
        ]
        for size, seed in ((2000, 1), (500, 3))
    )
    return _usual(train, test, names=False)


@cache
def first_words(data: Path) -> Numbers:
    """SQuAD: the first three words of the passage."""
    squad = json.loads((data / "squad" / "dev-v1.1.part2-24articles.json").read_text(encoding="utf-8"))
    golds, predictions = [], []
    for article in squad["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                golds.append([answer["text"] for answer in question["answers"]])
                predictions.append(" ".join(paragraph["context"].split()[:3]))
    return squad_f1.score(golds, predictions)


@cache
def commonest_choice(data: Path) -> Numbers:
    """COPA: the choice index that is correct more often in the training data."""
    train, dev = (
        [json.loads(line)["label"] for line in (data / "copa" / name).read_text(encoding="utf-8").splitlines()]
        for name in ("train.jsonl", "val.jsonl")
    )
    prediction = Counter(train).most_common(1)[0][0]
    return {"accuracy": sum(label == prediction for label in dev) / len(dev)}


@cache
def copied(data: Path) -> Numbers:
    """Multi30k: the English sentence as its German translation."""
    source, target = (
        (data / "multi30k" / f"test_2016_flickr.{side}").read_text(encoding="utf-8").splitlines()
        for side in ("en", "de")
    )
    return bleu_rouge.translation_metrics([[sentence] for sentence in target], source)


@cache
def lead(data: Path) -> Numbers:
    """SciTLDR: the abstract's first sentence."""
    lines = (data / "scitldr" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return bleu_rouge.rouge_metrics(
        [record["target"] for record in records], [record["source"][0] for record in records]
    )


def _usual(train: list[tuple[str, str]], test: list[tuple[str, str]], *, names: bool) -> Numbers:
    """Each word's most frequent tag, as in task reports."""
    sides = ([([word for word, _ in side], [tag for _, tag in side])] for side in (train, test))
    return entity_f1.baselines(*sides, entities=names)["each word's commonest tag"]


def _column(path: Path, name: str) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row[name] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def _tagged(path: Path) -> list[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines if line.strip()]
