"""Texts that go on where prompts end, or that a source is turned into: sampling, greedy and beam search.

Masked models write by unmasking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.generation.beam import Beam, Found
from meristem.generation.given import Given, Prompt, given, start_of, together
from meristem.generation.sampling import SamplingSettings, choose, with_repetition_penalty, without, without_repeats
from meristem.generation.session import Session, steady
from meristem.generation.unmask import unmask
from meristem.generation.way import Way, way_for
from meristem.generation.written import OnText, Writing, Written
from meristem.store.encode import separator_of
from meristem.tokenizers.tokenizer import Tokenizer

ROWS = 64  # texts written side by side
BEAMS = 256  # texts followed side by side by beam search
UNMASKED: tuple[Way, ...] = ("masked", "generator")
"""Ways that write by unmasking, not token by token."""
SLOTS = 16  # tokens that beams have room for at first: what is copied from parent to child should be small


def write(
    model: Model, tokenizer: Tokenizer, prompts: Sequence[Prompt], settings: SamplingSettings, *, count: int = 1,
    on_text: OnText | None = None, source: bool = False,
) -> list[list[Written]]:
    """`count` texts for each prompt: what follows it (an empty one begins a new document), or what it is turned into.

    An encoder-decoder takes the prompt as its source; a captioner takes pictures too. A model that can do both goes on
    from a text unless `source` says that its encoder is to read it.
    """
    if count < 1:
        raise MeristemError(f"count: {count} texts cannot be written, at least 1 can")
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    way = way_for(model, "generate", source=source or not texts)
    if way in UNMASKED and len(texts) == len(prompts) and not source:
        return unmask(model, tokenizer, texts, settings, count=count, on_text=on_text, way=way)
    starts = [given(model, tokenizer, prompt, source=source) for prompt in prompts]
    if len(found := {start.way(model) for start in starts}) > 1:
        raise MeristemError(f"prompts of two kinds ({' and '.join(sorted(found))}) in one call: ask for each apart")
    return write_from(model, tokenizer, starts, settings, count=count, on_text=on_text)


def write_from(
    model: Model, tokenizer: Tokenizer, starts: Sequence[Given], settings: SamplingSettings, *, count: int = 1,
    on_text: OnText | None = None, end: int | None = None,
) -> list[list[Written]]:
    """The same from starts that are already tokens; `end` ends a text where that is not the tokenizer's own end."""
    if settings.searches and count > settings.beams:
        raise MeristemError(f"count: {count} texts need as many beams, not {settings.beams}; give beams={count}")
    if not starts:
        return []
    banned = unwanted(model, tokenizer, end, starts[0].way(model))
    order = sorted(range(len(starts)), key=lambda number: starts[number].size)  # like lengths side by side
    if settings.searches:
        found: dict[int, list[Found]] = {}
        for some in _groups(order, max(1, BEAMS // settings.beams)):
            found |= zip(some, _search(model, tokenizer, [starts[n] for n in some], settings, count, banned, end),
                         strict=True)
        return [[_spelled(tokenizer, start.prompt, one, settings, _shower(on_text, number * count + copy), end)
                 for copy, one in enumerate(found[number])] for number, start in enumerate(starts)]
    writings = [
        Writing(tokenizer, start.prompt, settings.stop, _shower(on_text, number * count + copy), end=end)
        for number, start in enumerate(starts) for copy in range(count)
    ]
    for some in _groups([n * count + copy for n in order for copy in range(count)], ROWS):
        session = partial(_begin, model, [starts[n // count] for n in some], settings.max_tokens)
        _grow(session, [writings[n] for n in some], [n % count for n in some], settings, banned,
              tokenizer.end if end is None else end)
    return [[writing.written() for writing in writings[n * count : (n + 1) * count]] for n in range(len(starts))]


def _groups(numbers: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (numbers[first : first + size] for first in range(0, len(numbers), size))


def _shower(on_text: OnText | None, number: int) -> Callable[[str], None] | None:
    return None if on_text is None else partial(on_text, number)


def unwanted(model: Model, tokenizer: Tokenizer, end: int | None = None, way: Way | None = None) -> list[int]:
    """Special tokens that are no text: all but the end of a document, and the sentinels of what a source lacks.

    Rows that no token has are none either: published tables are often larger than their vocabularies. A start that a
    text does not begin after is one that the model was taught to write (BART's).
    """
    wanted = {tokenizer.end if end is None else end}
    way = way or way_for(model, "generate")
    if way == "permutation":  # which was never taught to predict a special token, so it does not know where texts end
        wanted = set()
    if way == "source":
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
            logits = without_repeats(logits, [writings[number].tokens for number in going], settings.no_repeat)
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
def _search(model: Model, tokenizer: Tokenizer, starts: Sequence[Given], settings: SamplingSettings, count: int,
            banned: list[int], end: int | None) -> list[list[Found]]:
    """The best texts of a beam search from each start."""
    end = separator_of(tokenizer) if end is None else end

    def adjust(logprobs: Tensor, texts: Sequence[Sequence[int]], rows: Sequence[int]) -> Tensor:
        forbidden = [*banned, end] if len(texts[0]) < settings.min_tokens else banned
        if settings.repetition_penalty != 1.0:
            whole = [[*starts[row].prompt, *tokens] for row, tokens in zip(rows, texts, strict=True)]
            logprobs = with_repetition_penalty(logprobs, whole, settings.repetition_penalty)
        return without_repeats(without(logprobs, forbidden), texts, settings.no_repeat)

    def stopped(tokens: Sequence[int], row: int) -> bool:
        prompt = starts[row].prompt
        return bool(settings.stop) and _pushed(tokenizer, prompt, tokens, settings, None, end).finished == "stop"

    beam = Beam(beams=settings.beams, most=settings.max_tokens, end=end, length_penalty=settings.length_penalty,
                early=settings.early, adjust=adjust, ends=stopped)
    return beam.search_all(_begin(model, starts, min(settings.max_tokens, SLOTS)), count)


def _spelled(tokenizer: Tokenizer, prompt: list[int], found: Found, settings: SamplingSettings,
             show: Callable[[str], None] | None, end: int | None) -> Written:
    """What a search found, as a text with the log-probability it was found with."""
    end = separator_of(tokenizer) if end is None else end
    writing = _pushed(tokenizer, prompt, found.tokens, settings, show, end)
    if writing.finished is None:
        writing.push(end, 0.0, settings.max_tokens)
    return replace(writing.written(), score=found.logprob)


def _pushed(tokenizer: Tokenizer, prompt: list[int], tokens: Sequence[int], settings: SamplingSettings,
            show: Callable[[str], None] | None, end: int) -> Writing:
    """Tokens that are already chosen, as a text."""
    writing = Writing(tokenizer, prompt, settings.stop, show, end=end)
    for token in tokens:
        writing.push(token, 0.0, settings.max_tokens)
    return writing
