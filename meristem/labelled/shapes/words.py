"""Words, each with a tag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from meristem.labelled import values
from meristem.labelled.columns import TAGS, TEXT, WORDS
from meristem.labelled.found import Dropped, Flaw, Found, Notes
from meristem.labelled.joining import cut, joined, located
from meristem.labelled.shape import Shape
from meristem.labelled.tags import bio, entities, scheme
from meristem.task import Sample


class Words(Shape):
    """{"words", "text", "offsets"} → a tag for each word; entities are BIO whatever the file had."""

    def look(self) -> None:
        """Words may be a list, or a text that white space cuts; tags likewise."""
        columns = self.columns
        self.tags = self.right_column("label", TAGS, "the tags")
        words = columns.find("words", WORDS, besides=(self.tags,))
        text = columns.find("text", TEXT, besides=(self.tags, words))
        self.text = text
        self.words = words or text or columns.need("words", (), "the words")
        others = [name for name in columns.names if name.lower() in TAGS and name != self.tags]
        if self.tags and others and columns.data.label is None:
            self.notes.say(
                f"{columns.place}: tags are taken from {self.tags!r}; there is also {', '.join(others)} (data.label=…)"
            )

    def samples(self, found: Found) -> list[Sample]:
        """One sample."""
        given = self.given(found)
        return [Sample(given=given, gold=self.right(found, len(given["words"])), place=found.place)]

    def given(self, found: Found) -> dict[str, Any]:
        """Words, the text they stand in, and where."""
        value = values.listed(self.cell(found, self.words))
        if isinstance(value, str):
            words, offsets = cut(value)
            text = value
        else:
            words = tuple(str(word) for word in value or ())
            text, offsets = self._original(found, words)
        if not words:
            raise Dropped("no words")
        if not all(word and not word.isspace() for word in words):
            raise Flaw(f"{found.place}: word {next(n for n, w in enumerate(words, 1) if not w.strip())} is empty")
        return {"words": words, "text": text, "offsets": offsets}

    def right(self, found: Found, words: int) -> tuple[str, ...] | None:
        """A tag for each word; None where tags are not asked for and not there."""
        value = values.listed(found.values.get(self.tags)) if self.tags else None
        if value is None or values.nothing(value):
            if self.gold:
                raise self.unlabelled(found, "tags", self.tags)
            return None
        parts = value.split() if isinstance(value, str) else value
        if any(values.nothing(part) for part in parts):
            raise self.unlabelled(found, "tag for a word", self.tags)
        if len(parts) != words:
            raise Flaw(f"{found.place}: {words} words, but {len(parts)} tags")
        return tuple(str(part).strip() for part in parts)

    def _original(self, found: Found, words: tuple[str, ...]) -> tuple[str, tuple[tuple[int, int], ...]]:
        """The text that the file gives with the words, where they stand in it one after the other; else one made."""
        text = found.values.get(self.text) if self.text else None
        offsets = located(words, text) if isinstance(text, str) else None
        if isinstance(text, str) and offsets is not None:
            return text, offsets
        if isinstance(text, str):
            self.notes.add("texts do not hold their words in order; the words are joined instead", found.place)
        return joined(words)

    @classmethod
    def tagged(cls, sample: Sample) -> tuple[str, ...]:
        """The tags of a sample."""
        return tuple(sample.gold or ())

    @classmethod
    def retagged(cls, sample: Sample, tags: tuple[str, ...]) -> Sample:
        """A sample with other tags."""
        return replace(sample, gold=tags)

    @classmethod
    def settle(cls, groups: Sequence[list[Sample]], notes: Notes) -> None:
        """Recognise the scheme from all tags there are, and turn it into BIO; tags that mark no entities stay."""
        golds = [cls.tagged(sample) for group in groups for sample in group if sample.gold is not None]
        if not entities({tag for tags in golds for tag in tags}):
            return
        found, changed = scheme(golds), 0
        for group in groups:
            for at, sample in enumerate(group):
                tags = cls.tagged(sample)
                if sample.gold is not None and (made := bio(tags)) != tags:
                    group[at] = cls.retagged(sample, made)
                    changed += 1
        if changed:
            notes.say(f"tags are written as {found} and were turned into BIO (samples changed: {changed:,})")

    @classmethod
    def identity(cls, sample: Sample) -> str:
        """The words; how they were joined does not matter."""
        return "\x1e".join(sample.given["words"]).casefold()
