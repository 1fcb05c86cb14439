"""Image captioning: predict the caption from the image."""

from __future__ import annotations

from typing import Literal

from meristem.inputs.batch import RngFactory, Row
from meristem.interfaces.objective import ViewSpec
from meristem.objectives._sequence_target import SequenceTargetObjective, SequenceTargetSettings


class CaptionObjectiveSettings(SequenceTargetSettings):
    """Settings of image captioning."""

    name: Literal["caption"] = "caption"
    """The objective's name."""


class CaptionObjective(SequenceTargetObjective):
    """p(caption | image), from captioned images (corpus.image)."""

    Settings = CaptionObjectiveSettings
    name = "caption"
    requires = frozenset({"image"})
    source_kinds = frozenset({"image"})
    view = ViewSpec("images")

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """A row with the image as source and the caption as target; nothing is random."""
        return self.build_row(row, self.template.strip_start(row.inputs["tokens"]), image=row.inputs["image"])
