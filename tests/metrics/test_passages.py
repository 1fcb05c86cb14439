"""Passages that are repeated or copied, counted by hand and beside a slow way to count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meristem.metrics.passages import copied, distinct, longest_copied, longest_run, pieces, repeats, spoken, stutters

WORDS = st.lists(st.sampled_from("abc"), max_size=12)


def test_words_marks_and_ideographs() -> None:
    assert pieces("Don't stop—now!!") == ["don", "'", "t", "stop", "—", "now", "!", "!"]
    assert spoken("Don't stop—now!!") == ["don", "t", "stop", "now"]
    assert spoken("船在水上。OK？") == ["船", "在", "水", "上", "ok"]
    assert spoken("हिन्दी भाषा") == ["हिन्दी", "भाषा"]  # signs that join letters do not cut a word
    assert pieces("") == []


def test_repetition() -> None:
    assert distinct([list("abab")], 2) == 2 / 3
    assert distinct([["a"], []], 2) == 1.0
    assert repeats(list("abcabc"), 3) and not repeats(list("abcabd"), 3)
    assert longest_run(list("abbbcc")) == 3 and longest_run([]) == 0


def test_stuttering() -> None:
    assert stutters("it is aaaaaa") and stutters("abcabcabcabcabcabc") and stutters("哈哈哈哈哈哈")
    assert not stutters("aaaaa a a a a a") and not stutters("......----------") and not stutters("")
    assert not stutters("ab" * 5) and stutters("x" * 100_000)


def test_copying_is_of_one_source_at_a_time() -> None:
    sources = [list("abcd"), list("efgh")]
    assert copied(list("abcdefgh"), sources, 3) == (4, 6)  # none across the border
    assert longest_copied(list("xxabcdefg"), sources) == tuple("abcd")
    assert longest_copied(list("xyz"), sources) == () and longest_copied([], []) == ()


@given(WORDS, st.lists(WORDS, max_size=3))
def test_the_longest_is_the_longest(said: list[str], sources: list[list[str]]) -> None:
    def stands(part: list[str]) -> bool:
        return any(part == source[at : at + len(part)] for source in sources for at in range(len(source)))

    parts = [said[start:end] for start in range(len(said)) for end in range(start + 1, len(said) + 1)]
    found = longest_copied(said, sources)
    assert len(found) == max((len(part) for part in parts if stands(part)), default=0)
    assert not found or (stands(list(found)) and list(found) in parts)
