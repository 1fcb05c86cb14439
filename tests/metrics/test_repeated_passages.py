"""Repeated and copied passages, counted by hand and by brute force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meristem.data.text_units import distinct_share, split_spoken_words, split_tokens
from meristem.metrics.repeated_passages import (
    count_copied_ngrams,
    has_repeated_ngram,
    has_stutter,
    longest_copied_passage,
    longest_word_run,
)

WORDS = st.lists(st.sampled_from("abc"), max_size=12)


def test_words_marks_and_ideographs() -> None:
    assert split_tokens("Don't stop—now!!") == ["don", "'", "t", "stop", "—", "now", "!", "!"]
    assert split_spoken_words("Don't stop—now!!") == ["don", "t", "stop", "now"]
    assert split_spoken_words("船在水上。OK？") == ["船", "在", "水", "上", "ok"]
    assert split_spoken_words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]  # signs that join letters do not cut a word
    assert split_tokens("") == []


def test_repetition() -> None:
    assert distinct_share([list("abab")], 2) == 2 / 3
    assert distinct_share([["a"], []], 2) == 1.0
    assert has_repeated_ngram(list("abcabc"), 3) and not has_repeated_ngram(list("abcabd"), 3)
    assert longest_word_run(list("abbbcc")) == 3 and longest_word_run([]) == 0


def test_stuttering() -> None:
    assert has_stutter("it is aaaaaa") and has_stutter("abcabcabcabcabcabc") and has_stutter("哈哈哈哈哈哈")
    assert not has_stutter("aaaaa a a a a a") and not has_stutter("......----------") and not has_stutter("")
    assert not has_stutter("ab" * 5) and has_stutter("x" * 100_000)


def test_copying_is_of_one_source_at_a_time() -> None:
    sources = [list("abcd"), list("efgh")]
    assert count_copied_ngrams(list("abcdefgh"), sources, 3) == (4, 6)  # none across the border
    assert longest_copied_passage(list("xxabcdefg"), sources) == tuple("abcd")
    assert longest_copied_passage(list("xyz"), sources) == () and longest_copied_passage([], []) == ()


@given(WORDS, st.lists(WORDS, max_size=3))
def test_the_longest_is_the_longest(candidate: list[str], sources: list[list[str]]) -> None:
    def stands(part: list[str]) -> bool:
        return any(part == source[index : index + len(part)] for source in sources for index in range(len(source)))

    parts = [candidate[start:end] for start in range(len(candidate)) for end in range(start + 1, len(candidate) + 1)]
    passage = longest_copied_passage(candidate, sources)
    assert len(passage) == max((len(part) for part in parts if stands(part)), default=0)
    assert not passage or (stands(list(passage)) and list(passage) in parts)
