"""Labelled samples, and the pieces of them that are model inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One labelled example: its inputs, its gold answer where known, and where it was read from."""

    inputs: Mapping[str, Any]
    """Input name → value: text, text_b, words, question, passage, choices, turns, source, picture."""
    gold: Any = None
    location: str = ""
    """`file:line` or similar, for error messages."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The row it was read from, column → value, where other columns are still needed."""


@dataclass(frozen=True, kw_only=True)
class SamplePiece:
    """One model input: a whole sample, or one sliding window of a long one."""

    sample_index: int
    """Index of its sample in the list passed to `encode_samples`."""
    num_tokens: int
    """Length in tokens, special tokens included; batches group pieces of similar length (length bucketing)."""
    features: Mapping[str, Any]
    """Inputs of `prepare`: token ids, offsets, boundaries."""
    num_truncated: int = 0
    """Tokens of the sample that were truncated and are in none of its pieces."""
