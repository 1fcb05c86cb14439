"""Unigram lattices: expected counts and best splits against brute force."""

import itertools

import numpy as np

from meristem.tokenizers.lattice import UnigramLattice

PIECES = {piece: number for number, piece in enumerate(["a", "b", "c", "ab", "bc", "abc", "ca"])}
WORDS = ["abc", "a", "abca", "cab", "bcabc"]
CHANCE = np.array([0.1, 0.2, 0.15, 0.25, 0.05, 0.2, 0.05])


def segmentations(word):
    """All segmentations of a word into known pieces, by brute force."""
    for boundaries in itertools.chain.from_iterable(
        itertools.combinations(range(1, len(word)), count) for count in range(len(word))
    ):
        parts = [word[start:stop] for start, stop in itertools.pairwise([0, *boundaries, len(word)])]
        if all(part in PIECES for part in parts):
            yield [PIECES[part] for part in parts]


def test_expected_counts_are_those_of_all_segmentations():
    counts = np.array([3.0, 5.0, 2.0, 1.0, 4.0])
    expected = np.zeros(len(PIECES))
    for word, count in zip(WORDS, counts, strict=True):
        weighted_splits = [(cut, np.prod(CHANCE[cut])) for cut in segmentations(word)]
        total = sum(chance for _, chance in weighted_splits)
        for cut, chance in weighted_splits:
            np.add.at(expected, cut, count * chance / total)
    np.testing.assert_allclose(UnigramLattice(WORDS, PIECES, 3).expected_counts(CHANCE, counts), expected, rtol=1e-12)


def test_the_best_split_excludes_the_whole_word():
    expected = [
        max((np.prod(CHANCE[cut]) for cut in segmentations(word) if len(cut) > 1), default=0.0) for word in WORDS
    ]
    np.testing.assert_allclose(UnigramLattice(WORDS, PIECES, 3).best_split_probs(CHANCE), expected, rtol=1e-12)
