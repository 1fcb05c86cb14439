"""Signs that a model pleases its reward instead of writing better, measured before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError
from meristem.metrics import passages
from meristem.metrics.words import words

COPIED = (5, 6, 7, 8)
"""Words of a passage that counts as copied: four in a row are often an idiom, eight hardly ever come by chance."""
REPEATED = 4
"""Words of a passage that counts as repeated."""
WINDOW = 50
"""Words among which repetition is counted, so that a longer text is not thought more repetitive for its length."""
OPENING = 4
"""Words in which two texts begin alike."""
EARLY = 0.25
"""A text ends early when it has less than this share of the words that texts had before."""

Interval = tuple[float, float]
Measured = dict[str, tuple[float, float]]
"""Name → before and after."""
Fractions = dict[str, tuple[list[float], list[float]]]
"""Name → what each text adds above and below the line; the whole set's number is one sum over the other."""

MEANINGS = {
    "texts": "texts that were measured",
    "length": "words per text (ideographs count as words)",
    "early": "texts that end early: less than a quarter of the length they used to have",
    "unended": "texts cut off at the length limit",
    "within1": "distinct-1: different words among 50 in a row",
    "within2": "distinct-2: different pairs of words among 50 in a row",
    "within3": "distinct-3: different triples of words among 50 in a row",
    "repeated4": "texts that say four words in a row twice",
    "stutter": "texts in which some letters stand six times in a row inside a word",
    "longest_run": "times that one word is said in a row, at the most, per text",
    "copied5": "passages of 5 words that stand in the references or the prompt",
    "copied6": "passages of 6 words that stand in the references or the prompt",
    "copied7": "passages of 7 words that stand in the references or the prompt",
    "copied8": "passages of 8 words that stand in the references or the prompt",
    "longest_copied": "words of the longest copied passage, per text",
    "distinct2": "distinct-2: different pairs of words in all texts together",
    "distinct2_even": "the same with texts cut to one length before and after, and what a text repeats left out",
    "alike": "texts that begin with the same four words as the text of another prompt",
    "duplicates": "texts that are the same as the text of another prompt",
}
"""What each number is, for whoever reads it."""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What was written for some prompts, by place."""

    prompts: Sequence[str]
    texts: Sequence[str]
    references: Sequence[Sequence[str]] = ()
    """Texts that are known to be right, for each prompt; empty where there are none for any."""
    ended: Sequence[bool] = ()
    """Whether each came to its end; empty where all did."""

    def __post_init__(self) -> None:
        if not self.texts:
            raise MeristemError("there are no texts to measure")
        for name, some in {"prompts": self.prompts, "references": self.references, "ended": self.ended}.items():
            if len(some) != len(self.texts) and (some or name == "prompts"):
                raise MeristemError(f"{len(some)} {name} for {len(self.texts)} texts; each text needs its own")

    @cached_property
    def pieces(self) -> list[list[str]]:
        """The words and marks of each text."""
        return [passages.pieces(text) for text in self.texts]

    @cached_property
    def spoken(self) -> list[list[str]]:
        """The words of each text, without marks."""
        return [passages.spoken(text) for text in self.texts]

    @cached_property
    def lengths(self) -> list[int]:
        """Words of each text."""
        return [len(words(text)) for text in self.texts]

    def sources(self, place: int) -> list[list[str]]:
        """The words of what a text may have copied."""
        known = [*(self.references[place] if self.references else ()), self.prompts[place]]
        return [passages.spoken(text) for text in known]


def measured(before: Texts, after: Texts) -> Measured:
    """Every number of `MEANINGS`, before and after."""
    usual = median(before.lengths)
    even = max(1, int(min(usual, median(after.lengths))))
    old, new = ({**_whole(_by_text(one, usual)), **_sameness(one, even)} for one in (before, after))
    return {name: (old[name], new[name]) for name in MEANINGS}


def intervals(before: Texts, after: Texts, *, seed: int = 0) -> dict[str, tuple[Interval, Interval]]:
    """How sure those numbers are (bootstrap), before and after; sameness is of a whole set and has none."""
    usual = median(before.lengths)
    old, new = (_sure(_by_text(one, usual), seed) for one in (before, after))
    return {name: (old[name], new[name]) for name in old}


def _sure(each: Fractions, seed: int) -> dict[str, Interval]:
    from meristem.metrics import bootstrap  # it imports torch, which texts do not need

    table = np.array([column for both in each.values() for column in both]).T  # [texts, above and below each line]

    def measure(at: NDArray[np.int64]) -> dict[str, float]:
        above, below = bootstrap.totals(table, at).reshape(-1, 2).T
        return dict(zip(each, map(_share, each, above, below), strict=True))

    return bootstrap.intervals(measure, len(table), seed=seed)


def _whole(each: Fractions) -> dict[str, float]:
    return {name: _share(name, sum(above), sum(below)) for name, (above, below) in each.items()}


def _share(name: str, above: float, below: float) -> float:
    """One sum as a share of another; where there is nothing, nothing was repeated or copied."""
    return float(above / below) if below else float(name.startswith("within"))


def _by_text(one: Texts, usual: float) -> Fractions:
    """What is counted text by text."""
    ones = [1.0] * len(one.texts)
    runs = [float(passages.longest_run(said)) for said in one.pieces]
    return {
        "length": ([float(length) for length in one.lengths], ones),
        "early": ([float(length == 0 or length < EARLY * usual) for length in one.lengths], ones),
        "unended": ([float(not ended) for ended in one.ended] or [0.0 for _ in ones], ones),
        **{f"within{size}": _within(one, size) for size in (1, 2, 3)},
        f"repeated{REPEATED}": ([float(passages.repeats(said, REPEATED)) for said in one.pieces], ones),
        "stutter": ([float(passages.stutters(text)) for text in one.texts], ones),
        "longest_run": (runs, ones),
        **_copying(one, ones),
    }


def _within(one: Texts, size: int) -> tuple[list[float], list[float]]:
    """Inside each text: the mean share of different passages over stretches of `WINDOW` words."""
    cut = [[said[at : at + WINDOW] for at in range(0, len(said), WINDOW)] for said in one.pieces]
    return [sum(passages.distinct([some], size) for some in parts) for parts in cut], [
        float(len(parts)) for parts in cut
    ]


def _copying(one: Texts, ones: list[float]) -> Fractions:
    """From references and prompt: passages of each size in all texts together, and each text's longest."""
    pairs = [(said, one.sources(place)) for place, said in enumerate(one.spoken)]
    found = {}
    for size in COPIED:
        counted = [passages.copied(said, sources, size) for said, sources in pairs]
        found[f"copied{size}"] = ([float(taken) for taken, _ in counted], [float(all_) for _, all_ in counted])
    longest = [float(len(passages.longest_copied(said, sources))) for said, sources in pairs]
    return found | {"longest_copied": (longest, ones)}


def _sameness(one: Texts, even: int) -> dict[str, float]:
    """Between texts of different prompts; several of one prompt may well be alike."""
    first: dict[str, int] = {}
    for place, prompt in enumerate(one.prompts):
        first.setdefault(prompt, place)
    said = [words(one.texts[place]) for place in first.values()]
    return {
        "texts": float(len(one.texts)),
        "distinct2": passages.distinct(map(words, one.texts), 2),
        "distinct2_even": _unshared(said, even),
        "alike": _shared([tuple(one.spoken[place][:OPENING]) for place in first.values()]),
        "duplicates": _shared([tuple(one.spoken[place]) for place in first.values()]),
    }


def _unshared(texts: Sequence[Sequence[str]], even: int) -> float:
    """Different pairs of words among those of all texts; a text that repeats itself is not like others for that."""
    each = [set(passages.runs(said[:even], 2)) for said in texts]
    there = sum(map(len, each))
    return len(set().union(*each)) / there if there else 1.0


def _shared(some: Sequence[tuple[str, ...]]) -> float:
    """The share that occurs more than once."""
    times = Counter(some)
    return fmean(times[one] > 1 for one in some)
