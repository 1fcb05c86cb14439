"""Texts that go on where prompts end, or that a source is turned into: sampling, greedy and beam search.

Masked models write by unmasking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from meristem.batch import Model
from meristem.generation.beam import Beam
from meristem.generation.given import Given, Prompt, given, start_of, together
from meristem.generation.sampling import SamplingSettings, choose, with_repetition_penalty, without
from meristem.generation.session import Session, steady
from meristem.generation.unmask import unmask
from meristem.generation.way import way_of
from meristem.generation.written import OnText, Writing, Written
from meristem.settings import MeristemError
from meristem.store.encode import separator_of
from meristem.tokenizers.tokenizer import Tokenizer

ROWS = 64  # texts written side by side


def write(
    model: Model, tokenizer: Tokenizer, prompts: Sequence[Prompt], settings: SamplingSettings, *, count: int = 1,
    on_text: OnText | None = None,
) -> list[list[Written]]:
    """`count` texts for each prompt: what follows it (an empty one begins a new document), or what it is turned into.

    An encoder-decoder takes the prompt as its source; a captioner takes pictures too.
    """
    if count < 1:
        raise MeristemError(f"count: {count} texts cannot be written, at least 1 can")
    if way_of(model) == "masked":
        return unmask(model, tokenizer, [str(prompt) for prompt in prompts], settings, count=count, on_text=on_text)
    if settings.searches and count > settings.beams:
        raise MeristemError(f"count: {count} texts need as many beams, not {settings.beams}; give beams={count}")
    starts = [given(model, tokenizer, prompt) for prompt in prompts]
    if settings.searches:
        return [_search(model, tokenizer, start, settings, count, on_text, number * count)
                for number, start in enumerate(starts)]
    writings = [
        Writing(tokenizer, start.prompt, settings.stop, _shower(on_text, number * count + copy))
        for number, start in enumerate(starts) for copy in range(count)
    ]
    for first in range(0, len(writings), ROWS):
        part = range(first, min(first + ROWS, len(writings)))
        session = partial(_begin, model, [starts[n // count] for n in part], settings.max_tokens)
        banned = unwanted(model, tokenizer)
        _grow(session, [writings[n] for n in part], [n % count for n in part], settings, banned, tokenizer.end)
    return [[writing.written() for writing in writings[n * count : (n + 1) * count]] for n in range(len(prompts))]


def _shower(on_text: OnText | None, number: int) -> Callable[[str], None] | None:
    return None if on_text is None else partial(on_text, number)


def unwanted(model: Model, tokenizer: Tokenizer) -> list[int]:
    """Special tokens that are no text: all but the end of a document, and the sentinels of what a source lacks.

    Rows that no token has are none either: published tables are often larger than their vocabularies. A start that a
    text does not begin after is one that the model was taught to write (BART's).
    """
    wanted = {tokenizer.end}
    if way_of(model) == "source":
        wanted |= {*tokenizer.sentinels, *({tokenizer.start} - set(start_of(model, tokenizer)))}
    spare = range(tokenizer.size, model.backbone.embedding().num_embeddings)
    return [*(token for token in tokenizer.specials.nonzero()[0].tolist() if token not in wanted), *spare]


def _begin(model: Model, starts: Sequence[Given], room: int) -> Session:
    tokens, sizes, inputs = together(starts, model.device)
    return Session(model, tokens, sizes, capacity=tokens.shape[1] + room, **inputs)


@torch.inference_mode()
def _grow(begin: Callable[[], Session], writings: list[Writing], copies: list[int], settings: SamplingSettings,
          banned: list[int], end: int | None) -> None:
    """Token by token until every text has ended; a text that has leaves the session."""
    going = list(range(len(writings)))
    with steady(len(writings)):
        session = begin()
        for position in range(settings.max_tokens):
            forbidden = [*banned, end] if position < settings.min_tokens and end is not None else banned
            texts = [writings[number].text_so_far for number in going]
            logits = without(with_repetition_penalty(session.logits, texts, settings.repetition_penalty), forbidden)
            chosen = choose(logits, settings, [copies[number] for number in going], position)
            scores = session.logits.gather(1, chosen[:, None])[:, 0] - session.logits.logsumexp(1)
            for number, token, score in zip(going, chosen.tolist(), scores.tolist(), strict=True):
                writings[number].push(token, score, settings.max_tokens)
            still = [place for place, number in enumerate(going) if writings[number].finished is None]
            if not still:
                return
            rows = torch.tensor(still, device=chosen.device)
            session.keep(rows)
            session.push(chosen[rows])
            going = [going[place] for place in still]


@torch.inference_mode()
def _search(model: Model, tokenizer: Tokenizer, start: Given, settings: SamplingSettings, count: int,
            on_text: OnText | None, first: int) -> list[Written]:
    """The best texts of a beam search, each with the log-probability it was found with."""
    prompt, banned = start.prompt, unwanted(model, tokenizer)
    end = separator_of(tokenizer)

    def adjust(logprobs: Tensor, texts: Sequence[Sequence[int]]) -> Tensor:
        forbidden = [*banned, end] if len(texts[0]) < settings.min_tokens else banned
        whole = [[*prompt, *tokens] for tokens in texts] if settings.repetition_penalty != 1.0 else []
        return without(with_repetition_penalty(logprobs, whole, settings.repetition_penalty), forbidden)

    def stopped(tokens: Sequence[int]) -> bool:
        return bool(settings.stop) and _spelled(tokenizer, prompt, tokens, settings, None).finished == "stop"

    beam = Beam(beams=settings.beams, most=settings.max_tokens, end=end, length_penalty=settings.length_penalty,
                adjust=adjust, ends=stopped)
    written = []
    for number, found in enumerate(beam.search(_begin(model, [start], settings.max_tokens), count)):
        writing = _spelled(tokenizer, prompt, found.tokens, settings, _shower(on_text, first + number))
        if writing.finished is None:
            writing.push(end, 0.0, settings.max_tokens)
        written.append(replace(writing.written(), score=found.logprob))
    return written


def _spelled(tokenizer: Tokenizer, prompt: list[int], tokens: Sequence[int], settings: SamplingSettings,
             show: Callable[[str], None] | None) -> Writing:
    """Tokens that are already chosen, as a text."""
    writing = Writing(tokenizer, prompt, settings.stop, show)
    for token in tokens:
        writing.push(token, 0.0, settings.max_tokens)
    return writing
