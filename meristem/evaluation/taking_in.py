"""A text as a run takes it in: framed as in training, as its task reads it, or beside a target that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.batch import Model, Row
from meristem.errors import MeristemError
from meristem.evaluation.asking import Given, asked
from meristem.evaluation.held_out import SEED
from meristem.generation.given import Given as Start
from meristem.generation.given import Picture, opening
from meristem.generation.given import given as start_from
from meristem.generation.sampling import SamplingSettings
from meristem.generation.way import reading_way, ways
from meristem.generation.write import write_from
from meristem.randomness import Draw
from meristem.store.encode import separator_of
from meristem.store.rows import ended
from meristem.task import Task
from meristem.tasks._reader import Reader, Text, Way
from meristem.tasks._sharing import shares
from meristem.tokenizers.tokenizer import Tokenizer

WRITTEN = ("written", "turns", "picture")
"""Shapes of samples whose answer is a text."""
PARTS = ("text", "text_b")
LONGEST = 64
"""Tokens that are written to be looked at: a model that has learned little never ends."""


@dataclass(frozen=True, kw_only=True)
class TakenIn:
    """What the backbone reads of one text."""

    inputs: dict[str, Any]
    """Its keyword arguments, one row of each."""
    says: tuple[int, ...] = ()
    """For what is written from a source: the token that each place of the target goes on with."""
    notices: tuple[str, ...] = ()


def take_in(
    model: Model,
    tokenizer: Tokenizer,
    given: Given,
    *,
    task: Task | None = None,
    target: str | None = None,
    picture: Picture | None = None,
) -> TakenIn:
    """A text, its parts by name, or a picture, on the way this run reads; a target that is not given is written."""
    if picture is not None:
        if "image" not in model.backbone.can:
            raise MeristemError("picture: this model reads texts alone; a captioner looks at pictures")
        if given:
            raise MeristemError("a picture is looked at by itself: give it without a text, a caption with --target")
        levels = picture if picture.dtype == np.uint8 else picture.astype(np.float32)
        return _beside(model, tokenizer, start_from(model, tokenizer, levels), target)
    if task is not None:
        return _by_task(model, tokenizer, task, given, target)
    texts = _texts(given)
    way = reading_way(model)
    if way == "source" or (target is not None and "source" in ways(model)):
        return _from_source(model, tokenizer, texts, target)
    if target is not None:
        raise MeristemError("target: this model writes nothing from a source; give the text alone")
    return _causal(model, tokenizer, texts) if way == "causal" else _framed(model, tokenizer, texts)


def _texts(given: Given) -> list[str]:
    """The one or two texts that a run without a task reads."""
    named: Mapping[str, Any] = {"text": given} if isinstance(given, str) else given
    wrong = [name for name in named if name not in PARTS]
    if wrong or "text" not in named:
        raise MeristemError(f"{(wrong or ['text_b'])[0]}: a run without a task reads a text, or text and text_b")
    return [str(named[name]) for name in PARTS if name in named]


def _one(texts: list[str]) -> str:
    if len(texts) > 1:
        raise MeristemError("text_b: this model was trained on one text at a time; give them as one")
    return texts[0]


def _lost(tokens: int, room: int) -> tuple[str, ...]:
    """A word on what did not fit."""
    if tokens <= room:
        return ()
    return (f"{tokens - room:,} of {tokens:,} tokens are not shown: the model reads {room:,} at once",)


def _rows(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """One row of each input, where the model is."""
    return {name: torch.as_tensor(np.asarray(value))[None].to(model.device) for name, value in inputs.items()}


def _causal(model: Model, tokenizer: Tokenizer, texts: list[str]) -> TakenIn:
    """As the beginning of a document."""
    first, ids = opening(model, tokenizer), tokenizer.encode(_one(texts), special=True).ids.tolist()
    room = model.backbone.length - len(first)
    tokens = [*first, *ids[:room]]
    if not tokens:
        raise MeristemError('there is no token in the text: give some words, as in "The garden was here."')
    return TakenIn(inputs={**_rows(model, {"tokens": tokens}), "causal": True}, notices=_lost(len(ids), room))


def _framed(model: Model, tokenizer: Tokenizer, texts: list[str]) -> TakenIn:
    """One or two texts between special tokens; one that no objective reads causally is seen whole."""
    can = model.backbone.can
    way: Way = "bidirectional" if "bidirectional" in can else "causal" if "causal" in can else "encoder_decoder"
    reader = Reader(tokenizer, way, model.backbone.length, model.begin or ())
    read = [Text.of(text, tokenizer.encode(text, special=True)) for text in texts]
    sizes, room = [len(text.ids) for text in read], reader.room(len(read))
    kept = (min(sizes[0], room),) if len(read) == 1 else shares(sizes[0], sizes[1], room)
    framed = reader.frame(*(text.cut(0, size) for text, size in zip(read, kept, strict=True)))
    return TakenIn(inputs=_rows(model, framed.inputs), notices=_lost(sum(sizes), room))


def _by_task(model: Model, tokenizer: Tokenizer, task: Task, given: Given, target: str | None) -> TakenIn:
    """The first row that the task makes of it."""
    sample, writes = asked(task, given), task.shape in WRITTEN
    if target is not None and not writes:
        raise MeristemError(f"target: task {task.name} writes no text; leave it out")
    pieces = task.pieces([sample if target is None else replace(sample, gold=(target,))])
    made = task.prepare(Row(inputs={}, notes={"piece": pieces[0]}), Draw(SEED, 0, 0))
    rows = made if isinstance(made, list) else [made]
    notices = _lost(pieces[0].size + pieces[0].cut, pieces[0].size) if pieces[0].cut else ()
    if len(pieces) * len(rows) > 1:
        notices += (f"task {task.name} reads this in {len(pieces) * len(rows)} rows; the first is shown",)
    inputs = rows[0].inputs
    if writes and "tokens" in inputs and len(inputs) > 1:
        found = _written_by_task(model, tokenizer, rows[0], target)
        return replace(found, notices=notices + found.notices)
    causal: dict[str, Any] = {"causal": True} if task.settings.way == "causal" else {}
    return TakenIn(inputs={**_rows(model, inputs), **causal}, notices=notices)


def _written_by_task(model: Model, tokenizer: Tokenizer, row: Row, target: str | None) -> TakenIn:
    """Both sides of a task that writes: a target's last token is predicted and not read."""
    tokens = row.inputs["tokens"].tolist()
    if target is not None:
        last = next(iter(row.goals.values()))["values"][-1]
        return TakenIn(inputs=_rows(model, row.inputs), says=(*tokens[1:], int(last)))
    given = {name: torch.as_tensor(np.array(value)) for name, value in row.inputs.items() if name != "tokens"}
    return _beside(model, tokenizer, Start(prompt=tokens, inputs=given), None)


def _from_source(model: Model, tokenizer: Tokenizer, texts: list[str], target: str | None) -> TakenIn:
    text = _one(texts)
    framed = 0 if tokenizer.frame is None else sum(map(len, tokenizer.frame))
    cut = _lost(len(tokenizer.encode(text, special=True).ids), model.backbone.length - framed)
    found = _beside(model, tokenizer, start_from(model, tokenizer, text, source=True), target)
    return replace(found, notices=cut + found.notices)


def _beside(model: Model, tokenizer: Tokenizer, start: Start, target: str | None) -> TakenIn:
    """A source, and the target that is given or that the model finds likeliest, token by token."""
    room = max(1, model.backbone.length + 1 - len(start.prompt))
    if target is None:
        said, notices = _said(model, tokenizer, start, min(room, LONGEST))
    else:
        said, notices = _told(tokenizer, start, target, room), ()
    says = (*start.prompt[1:], *said)
    tokens = torch.tensor([[start.prompt[0], *says[:-1]]], device=model.device)
    inputs: dict[str, Tensor] = {name: value[None].to(model.device) for name, value in start.inputs.items()}
    return TakenIn(inputs={**inputs, "tokens": tokens}, says=says, notices=notices)


def _said(model: Model, tokenizer: Tokenizer, start: Start, most: int) -> tuple[list[int], tuple[str, ...]]:
    """What the model writes; its end is the last thing it says."""
    settings = SamplingSettings.model_validate({"greedy": True, "max_tokens": most})
    ((written,),) = write_from(model, tokenizer, [start], settings)
    if written.finished == "end":
        return [*written.tokens, separator_of(tokenizer)][:most], ()
    return list(written.tokens), (f"what the model writes has not ended after {most} tokens; no more are shown",)


def _told(tokenizer: Tokenizer, start: Start, target: str, room: int) -> list[int]:
    """A target as training has it: framed or ended, without the part of its frame that targets begin after."""
    ids = ended(tokenizer.encode(target, special=True).ids.astype(np.int64), tokenizer, room)
    before = [] if tokenizer.frame is None else tokenizer.frame[0].tolist()
    known = len(before) if before and start.prompt[-len(before) :] == before else 0
    return [int(token) for token in ids[known:]]
