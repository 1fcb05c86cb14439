"""Training of the Unigram tokenizer."""

from collections import Counter

from meristem.tokenizers.kinds.unigram import MAX_WORD_LENGTH, _restrict_alphabet, _substrings
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.train import train_tokenizer


def test_words_are_split_at_foreign_characters_and_at_the_maximum_length():
    word_counts = _restrict_alphabet(Counter({"a-b^c]x": 2, "c" * (MAX_WORD_LENGTH + 1): 3}), set("abc-^]"))
    assert word_counts == {"a-b^c]": 2, "c" * MAX_WORD_LENGTH: 3, "c": 3}


def test_substrings_are_all_that_repeat_weighted_by_length():
    counts = Counter({"▁abab": 1, "▁abc": 2, "xyz": 1})
    counter: Counter[str] = Counter()
    for word, count in counts.items():
        for start in range(len(word)):
            for stop in range(start + 2, len(word) + 1):
                counter[word[start:stop]] += count
    assert _substrings(counts) == {piece: count * len(piece) for piece, count in counter.items() if count > 1}


def test_frequent_words_become_one_piece(corpus):
    tokenizer = train_tokenizer(TokenizerSettings(kind="unigram", vocab_size=200), corpus)
    assert 180 <= tokenizer.vocab_size <= 200
    pieces = [tokenizer.id_to_token(number) for number in tokenizer.encode("The old gardener planted boats.").ids]
    assert pieces == ["▁The", "▁old", "▁gardener", "▁planted", "▁boats", "."]


def test_likelihood_prefers_pieces_over_their_parts(corpus):
    small, large = (train_tokenizer(TokenizerSettings(kind="unigram", vocab_size=size), corpus) for size in (110, 200))
    lengths = [sum(map(len, pieces_model.encode_ids(corpus))) for pieces_model in (small, large)]
    assert lengths[1] < 0.8 * lengths[0]
