"""Unigram: the likeliest cutting of a word under a probability for each piece.

The library's own trainer adds up in the order of a hash map seeded by chance, so that no two runs give the same
tokenizer; this one gives the same each time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from meristem.tokenizers.counting import commonest, words
from meristem.tokenizers.lattice import Lattice, Numbers
from meristem.tokenizers.pieces import WORDS
from meristem.tokenizers.roles import BRACKETED
from meristem.tokenizers.settings import TokenizerSettings

LONGEST_PIECE = 16
LONGEST_WORD = 24  # longer ones are cut for training: Chinese clauses, and the range of a float
SEEDS = 4  # candidates per token wanted
SHRINK = 0.75  # share of the pieces that survive a round of pruning
ROUNDS = 2  # of expectation and maximisation between prunings
SMALLEST = 1e-300
LEAST = 1e-9  # a character's lowest probability: LONGEST_WORD of them are still above a float's smallest


class Unigram:
    """Pieces with probabilities, pruned from many to few (Kudo 2018)."""

    def __init__(self, settings: TokenizerSettings) -> None:
        self.settings = settings

    def empty(self, vocabulary: list[tuple[str, float]]) -> tokenizers.Tokenizer:
        """A tokenizer that folds look-alike characters and white space, marks each space `▁`, cuts at punctuation."""
        out = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=BRACKETED.index("[UNK]")))
        lower = [normalizers.Lowercase()] if self.settings.lowercase else []
        out.normalizer = normalizers.Sequence([normalizers.NFKC(), *lower, normalizers.Replace(Regex(r"\s+"), " ")])
        out.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Metaspace(prepend_scheme="first"),
            pre_tokenizers.Split(Regex(r"\p{P}"), "isolated")])  # else "[SEP]" in a text would be the special token
        out.decoder = decoders.Metaspace(prepend_scheme="first")
        return out

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """Begin with all frequent substrings; drop those the likelihood misses least until the size is reached."""
        specials = [(name, 0.0) for name in BRACKETED]
        counts = words(self.empty(specials), texts, WORDS)
        characters: Counter[str] = Counter()
        for word, count in counts.items():
            for character in word:
                characters[character] += count
        room = self.settings.size - len(BRACKETED)
        alphabet = commonest(characters, min(self.settings.characters, room))
        counts = _within(counts, set(alphabet))
        pieces = [*alphabet, *commonest(_substrings(counts), SEEDS * room)]
        scored = _prune(pieces, len(alphabet), counts, room)
        rare = [character for character in commonest(characters, room) if character not in scored][:room - len(scored)]
        lowest = min(scored.values())
        scored |= dict.fromkeys(rare, lowest)
        ranked = sorted(scored.items(), key=lambda item: (-item[1], item[0]))
        out = self.empty([*specials, *ranked])
        out.add_special_tokens(list(BRACKETED))
        return out


def _within(counts: Counter[str], alphabet: set[str]) -> Counter[str]:
    """Words cut where a character is outside the alphabet, and where they grow too long."""
    out: Counter[str] = Counter()
    inside = re.compile(f"[{re.escape(''.join(sorted(alphabet)))}]{{1,{LONGEST_WORD}}}")
    for word, count in counts.items():
        for part in inside.findall(word):
            out[part] += count
    return out


def _substrings(counts: Counter[str]) -> Counter[str]:
    """Substrings that occur twice or more, weighted by length; a longer one is counted only if both its ends are in."""
    out: Counter[str] = Counter()
    alive, frequent = dict(counts), {character for word in counts for character in word}
    for length in range(2, LONGEST_PIECE + 1):
        found: Counter[str] = Counter()
        for word, count in alive.items():
            for start in range(len(word) - length + 1):
                piece = word[start:start + length]
                if piece[:-1] in frequent and piece[1:] in frequent and "▁" not in piece[1:]:
                    found[piece] += count
        frequent = {piece for piece, count in found.items() if count > 1}
        out.update({piece: found[piece] * length for piece in frequent})
        alive = {word: count for word, count in alive.items() if len(word) > length}
    return out


def _prune(pieces: list[str], fixed: int, counts: Counter[str], room: int) -> dict[str, float]:
    """Pieces with the logarithm of their probability; the first `fixed`, single characters, always stay."""
    index = {piece: number for number, piece in enumerate(pieces)}
    text, parts = sorted(counts), Lattice(pieces, index, LONGEST_PIECE)
    weights = np.array([counts[word] for word in text], np.float64)
    lattice = Lattice(text, index, LONGEST_PIECE)
    used = np.ones(len(pieces))
    alive = np.ones(len(pieces), bool)
    while True:
        for _ in range(ROUNDS):
            used = lattice.expected(_chances(used, alive, fixed), weights)
        surplus = int(alive.sum()) - room
        if surplus <= 0:
            break
        chance = _chances(used, alive, fixed)
        loss = np.full(len(pieces), np.inf)
        loose = np.flatnonzero(alive[fixed:]) + fixed
        whole = np.maximum(chance[loose], SMALLEST)
        loss[loose] = used[loose] * np.log(whole / parts.best_parts(chance)[loose])
        goes = np.argsort(np.round(loss, 6), kind="stable")[:min(surplus, int(alive.sum() * (1 - SHRINK)) + 1)]
        alive[goes] = False
    chance = _chances(used, alive, fixed)
    return {pieces[number]: round(float(np.log(chance[number])), 6) for number in np.flatnonzero(alive & (chance > 0))}


def _chances(used: Numbers, alive: np.ndarray[tuple[int], np.dtype[np.bool_]], fixed: int) -> Numbers:
    """Probabilities from counts (the M-step)."""
    kept = np.where(alive, used, 0.0)
    chance: Numbers = kept / kept.sum()
    chance[:fixed] = np.maximum(chance[:fixed], LEAST)
    return chance
