"""Classification: a text → a label, several labels or a number (SPEC C1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from meristem.batch import Draws, Row
from meristem.errors import MeristemError
from meristem.task import Piece, Sample
from meristem.tasks._labels import Labels, LabelSettings


class ClassificationSettings(LabelSettings):
    """What classification can be told."""

    name: Literal["classification"] = "classification"
    """The task's name."""


class Classification(Labels):
    """p(label | text)."""

    Settings = ClassificationSettings
    name = "classification"
    shape = "text"

    def pieces(self, samples: Sequence[Sample]) -> list[Piece]:
        """Each text's beginning, as far as it fits."""
        room, out = self.reader.room(), []
        for number, text in enumerate(self.reader.encode([sample.given["text"] for sample in samples], placed=False)):
            kept = text.cut(0, room)
            parts = {"text": kept, "goal": self.goal(samples[number])}
            size = len(kept.ids) + self.reader.length - room
            out.append(Piece(sample=number, size=size, parts=parts, cut=len(text.ids) - len(kept.ids)))
        return out

    def prepare(self, row: Row, draw: Draws) -> Row:
        """The text in its frame, read where it stands for the whole."""
        parts: dict[str, Any] = row.notes["piece"].parts
        framed = self.reader.frame(parts["text"])
        at = np.array([framed.summary])
        goals = {"read": {"at": at}, **self.lm_goal(framed)}
        if parts["goal"]:
            goals[self.name] = {"at": at, **parts["goal"]}
        return Row(inputs=framed.inputs, goals=goals, notes=row.notes, sample=row.sample)

    def asked(self, given: str | Mapping[str, Any]) -> Sample:
        """A text, with or without its name."""
        text = given if isinstance(given, str) else given.get("text")
        if not isinstance(text, str):
            raise MeristemError('task classification reads a text: give it as it is, or as {"text": "…"}')
        return Sample(given={"text": text})
