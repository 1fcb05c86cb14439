"""Exact deduplication."""

import random

from meristem.corpus.dedup import exact
from meristem.corpus.dedup.exact import DigestSet, text_digest


def test_digests():
    assert len(text_digest("a")) == 16
    assert text_digest("a") == text_digest("a") != text_digest("b")
    assert text_digest("é").hex() == "d4b1b0202b21bb84e60a3d272ecab0db"


def test_first_of_each_is_new_also_within_a_batch():
    digests = DigestSet()
    a, b = text_digest("a"), text_digest("b")
    assert digests.add_new([a, b, a]) == [True, True, False]
    assert digests.add_new([]) == []
    assert digests.add_new([b]) == [False]


def test_packed_runs_agree_with_a_set(monkeypatch):
    monkeypatch.setattr(exact, "MAX_RECENT", 64)
    rng = random.Random(5)
    digests, expected_digests = DigestSet(), set()
    for _ in range(200):
        batch = [text_digest(str(rng.randrange(4000))) for _ in range(rng.randrange(60))]
        expected = []
        for item in batch:
            expected.append(item not in expected_digests)
            expected_digests.add(item)
        assert digests.add_new(batch) == expected
    sizes = [len(run) for run in digests._runs]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) <= 8
    assert sum(sizes) + len(digests._recent) == len(expected_digests)


def test_digests_that_end_in_zeros_are_different(monkeypatch):
    monkeypatch.setattr(exact, "MAX_RECENT", 2)
    digests = DigestSet()
    first, second, third = b"a" + bytes(15), b"a\0b" + bytes(13), bytes(16)
    assert digests.add_new([first, second, third]) == [True, True, True]
    assert digests.add_new([b"a\0c" + bytes(13), first, third, second]) == [True, False, False, False]
