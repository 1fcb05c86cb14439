"""What needs no model: the numbers that a task's results are set beside."""

from __future__ import annotations

import csv
import json
from collections import Counter
from functools import cache
from pathlib import Path

from meristem.labelled.reading import read
from meristem.labelled.settings import DataSettings
from meristem.metrics import entities, labels, spans, writing
from meristem.tasks._tagged import UNTOLD

Numbers = dict[str, float]


@cache
def commonest_label(data: Path) -> Numbers:
    """SST-2: the commonest label of the training data for every sentence."""
    train, dev = (_column(data / "sst2" / name, "label") for name in ("train.tsv", "dev.tsv"))
    said = Counter(train).most_common(1)[0][0]
    return {"accuracy": sum(label == said for label in dev) / len(dev)}


@cache
def shared_words(data: Path) -> Numbers:
    """STS-B: the share of words that two sentences have in common."""
    rows = [line.split("\t") for line in (data / "stsb" / "sts-dev.csv").read_text(encoding="utf-8").splitlines()]
    said = []
    for row in rows:
        one, other = ({word.strip(".,!?").lower() for word in row[column].split()} for column in (5, 6))
        said.append(len(one & other) / max(1, len(one | other)))
    return labels.numbers([float(row[4]) for row in rows], said)


@cache
def usual_tags(data: Path) -> Numbers:
    """UD: each word's commonest tag in training, and the commonest tag of all for words never seen."""
    train, test = (_tagged(data / "ud_ewt" / name) for name in ("train.tsv", "test.tsv"))
    return _usual(train, test, names=False)


@cache
def usual_characters(data: Path) -> Numbers:
    """Weibo: each character's commonest tag in training; what comes out as names is counted as names are."""
    sides = (_tagged(data / "weibo_ner" / f"weiboNER_2nd_conll.{name}") for name in ("train", "test"))
    train, test = ([(word[0], tag) for word, tag in side] for side in sides)
    return _usual(train, test, names=True)


@cache
def usual_senses(data: Path) -> Numbers:
    """Microworld's words of several senses: the commonest of each."""
    told = DataSettings.model_validate({})
    train, test = (
        [
            (word, sense)
            for sample in read(f"builtin:microworld-senses?size={size}&seed={seed}", told, "words")
            for word, sense in zip(sample.given["words"], sample.gold, strict=True)
            if sense != UNTOLD
        ]
        for size, seed in ((2000, 1), (500, 3))
    )
    return _usual(train, test, names=False)


@cache
def first_words(data: Path) -> Numbers:
    """SQuAD: the first three words of the passage."""
    told = json.loads((data / "squad" / "dev-v1.1.part2-24articles.json").read_text(encoding="utf-8"))
    golds, said = [], []
    for article in told["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                golds.append([answer["text"] for answer in question["answers"]])
                said.append(" ".join(paragraph["context"].split()[:3]))
    return spans.score(golds, said)


@cache
def commonest_choice(data: Path) -> Numbers:
    """COPA: the choice that is right more often in the training data."""
    train, dev = (
        [json.loads(line)["label"] for line in (data / "copa" / name).read_text(encoding="utf-8").splitlines()]
        for name in ("train.jsonl", "val.jsonl")
    )
    said = Counter(train).most_common(1)[0][0]
    return {"accuracy": sum(label == said for label in dev) / len(dev)}


@cache
def copied(data: Path) -> Numbers:
    """Multi30k: the English sentence as its German translation."""
    source, target = (
        (data / "multi30k" / f"test_2016_flickr.{side}").read_text(encoding="utf-8").splitlines()
        for side in ("en", "de")
    )
    return writing.translation([[one] for one in target], source)


@cache
def lead(data: Path) -> Numbers:
    """SciTLDR: the abstract's first sentence."""
    lines = (data / "scitldr" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    told = [json.loads(line) for line in lines]
    return writing.summary([one["target"] for one in told], [one["source"][0] for one in told])


def _usual(train: list[tuple[str, str]], test: list[tuple[str, str]], *, names: bool) -> Numbers:
    """Each word's commonest tag, as reports of tasks have it."""
    sides = ([([word for word, _ in side], [tag for _, tag in side])] for side in (train, test))
    return entities.baselines(*sides, entities=names)["each word's commonest tag"]


def _column(path: Path, name: str) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row[name] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def _tagged(path: Path) -> list[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines if line.strip()]
