"""Captioning: what there is to say of a picture (SPEC B9)."""

from __future__ import annotations

from typing import Literal

from meristem.batch import Draws, Row, View
from meristem.objectives._written import Written, WrittenSettings


class CaptionSettings(WrittenSettings):
    """What captioning can be told."""

    name: Literal["caption"] = "caption"
    """The objective's name."""


class Caption(Written):
    """p(caption | picture), from pictures (corpus.picture)."""

    Settings = CaptionSettings
    name = "caption"
    needs = frozenset({"image"})
    source_kinds = frozenset({"image"})
    view = View("pictures")

    def prepare(self, row: Row, draw: Draws) -> Row:
        """The view has picture and caption; nothing is drawn."""
        return self.write(row, self.bare(row.inputs["tokens"]), image=row.inputs["image"])
