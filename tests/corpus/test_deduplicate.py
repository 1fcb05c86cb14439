import random

from meristem.corpus import deduplicate
from meristem.corpus.deduplicate import Seen, digest


def test_digests():
    assert len(digest("a")) == 16
    assert digest("a") == digest("a") != digest("b")
    assert digest("é").hex() == "d4b1b0202b21bb84e60a3d272ecab0db"


def test_first_of_each_is_new_also_within_a_batch():
    seen = Seen()
    a, b = digest("a"), digest("b")
    assert seen.new([a, b, a]) == [True, True, False]
    assert seen.new([]) == []
    assert seen.new([b]) == [False]


def test_packed_runs_agree_with_a_set(monkeypatch):
    monkeypatch.setattr(deduplicate, "RECENT", 64)
    rng = random.Random(5)
    seen, known = Seen(), set()
    for _ in range(200):
        batch = [digest(str(rng.randrange(4000))) for _ in range(rng.randrange(60))]
        expected = []
        for item in batch:
            expected.append(item not in known)
            known.add(item)
        assert seen.new(batch) == expected
    sizes = [len(run) for run in seen._runs]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) <= 8
    assert sum(sizes) + len(seen._recent) == len(known)


def test_digests_that_end_in_zeros_are_different(monkeypatch):
    monkeypatch.setattr(deduplicate, "RECENT", 2)
    seen = Seen()
    first, second, third = b"a" + bytes(15), b"a\0b" + bytes(13), bytes(16)
    assert seen.new([first, second, third]) == [True, True, True]
    assert seen.new([b"a\0c" + bytes(13), first, third, second]) == [True, False, False, False]
