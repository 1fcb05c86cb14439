"""What tasks on words share: their tags, the windows they are read in, the rows."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from meristem.batch import Batch, Draws, Row
from meristem.errors import MeristemError
from meristem.task import Piece, Sample
from meristem.tasks._reader import Framed, Text
from meristem.tasks._reading import Reading, ReadingSettings
from meristem.tasks._tagged import UNTOLD, Found, Tagged
from meristem.tasks._windows import Places, inmost, windows
from meristem.tasks._words import aligned, asked
from meristem.tokenizers.tokenizer import Tokenizer


class WordSettings(ReadingSettings):
    """What every task on words can be told."""

    labels: tuple[str, ...] = ()
    """The tags in the order of their scores; those of the training data."""
    usual: str | None = None
    """The tag of words that the tokenizer leaves nothing of: O, or the commonest of the training data."""
    read: Literal["first", "last"] = "first"
    """The sub-word a word is read at."""
    stride: int | None = Field(None, ge=1)
    """How many tokens behind the last one each window of a long text begins; three quarters of a window unless set."""


class Words(Reading):
    """A task on words: each is read at one token, in the window where it stands most inside."""

    shape = "words"

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        if not settings.labels:
            raise MeristemError(f"task {settings.name}: its labels are not known yet; they come from training data")
        self.number = {label: number for number, label in enumerate(settings.labels)}
        self.usual: str = settings.usual or ("O" if "O" in self.number else settings.labels[0])

    # ------------------------------------------------------------ what data tell

    @staticmethod
    def tags_of(sample: Sample) -> Sequence[str] | None:
        """The gold tags of a sample's words."""
        return sample.gold  # type: ignore[no-any-return]  # as its shape has it

    @classmethod
    def learn(cls, settings: Any, samples: Sequence[Sample]) -> Any:
        """The tags in order, O first, and the one that words get of which nothing can be read."""
        found = Counter(tag for sample in samples for tag in cls.tags_of(sample) or () if tag != UNTOLD)
        if not found:
            raise MeristemError("data.label: no training sample has a tag")
        labels = settings.labels or tuple(sorted(found, key=_order))
        for sample in samples:
            if other := {*(cls.tags_of(sample) or ())} - {*labels, UNTOLD}:
                raise MeristemError(f"{sample.place}: the tag {min(other)!r} is not among task.labels")
        usual = settings.usual or ("O" if "O" in labels else found.most_common(1)[0][0])
        return settings.model_copy(update={"labels": labels, "usual": usual})

    @classmethod
    def texts(cls, sample: Sample) -> list[str]:
        """The text alone: its words stand in it."""
        return [str(sample.given["text"])]

    def strange(self, samples: Sequence[Sample]) -> list[str]:
        """Tags that training data do not have: they can only be got wrong."""
        where: dict[str, list[str]] = {}
        for sample in samples:
            for tag in self.tags_of(sample) or ():
                if tag not in self.number and tag != UNTOLD:
                    where.setdefault(tag, []).append(sample.place)
        return [
            f"{found[0]}: the tag {tag!r} does not occur in training data; its {len(found)} words can only be got wrong"
            for tag, found in where.items()
        ]

    # ------------------------------------------------------------ rows

    def pieces(self, samples: Sequence[Sample]) -> list[Piece]:
        """A window for each text, several for a long one; every word that can be read is answered by one of them."""
        room = self.reader.room()
        stride = self.settings.stride or room - room // 4
        return [
            Piece(sample=number, size=len(parts["text"].ids) + self.reader.length - room, parts=parts)
            for number, (text, at) in enumerate(aligned(self.reader, samples, self.settings.read))
            for parts in self._windows(text, at, samples[number], room, stride)
        ]

    def _windows(self, text: Text, at: Places, sample: Sample, room: int, stride: int) -> Iterator[dict[str, Any]]:
        spans, tags = windows(len(text.ids), room, stride), self._numbers(sample)
        words = np.flatnonzero(at >= 0)
        places = at[words]
        owner = inmost(places, spans)
        for window, (start, stop) in enumerate(spans):
            inside = (places >= start) & (places < stop)
            mine = owner[inside] == window
            if window and not mine.any():
                continue
            yield {
                "text": text.cut(start, stop),
                "words": words[inside],
                "at": places[inside] - start,
                "mine": mine,
                "tags": None if tags is None else np.where(mine, tags[words[inside]], -1),
                "first": window == 0,
                **self.whole(sample, first=window == 0),
            }

    def whole(self, sample: Sample, *, first: bool) -> dict[str, Any]:
        """What a window holds besides its words; some is known of the sample's first one only."""
        return {}

    def _numbers(self, sample: Sample) -> Places | None:
        """The gold tags by number, −1 for what is untold or was never seen; none where nothing is known."""
        tags = self.tags_of(sample)
        return None if tags is None else np.array([self.number.get(tag, -1) for tag in tags], np.int64)

    def prepare(self, row: Row, draw: Draws) -> Row:
        """The window in its frame; `read` are all its words, the task's own goal those that are judged here."""
        parts: dict[str, Any] = row.notes["piece"].parts
        framed = self.reader.frame(parts["text"])
        at = parts["at"] + framed.starts[0]
        tags = np.full(len(at), -1, np.int64) if parts["tags"] is None else parts["tags"]
        goals: dict[str, Any] = {"read": {"at": at, "order": np.arange(len(at)), "values": tags}}
        if parts["tags"] is not None:
            goals[self.term] = {"at": at[tags >= 0], "values": tags[tags >= 0]}
        goals |= {**self.lm_goal(framed), **self.beside(framed, parts)}
        return Row(inputs=framed.inputs, goals=goals, notes=row.notes, sample=row.sample)

    @property
    def term(self) -> str:
        """The loss term of the tags."""
        return self.name

    def beside(self, framed: Framed, parts: Mapping[str, Any]) -> dict[str, Any]:
        """What else a row is asked for."""
        return {}

    def split(self, batch: Batch, found: NDArray[Any]) -> list[NDArray[Any]]:
        """What was found for all words that were read [..., n], row by row."""
        ends = np.cumsum([len(note["piece"].parts["words"]) for note in batch.notes])
        return np.split(found, ends[:-1], -1)

    def tagged(self, samples: Sequence[Sample], pieces: Sequence[Piece], found: Sequence[Found]) -> list[Tagged]:
        """Windows made one: each word from its own; words that could not be read are what words usually are."""
        labels = self.settings.labels
        tags = [[self.usual] * len(sample.given["words"]) for sample in samples]
        scores = [[0.0] * len(sample.given["words"]) for sample in samples]
        for piece, (best, chances) in zip(pieces, found, strict=True):
            mine = piece.parts["mine"]
            for word, tag, chance in zip(piece.parts["words"][mine], best[mine], chances[mine], strict=True):
                tags[piece.sample][word], scores[piece.sample][word] = labels[tag], float(chance)
        return [Tagged(tags=tuple(some), scores=tuple(own)) for some, own in zip(tags, scores, strict=True)]

    def asked(self, given: str | Mapping[str, Any]) -> Sample:
        """A raw text is cut: letters and digits together, punctuation, symbols and ideographs each by itself."""
        return asked(given, self.name)

    def commands(self, place: str, sample: Sample) -> list[str]:
        """The text, which is cut into words again."""
        return [f"meristem predict {place} {shlex.quote(str(sample.given['text']))}"]

    def told(self, sample: Sample) -> str:
        """Each word with its tag."""
        tags = self.tags_of(sample) or [UNTOLD] * len(sample.given["words"])
        return "  ".join(f"{word}/{tag}" for word, tag in zip(sample.given["words"], tags, strict=True))


def _order(tag: str) -> tuple[bool, str, str]:
    """O first, then by type, what begins before what goes on."""
    kind, _, name = tag.partition("-")
    return tag != "O", name, kind
