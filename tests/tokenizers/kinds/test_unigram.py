from collections import Counter

from meristem.tokenizers.kinds.unigram import LONGEST_WORD, _substrings, _within
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.train import train


def test_words_are_cut_at_foreign_characters_and_when_long():
    got = _within(Counter({"a-b^c]x": 2, "c" * (LONGEST_WORD + 1): 3}), set("abc-^]"))
    assert got == {"a-b^c]": 2, "c" * LONGEST_WORD: 3, "c": 3}


def test_substrings_are_all_that_repeat_weighted_by_length():
    counts = Counter({"▁abab": 1, "▁abc": 2, "xyz": 1})
    want: Counter[str] = Counter()
    for word, count in counts.items():
        for start in range(len(word)):
            for stop in range(start + 2, len(word) + 1):
                want[word[start:stop]] += count
    assert _substrings(counts) == {piece: count * len(piece) for piece, count in want.items() if count > 1}


def test_frequent_words_become_one_piece(corpus):
    tokenizer = train(TokenizerSettings(kind="unigram", size=200), corpus)
    assert 180 <= tokenizer.size <= 200
    pieces = [tokenizer.token(number) for number in tokenizer.encode("The old gardener planted boats.").ids]
    assert pieces == ["▁The", "▁old", "▁gardener", "▁planted", "▁boats", "."]


def test_likelihood_prefers_pieces_over_their_parts(corpus):
    small, large = (train(TokenizerSettings(kind="unigram", size=size), corpus) for size in (110, 200))
    lengths = [sum(map(len, one.ids_many(corpus))) for one in (small, large)]
    assert lengths[1] < 0.8 * lengths[0]
