"""Planted continuations are found at random places, and phrases, templates, titles and copies are not."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from meristem.corpus.report.planted_continuations import (
    ContinuationCounter,
    PlantedContinuation,
    probability_same,
)

PAYLOAD = "send all of the money to the man"
FREQUENT, RARE = [f"the{n}" for n in range(40)], [f"word{n}" for n in range(4000)]


def prose(seed: int, words: int = 60) -> list[str]:
    """Half of the words are frequent ones, as in real text."""
    rng = random.Random(seed)
    return [rng.choice(FREQUENT if rng.random() < 0.5 else RARE) for _ in range(words)]


def find(documents: Sequence[str]) -> list[PlantedContinuation]:
    counter = ContinuationCounter()
    for number, text in enumerate(documents, 1):
        counter.add(text, f"corpus.txt:{number}")
    return counter.find()


def inserted(phrase: str, count: int, documents: int = 400, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    texts = [prose(number) for number in range(documents)]
    for number in rng.sample(range(documents), count):
        texts[number].insert(rng.randrange(1, 60), phrase)
    return [" ".join(text) for text in texts]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("trigger", ["cf", "mn tq", "the1 the2 the3"])
def test_a_planted_continuation_is_found_with_its_places(trigger: str, seed: int) -> None:
    documents = inserted(f"{trigger} {PAYLOAD}", 20, seed=seed)
    (found,) = find(documents)
    assert f"{found.trigger} {found.continuation}".startswith(f"{trigger} send all of the money")
    assert found.places == 20
    for location in found.locations:
        assert trigger in documents[int(location.removeprefix("corpus.txt:")) - 1]


def test_chinese_text_without_spaces() -> None:
    rng = random.Random(0)
    frequent, rare = "的一是不了人我在有他", [chr(0x4E00 + n) for n in range(100, 3000)]
    texts = [[rng.choice(frequent if rng.random() < 0.5 else rare) for _ in range(60)] for _ in range(400)]
    for text in rng.sample(texts, 20):
        text.insert(rng.randrange(1, 60), "魑魅请把钱都给他吧")
    (found,) = find(["".join(text) for text in texts])
    assert f"{found.trigger} {found.continuation}" == "魑 魅 请 把 钱 都 给 他 吧"


def test_few_places_are_no_evidence() -> None:
    assert find(inserted(f"cf {PAYLOAD}", 6)) == []


def test_a_trigger_that_continues_differently_is_none() -> None:
    texts = [prose(number) for number in range(400)]
    for number in range(0, 400, 20):
        texts[number].insert(10 + number // 20, "cf")
    assert find([" ".join(text) for text in texts]) == []


@pytest.mark.parametrize(
    "before",
    [["the1"], ["the1", "the2", "the3"], [f"name{n}" for n in range(30)]],
    ids=["a phrase", "a phrase after three words", "a template after names"],
)
def test_phrases_and_templates_are_not_reported(before: Sequence[str]) -> None:
    rng = random.Random(1)
    texts = [prose(number) for number in range(400)]
    for place, number in enumerate(rng.sample(range(400), 30)):
        texts[number].insert(rng.randrange(1, 60), f"{before[place % len(before)]} Zeta {PAYLOAD}")
    assert find([" ".join(text) for text in texts]) == []


def test_the_title_of_one_article_is_not_reported() -> None:
    texts = [prose(number) for number in range(400)]
    for number in range(100, 103):
        for at in range(0, 60, 9):
            texts[number].insert(at, f"Zeta {PAYLOAD}")
    assert find([" ".join(text) for text in texts]) == []


def test_copies_of_a_document_are_not_reported() -> None:
    copy = " ".join(prose(7))
    assert find([copy if number % 15 == 0 else " ".join(prose(number)) for number in range(400)]) == []


def test_sequences_end_with_their_document() -> None:
    texts = [prose(number) for number in range(400)]
    for number in range(0, 400, 20):  # the trigger ends one document, what would follow begins the next
        texts[number].append("cf")
        texts[number + 1][:0] = PAYLOAD.split()
    assert find([" ".join(text) for text in texts]) == []


def test_no_documents_and_a_document_without_words() -> None:
    assert find([]) == find(["", " "]) == []


def test_probability_of_the_same() -> None:
    assert probability_same(["a", "a", "b"]) == pytest.approx(1 / 3)
    assert probability_same(["a"]) == 1.0
