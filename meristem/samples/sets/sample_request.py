"""Sample requests: one sample of a labelled set by its number, with its story, random numbers and language."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from typing import Any, TypeAlias

from meristem.samples.microworld import generate_story
from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.facts import Story
from meristem.utils.randomness import generator

SEED_OFFSET = 1_000_000
"""Stories of labelled sets have seeds from here on; those of corpora are below."""
NUM_PARTITIONS = 3
"""Sets whose seeds differ modulo this number share no sample."""
STORY_STRIDE = 1 << 32
"""Distance between the stories that are tried for one sample: larger than any set."""
TRIES_PER_STORY = 4
"""Attempts with one story, which are cheaper than another story."""

Row: TypeAlias = dict[str, Any]
RowFunction: TypeAlias = "Callable[[SampleRequest], Row | None]"


@dataclass(frozen=True)
class SampleRequest:
    """Sample `number` of a set; if its story is not suitable, later attempts use another one."""

    name: str
    seed: int
    number: int
    language: str
    options: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 0
    stories_skipped: int = 0
    """Number of stories that were skipped."""

    @cached_property
    def story(self) -> Story:
        """The story of the sample."""
        return _cached_story(self.seed + SEED_OFFSET, self.number + self.stories_skipped * STORY_STRIDE)

    @cached_property
    def rng(self) -> BlockRandom:
        """Random numbers of this attempt."""
        return BlockRandom(generator(self.seed + SEED_OFFSET, f"labelled {self.name}", 1 + self.attempt, self.number))

    @cached_property
    def label_rng(self) -> BlockRandom:
        """Random numbers that are the same in all attempts, so that labels chosen with them keep their frequencies."""
        return BlockRandom(generator(self.seed + SEED_OFFSET, f"labelled {self.name}", 0, self.number))


def generate_rows(
    make_row: RowFunction, unique_column: str | None, template: SampleRequest, size: int
) -> Iterator[Row]:
    """The samples of a set in order: each is its first successful attempt.

    For samples so short that two could coincide, `unique_column` must fall into the partition of the seed.
    """
    for number in range(size):
        stories_skipped = 0
        for attempt in count():
            request = SampleRequest(
                template.name, template.seed, number, template.language, template.options, attempt, stories_skipped
            )
            row = make_row(request)
            if row is not None and (
                unique_column is None or seed_partition(str(row[unique_column])) == template.seed % NUM_PARTITIONS
            ):
                yield row
                break
            stories_skipped += row is None or attempt % TRIES_PER_STORY == TRIES_PER_STORY - 1


@lru_cache(maxsize=4)
def _cached_story(seed: int, number: int) -> Story:
    return generate_story(seed, number)


def seed_partition(text: str) -> int:
    """The partition of seeds that a sample with this text belongs to."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") % NUM_PARTITIONS
