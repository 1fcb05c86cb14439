"""Train, validation and test splits."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.corpus import split
from meristem.corpus.dedup.exact import text_digest
from meristem.corpus.document import Document
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.split import UnsplitDocument, assign_splits, digest_to_uniform, split_by_hash, split_by_quota

SETTINGS = CorpusSettings()


def undecided(count: int, offset: int = 0) -> list[UnsplitDocument]:
    texts = [f"document {number + offset}" for number in range(count)]
    return [
        UnsplitDocument(text, f"f:{index}", digest_to_uniform(text_digest(text))) for index, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("count", "train", "validation", "test"),
    [
        (0, 0, 0, 0),
        (1, 1, 0, 0),
        (2, 1, 1, 0),
        (3, 1, 1, 1),
        (10, 8, 1, 1),
        (100, 96, 2, 2),
        (1000, 960, 20, 20),
    ],
)
def test_small_corpora_get_exact_quotas(count, train, validation, test):
    splits = Counter(document.split for document in assign_splits(undecided(count), SETTINGS))
    assert splits == Counter(train=train, validation=validation, test=test) + Counter()


def test_nothing_is_held_out_that_was_not_asked_for():
    assert set(split_by_quota([0.1, 0.2, 0.3], CorpusSettings(validation=0, test=0))) == {"train"}
    assert split_by_quota([0.3, 0.1, 0.2], CorpusSettings(validation=0)) == ["train", "test", "train"]
    assert split_by_quota([0.3, 0.1, 0.2], CorpusSettings(test=0)) == ["train", "validation", "train"]


def test_the_smallest_numbers_are_held_out():
    assert split_by_quota([0.5, 0.2, 0.9, 0.1], SETTINGS) == ["train", "validation", "train", "test"]


@given(st.lists(st.integers(0, 30), max_size=60), st.floats(0, 0.45), st.floats(0, 0.45))
def test_equal_texts_share_a_split_and_something_is_left_to_train_on(values, validation, test):
    numbers = [value / 31 for value in values]
    splits = split_by_quota(numbers, CorpusSettings(validation=validation, test=test))
    assert len(splits) == len(numbers)
    assert all(len({s for n, s in zip(numbers, splits, strict=True) if n == number}) == 1 for number in numbers)
    assert not numbers or "train" in splits


def test_large_corpora_follow_the_shares():
    documents = list(assign_splits(undecided(30_000), CorpusSettings(validation=0.1, test=0.05)))
    splits = Counter(document.split for document in documents)
    assert abs(splits["validation"] - 3000) < 250  # 4.8 standard deviations
    assert abs(splits["test"] - 1500) < 190


def test_a_growing_corpus_moves_no_document():
    def splits(items: list[UnsplitDocument]) -> dict[str, str]:
        return {document.text: document.split for document in assign_splits(items, SETTINGS)}

    before = splits(undecided(1001))
    after = splits(undecided(500, offset=9_000) + undecided(1500))
    assert all(after[text] == name for text, name in before.items())


def test_order_places_and_odd_characters_survive_the_wait(monkeypatch):
    monkeypatch.setattr(split, "SPOOL_CHARS", 100)  # so that some wait on disk
    texts = ['quote " and \\', "two\nlines", "白日依山尽", "emoji 😀", "line\u2028separator", "x" * 500]
    documents = [UnsplitDocument(text, f"f:{index}", index / 10) for index, text in enumerate(texts)]
    out = list(assign_splits(documents, CorpusSettings(validation=0, test=0)))
    assert out == [Document(text, f"f:{index}") for index, text in enumerate(texts)]


def test_numbers_are_uniform_and_below_one():
    assert digest_to_uniform(b"\xff" * 16) < 1.0
    assert digest_to_uniform(bytes(16)) == 0.0
    assert split_by_hash(0.0199, SETTINGS) == "test"
    assert split_by_hash(0.02, SETTINGS) == "validation"
    assert split_by_hash(0.04, SETTINGS) == "train"
