"""One sample of a labelled set is asked for by its number: the story behind it, its draws, its language."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from typing import Any, TypeAlias

from meristem.randomness import generator
from meristem.samples.microworld import Story, story
from meristem.samples.microworld.dice import Dice

APART = 1_000_000
"""Stories of labelled sets have seeds from here on, those of corpora lie below."""
PARTS = 3
"""Sets whose seeds differ by no multiple of this share no sample."""
FURTHER = 1 << 32
"""From one story that is tried for a sample to the next: no set is so large."""
TRIES = 4
"""How often something is drawn from the same story, which costs less than another story."""

Row: TypeAlias = dict[str, Any]
Make: TypeAlias = "Callable[[Ask], Row | None]"


@dataclass(frozen=True)
class Ask:
    """Sample `number` of a set; where its story has nothing to ask about, later tries look at another one."""

    name: str
    seed: int
    number: int
    language: str
    options: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 0
    tale: int = 0
    """How many stories were passed over."""

    @cached_property
    def story(self) -> Story:
        """What happens in it."""
        return _story(self.seed + APART, self.number + self.tale * FURTHER)

    @cached_property
    def dice(self) -> Dice:
        """Draws of this try."""
        return Dice(generator(self.seed + APART, f"labelled {self.name}", 1 + self.attempt, self.number))

    @cached_property
    def wish(self) -> Dice:
        """Draws that stay through all tries: a label that is chosen so is as frequent as it should be."""
        return Dice(generator(self.seed + APART, f"labelled {self.name}", 0, self.number))


def rows(make: Make, key: str | None, first: Ask, size: int) -> Iterator[Row]:
    """The set's samples in order: each is the first of its tries that gives one.

    Where samples are so short that two could be alike, only those count whose `key` falls to the seed's own part.
    """
    for number in range(size):
        tale = 0
        for attempt in count():
            ask = Ask(first.name, first.seed, number, first.language, first.options, attempt, tale)
            row = make(ask)
            if row is not None and (key is None or part(str(row[key])) == first.seed % PARTS):
                yield row
                break
            tale += row is None or attempt % TRIES == TRIES - 1


@lru_cache(maxsize=4)
def _story(seed: int, number: int) -> Story:
    return story(seed, number)


def part(text: str) -> int:
    """Which seeds a sample with this text may belong to."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") % PARTS
