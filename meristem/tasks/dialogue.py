"""Dialogue: the turns of a conversation → the reply to the last of them (SPEC C13)."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field

from meristem.batch import Array, Model
from meristem.errors import MeristemError
from meristem.metrics import variety
from meristem.store.encode import separator_of
from meristem.task import Indices, Metrics, Sample
from meristem.tasks._writing import Said, Writing, WritingSettings
from meristem.tokenizers.tokenizer import Tokenizer


class DialogueSettings(WritingSettings):
    """What a dialogue can be told."""

    name: Literal["dialogue"] = "dialogue"
    """The task's name."""
    max_tokens: int = Field(64, ge=1)
    """Tokens of a reply at the most; a causal model keeps half of its length for the turns before it."""


class Dialogue(Writing):
    """p(reply | turns): turns are read, replies alone are learned."""

    Settings = DialogueSettings
    name = "dialogue"
    shape = "turns"

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        frame = tokenizer.pair_frame if settings.way == "causal" else None
        self.between: Array = np.array([separator_of(tokenizer)]) if frame is None else frame.between
        """What stands between two turns: the delimiter of a causal model, else the separator of documents."""

    def given(self, sample: Sample) -> Sequence[str]:
        """The turns."""
        return list(sample.given["turns"])

    def kept(self, parts: Sequence[Array], room: int) -> tuple[Array, int]:
        """The last turns, as many as fit whole; of a last one that is too long, its end."""
        out = parts[-1][max(0, len(parts[-1]) - room) :]
        lost = sum(map(len, parts)) - len(out)
        for turn in reversed(parts[:-1]):
            if len(turn) + len(self.between) + len(out) > room:
                break
            out, lost = np.concatenate([turn, self.between, out]), lost - len(turn)
        return out, lost

    def write(self, model: Model, samples: Sequence[Sample]) -> list[Said]:
        """Replies, and how likely those were that are right."""
        found = zip(super().write(model, samples), self.measured(model, samples), strict=True)
        return [replace(said, loss=loss, gold_tokens=tokens) for said, (loss, tokens) in found]

    def resampled(self, answers: Sequence[Said], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """Perplexity of the right replies, BLEU and chrF of the written ones, and how much they differ."""
        losses = np.array([[one.loss, one.gold_tokens] for one in answers])
        bleu, differing = super().resampled(answers, samples), variety.distinct_resampled([a.text for a in answers])

        def measure(at: Indices) -> Metrics:
            loss, tokens = losses[at].sum(0)
            return {"perplexity": math.exp(min(700.0, loss / max(1.0, tokens))), **bleu(at), **differing(at)}

        return measure

    def asked(self, given: str | Mapping[str, Any] | Sequence[str]) -> Sample:
        """One text, a list of turns, or a mapping with `turns`."""
        turns = given.get("turns", given.get("text")) if isinstance(given, Mapping) else given
        turns = (turns,) if isinstance(turns, str) else turns
        if not isinstance(turns, Sequence) or not turns or not all(isinstance(turn, str) for turn in turns):
            raise MeristemError(f"dialogue replies to a text or to a list of turns (turns=…), not to {given!r}")
        return Sample(given={"turns": tuple(turns)})

    def commands(self, place: str, sample: Sample) -> list[str]:
        """A reply to the last turn of a sample."""
        return [f"meristem predict {place} {shlex.quote(sample.given['turns'][-1])}"]
