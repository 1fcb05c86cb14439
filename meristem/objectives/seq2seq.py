"""Sequence to sequence: a target is written from its source, as translation and summaries are (SPEC B8)."""

from __future__ import annotations

from typing import Literal

from meristem.batch import Draws, Row, View
from meristem.objectives._written import Written, WrittenSettings


class Seq2SeqSettings(WrittenSettings):
    """What supervised writing can be told."""

    name: Literal["seq2seq"] = "seq2seq"
    """The objective's name."""


class Seq2Seq(Written):
    """p(target | source), from pairs (corpus.target)."""

    Settings = Seq2SeqSettings
    name = "seq2seq"
    needs = frozenset({"encoder_decoder"})
    source_kinds = frozenset({"text"})
    view = View("examples")

    def prepare(self, row: Row, draw: Draws) -> Row:
        """The view has both sides; nothing is drawn."""
        return self.write(row, self.bare(row.inputs["tokens"]), source=row.inputs["source"])
