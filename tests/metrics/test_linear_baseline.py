"""Linear n-gram baselines: they learn what n-grams show, and nothing else."""

from __future__ import annotations

import random

import pytest

from meristem.metrics.linear_baseline import predict_labels, predict_tags

RNG = random.Random(1)
GOOD, BAD, NEUTRAL = ["lovely", "bright"], ["dull", "broken"], ["the", "film", "was", "and", "so"]


def review(words: list[str]) -> tuple[str]:
    return (" ".join(RNG.sample([*RNG.choices(NEUTRAL, k=4), RNG.choice(words)], 5)),)


def test_texts_are_classified_by_their_words() -> None:
    texts, golds = [review(GOOD) for _ in range(20)] + [review(BAD) for _ in range(20)], ["good"] * 20 + ["bad"] * 20
    assert predict_labels("single", texts, golds, [("so lovely",), ("DULL film",)]) == ["good", "bad"]
    numbers = predict_labels("regression", texts, [1.0] * 20 + [0.0] * 20, [("lovely",), ("dull",)])
    assert numbers[0] > 0.7 > 0.3 > numbers[1]
    sets = [("a",)] * 20 + [("b", "c")] * 20
    assert predict_labels("multiple", [*texts], sets, [("dull",), ("bright",)]) == [("b", "c"), ("a",)]


def test_chinese_needs_no_spaces() -> None:
    texts = [(text,) for text in ("房间很好", "服务很好", "房间太差", "服务太差")] * 5
    golds = ["1", "1", "0", "0"] * 5
    assert predict_labels("single", texts, golds, [("早餐很好",), ("早餐太差",)]) == ["1", "0"]


def test_word_order_counts_up_to_pairs_of_neighbours() -> None:
    texts, golds = [("not good",), ("good not",)] * 10, ["0", "1"] * 10
    assert predict_labels("single", texts, golds, [("good not",), ("not good",)]) == ["1", "0"]


def test_pairs_are_compared() -> None:
    """Whether two texts share their words is seen in words that did not occur in training."""
    words = [f"w{number}" for number in range(60)]
    pairs, golds = [], []
    for number in range(0, 50, 2):
        first, second = " ".join(words[number : number + 2]), " ".join(words[(number + 20) % 50 :][:2])
        pairs += [(first, first), (first, second)]
        golds += ["same", "other"]
    assert predict_labels("single", pairs, golds, [("w55 w56", "w55 w56"), ("w55 w56", "w58 w59")]) == ["same", "other"]


def test_tags_depend_on_the_word_its_ending_and_its_neighbours() -> None:
    sentences = [["she", "walked", "home"], ["the", "walk", "ended"], ["they", "walk", "there"]] * 10
    golds = [["PRON", "VERB", "ADV"], ["DET", "NOUN", "VERB"], ["PRON", "VERB", "ADV"]] * 10
    assert predict_tags(sentences, golds, [["the", "walk", "jumped"], [], ["they", "walk"]]) == [
        ("DET", "NOUN", "VERB"), (), ("PRON", "VERB")]  # fmt: skip


@pytest.mark.parametrize("texts", [[("",), (" ",)], [("...",), ("",)]])
def test_texts_without_words(texts: list[tuple[str]]) -> None:
    assert len(predict_labels("single", texts * 2, ["a", "b"] * 2, [("some text",)])) in (0, 1)
