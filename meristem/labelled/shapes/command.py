"""A command: what is wanted, and which of its words say what about it."""

from __future__ import annotations

from dataclasses import replace

from meristem.labelled import values
from meristem.labelled.columns import INTENT
from meristem.labelled.found import Found
from meristem.labelled.shapes.words import Words
from meristem.task import Sample


class Command(Words):
    """As words → (intent, tags)."""

    def look(self) -> None:
        """The intent besides words and tags."""
        super().look()
        self.intent = self.right_column("intent", INTENT, "the intent", besides=(self.tags,))

    def samples(self, found: Found) -> list[Sample]:
        """One sample."""
        given = self.given(found)
        tags = self.right(found, len(given["words"]))
        intent = values.label(found.values.get(self.intent)) if self.intent else None
        if self.gold and intent is None:
            raise self.unlabelled(found, "intent", self.intent)
        gold = None if intent is None or tags is None else (str(intent), tags)
        return [Sample(given=given, gold=gold, place=found.place)]

    @classmethod
    def tagged(cls, sample: Sample) -> tuple[str, ...]:
        """The tags of a sample."""
        return tuple(sample.gold[1]) if sample.gold else ()

    @classmethod
    def retagged(cls, sample: Sample, tags: tuple[str, ...]) -> Sample:
        """A sample with other tags."""
        return replace(sample, gold=(sample.gold[0], tags))
