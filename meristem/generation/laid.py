"""Where a source and its target stand in a row: on the two sides of an encoder-decoder, or in one line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from meristem.batch import Array, Draws, Row
from meristem.errors import MeristemError
from meristem.generation.given import Given
from meristem.objectives._written import Written
from meristem.objectives.clm import CLM
from meristem.store.encode import separator_of
from meristem.store.rows import ended
from meristem.task import Piece
from meristem.tokenizers.tokenizer import Tokenizer


class Laid(ABC):
    """How pieces become rows that learn, and starts that are written from."""

    objective: Written | CLM
    """The one from pretraining whose loss this is."""
    term: str
    room: int
    """Tokens of a source that are read at the most."""
    most: int
    """Tokens of a target that are written at the most, its end left out."""
    end: int | None = None
    """The token that ends a target, where that is not the tokenizer's own."""

    @abstractmethod
    def piece(self, number: int, source: Array, target: Array | None) -> Piece:
        """A source that fits, and its target where that is known, cut to what does."""

    @abstractmethod
    def row(self, row: Row, draw: Draws) -> Row:
        """Inputs and goals of a piece; no goal where there is no target."""

    @abstractmethod
    def start(self, piece: Piece) -> Given:
        """What its target is written from."""


class TwoSides(Laid):
    """The encoder reads the source, or a picture; the decoder begins after a token and writes the target."""

    objective: Written

    def __init__(self, objective: Written, tokenizer: Tokenizer, length: int, most: int, key: str = "source") -> None:
        self.objective, self.term, self.tokenizer, self.key = objective, objective.name, tokenizer, key
        framed = 0 if tokenizer.frame is None else sum(map(len, tokenizer.frame))
        self.length, self.room = length, length - framed
        self.target = length - int(dict(objective.view.options).get("spare", 0))
        self.most = min(most, self.target)
        if self.room < 1:
            raise MeristemError(f"task.length: {length} leaves no room for text beside {framed} special tokens")

    def piece(self, number: int, source: Array, target: Array | None) -> Piece:
        """As the views of a store cut both sides: one that was cut does not end."""
        given = ended(source, self.tokenizer, self.length) if self.key == "source" else source
        begin = len(self.objective.begin_ids)
        parts: dict[str, Any] = {"given": given, "target": None}
        lost = 0
        if target is not None:
            whole = ended(target, self.tokenizer, self.target)
            parts["target"] = self.objective.bare(whole)
            lost = max(0, len(target) - len(whole))
            begin += len(parts["target"]) - 1
        # by the longer side batches are 92 % full on Multi30k, by the sum of both 80 %
        size = max(begin, len(given)) if self.key == "source" else begin
        return Piece(sample=number, size=size, parts=parts, cut=lost)

    def row(self, row: Row, draw: Draws) -> Row:
        """The pretraining objective's own row."""
        parts = row.notes["piece"].parts
        given = {self.key: parts["given"]}
        if parts["target"] is not None:
            return self.objective.write(row, parts["target"], **given)
        tokens = np.array(self.objective.begin_ids, np.int64)
        return Row(inputs={**given, "tokens": tokens}, notes=row.notes, sample=row.sample)

    def start(self, piece: Piece) -> Given:
        """The source for the encoder, and what targets begin after."""
        return Given(
            prompt=list(self.objective.begin_ids), inputs={self.key: torch.from_numpy(np.array(piece.parts["given"]))}
        )


class GoingOn(Laid):
    """A causal text goes on after its prompt, as in pretraining; of a long prompt the end is read."""

    objective: CLM

    def __init__(self, objective: CLM, tokenizer: Tokenizer, length: int, most: int) -> None:
        self.objective, self.term = objective, objective.name
        begin = objective.begin_ids
        self.opening = [separator_of(tokenizer)] if begin is None else list(begin)
        self.most = min(most, max(1, length // 2))
        self.room, self.end = length - len(self.opening) - self.most, tokenizer.end
        if self.room < 0:
            raise MeristemError(f"model.length: {length} leaves no room for a text beside its opening; it needs 4")

    def piece(self, number: int, source: Array, target: Array | None) -> Piece:
        """What fits of both; a target that was cut does not end."""
        kept = source[len(source) - min(len(source), self.room) :]
        prompt = np.concatenate([self.opening, kept]).astype(np.int64)
        if not len(prompt):
            raise MeristemError("no token begins a text for this model, so every prompt needs words")
        parts: dict[str, Any] = {"prompt": prompt, "target": None}
        if target is not None:
            ending = [] if len(target) > self.most or self.end is None else [self.end]
            parts["target"] = np.concatenate([target[: self.most], ending]).astype(np.int64)
        return Piece(sample=number, size=len(prompt), parts=parts, cut=len(source) - len(kept))

    def row(self, row: Row, draw: Draws) -> Row:
        """The causal objective's row, with goals from the prompt's last token on."""
        return _in_line(self.objective, self.term, row, draw)

    def start(self, piece: Piece) -> Given:
        """The prompt."""
        return Given(prompt=piece.parts["prompt"].tolist())


class OneLine(Laid):
    """`start source delimiter target extract` for a causal model; only the target and its end are predicted."""

    objective: CLM

    def __init__(self, objective: CLM, tokenizer: Tokenizer, length: int, most: int) -> None:
        frame = tokenizer.pair_frame
        if frame is None or not len(frame.between) or not len(frame.after):
            raise MeristemError("this tokenizer puts nothing between two texts; task.way=causal needs a delimiter")
        self.objective, self.term, self.frame = objective, objective.name, frame
        self.most = min(most, length // 2)
        self.room = length - len(frame.before) - len(frame.between) - self.most
        self.end = int(frame.after[0])
        if self.room < 1:
            raise MeristemError(f"task.length: {length} leaves no room for a source beside its target; it needs 6")

    def piece(self, number: int, source: Array, target: Array | None) -> Piece:
        """The prompt, which leaves room for the longest target; a target that was cut does not end."""
        prompt = np.concatenate([self.frame.before, source[: self.room], self.frame.between]).astype(np.int64)
        parts: dict[str, Any] = {"prompt": prompt, "target": None}
        size, lost = len(prompt), max(0, len(source) - self.room)
        if target is not None:
            ending = self.frame.after[: 0 if len(target) > self.most else 1]
            parts["target"] = np.concatenate([target[: self.most], ending]).astype(np.int64)
            size += len(parts["target"]) - 1
            lost += max(0, len(target) - self.most)
        return Piece(sample=number, size=size, parts=parts, cut=lost)

    def row(self, row: Row, draw: Draws) -> Row:
        """The causal objective's row, with goals from the delimiter on."""
        return _in_line(self.objective, self.term, row, draw)

    def start(self, piece: Piece) -> Given:
        """Everything up to the delimiter."""
        return Given(prompt=piece.parts["prompt"].tolist())


def _in_line(objective: CLM, term: str, row: Row, draw: Draws) -> Row:
    """Prompt and target as one line; the target is predicted, and what predicts the whole line is kept apart."""
    prompt, target = (row.notes["piece"].parts[key] for key in ("prompt", "target"))
    if target is None:
        return Row(inputs={"tokens": prompt}, notes=row.notes, sample=row.sample)
    whole = Row(inputs={"tokens": np.concatenate([prompt, target])}, notes=row.notes, sample=row.sample)
    made = objective.prepare(whole, draw)
    every = made.goals.pop(term)
    made.goals |= {"every": every, term: {key: value[len(prompt) - 1 :] for key, value in every.items()}}
    return made
