"""Sequence-to-sequence training on pairs of source and target text, such as translation and summarization."""

from __future__ import annotations

from typing import Literal

from meristem.inputs.batch import RngFactory, Row
from meristem.interfaces.objective import ViewSpec
from meristem.objectives._sequence_target import SequenceTargetObjective, SequenceTargetSettings


class Seq2SeqObjectiveSettings(SequenceTargetSettings):
    """Settings of sequence-to-sequence training."""

    name: Literal["seq2seq"] = "seq2seq"
    """The objective's name."""


class Seq2SeqObjective(SequenceTargetObjective):
    """p(target | source), from text pairs (corpus.target)."""

    Settings = Seq2SeqObjectiveSettings
    name = "seq2seq"
    requires = frozenset({"encoder_decoder"})
    source_kinds = frozenset({"text"})
    view = ViewSpec("examples")

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        """A row with source and target from the view; nothing is random."""
        return self.build_row(row, self.template.strip_start(row.inputs["tokens"]), source=row.inputs["source"])
