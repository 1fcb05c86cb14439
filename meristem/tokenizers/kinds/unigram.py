"""Unigram tokenizer (SentencePiece; Kudo 2018): the most probable segmentation of a word into pieces.

The library's own trainer sums in the order of a randomly seeded hash map, so that no two runs give the same
tokenizer; this one is deterministic.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from meristem.tokenizers.cached_encoding import WORD_PATTERN
from meristem.tokenizers.lattice import Floats, UnigramLattice
from meristem.tokenizers.special_tokens import BERT_SPECIALS
from meristem.tokenizers.tokenizer_kind import TokenizerKind
from meristem.tokenizers.word_counts import count_characters, count_words, most_common

MAX_PIECE_LENGTH = 16
MAX_WORD_LENGTH = 24  # longer words (Chinese clauses) are split for training, within the range of a float
SEEDS_PER_TOKEN = 4  # seed pieces per token of the final vocabulary
SHRINK_FACTOR = 0.75  # share of the pieces kept in a round of pruning
EM_ROUNDS = 2  # EM iterations between prunings
MIN_PROBABILITY = 1e-300
MIN_CHARACTER_PROBABILITY = 1e-9
"""Lowest probability of a character: the product of MAX_WORD_LENGTH of them does not underflow."""


class UnigramTokenizer(TokenizerKind):
    """Pieces with probabilities, pruned from a large seed vocabulary (Kudo 2018)."""

    def build(self, vocabulary: list[tuple[str, float]]) -> tokenizers.Tokenizer:
        """A tokenizer with NFKC, single spaces marked `▁`, and splits at punctuation."""
        library = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=BERT_SPECIALS.index("[UNK]")))
        lower = [normalizers.Lowercase()] if self.settings.lowercase else []
        library.normalizer = normalizers.Sequence([normalizers.NFKC(), *lower, normalizers.Replace(Regex(r"\s+"), " ")])
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.Split(Regex(r"\p{P}"), "isolated")]
        )  # without the split, "[SEP]" in a text would be the special token
        library.decoder = decoders.Metaspace(prepend_scheme="first")
        return library

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """Start with all frequent substrings; prune those with the smallest loss of likelihood down to the size."""
        specials = [(name, 0.0) for name in BERT_SPECIALS]
        counts = count_words(self.build(specials), texts, WORD_PATTERN)
        characters = count_characters(counts)
        max_pieces = self.settings.vocab_size - len(BERT_SPECIALS)
        alphabet = most_common(characters, min(self.settings.alphabet_limit, max_pieces))
        counts = _restrict_alphabet(counts, set(alphabet))
        pieces = [*alphabet, *most_common(_substrings(counts), SEEDS_PER_TOKEN * max_pieces)]
        log_probs = _prune(pieces, len(alphabet), counts, max_pieces)
        rare = [character for character in most_common(characters, max_pieces) if character not in log_probs]
        log_probs |= dict.fromkeys(rare[: max_pieces - len(log_probs)], min(log_probs.values()))
        ranked = sorted(log_probs.items(), key=lambda item: (-item[1], item[0]))
        library = self.build([*specials, *ranked])
        library.add_special_tokens(list(BERT_SPECIALS))
        return library


def _restrict_alphabet(counts: Counter[str], alphabet: set[str]) -> Counter[str]:
    """Words split at characters outside the alphabet, and at the maximum length."""
    restricted: Counter[str] = Counter()
    inside = re.compile(f"[{re.escape(''.join(sorted(alphabet)))}]{{1,{MAX_WORD_LENGTH}}}")
    for word, count in counts.items():
        for part in inside.findall(word):
            restricted[part] += count
    return restricted


def _substrings(counts: Counter[str]) -> Counter[str]:
    """Count × length of substrings that occur at least twice; their prefixes and suffixes must be frequent too."""
    weighted: Counter[str] = Counter()
    alive, frequent = dict(counts), {character for word in counts for character in word}
    for length in range(2, MAX_PIECE_LENGTH + 1):
        length_counts: Counter[str] = Counter()
        for word, count in alive.items():
            for start in range(len(word) - length + 1):
                piece = word[start : start + length]
                if piece[:-1] in frequent and piece[1:] in frequent and "▁" not in piece[1:]:
                    length_counts[piece] += count
        frequent = {piece for piece, count in length_counts.items() if count > 1}
        weighted.update({piece: length_counts[piece] * length for piece in frequent})
        alive = {word: count for word, count in alive.items() if len(word) > length}
    return weighted


def _prune(pieces: list[str], num_fixed: int, counts: Counter[str], max_pieces: int) -> dict[str, float]:
    """Piece → log-probability after EM and pruning; the first `num_fixed` pieces, single characters, are kept."""
    index = {piece: number for number, piece in enumerate(pieces)}
    training_words, piece_lattice = sorted(counts), UnigramLattice(pieces, index, MAX_PIECE_LENGTH)
    weights = np.array([counts[word] for word in training_words], np.float64)
    lattice = UnigramLattice(training_words, index, MAX_PIECE_LENGTH)
    expected_counts = np.ones(len(pieces))
    alive = np.ones(len(pieces), bool)
    while True:
        for _ in range(EM_ROUNDS):
            expected_counts = lattice.expected_counts(_probabilities(expected_counts, alive, num_fixed), weights)
        surplus = int(alive.sum()) - max_pieces
        if surplus <= 0:
            break
        probs = _probabilities(expected_counts, alive, num_fixed)
        loss = np.full(len(pieces), np.inf)
        prunable = np.flatnonzero(alive[num_fixed:]) + num_fixed
        piece_probs = np.maximum(probs[prunable], MIN_PROBABILITY)
        split_probs = piece_lattice.best_split_probs(probs)[prunable]
        loss[prunable] = expected_counts[prunable] * np.log(piece_probs / split_probs)
        num_pruned = min(surplus, int(alive.sum() * (1 - SHRINK_FACTOR)) + 1)
        alive[np.argsort(np.round(loss, 6), kind="stable")[:num_pruned]] = False
    probs = _probabilities(expected_counts, alive, num_fixed)
    return {pieces[number]: round(float(np.log(probs[number])), 6) for number in np.flatnonzero(alive & (probs > 0))}


def _probabilities(counts: Floats, alive: np.ndarray[tuple[int], np.dtype[np.bool_]], num_fixed: int) -> Floats:
    """Probabilities from expected counts (the M-step)."""
    alive_counts = np.where(alive, counts, 0.0)
    probs: Floats = alive_counts / alive_counts.sum()
    probs[:num_fixed] = np.maximum(probs[:num_fixed], MIN_CHARACTER_PROBABILITY)
    return probs
