"""Text generation from prompts or sources: sampling, greedy decoding and beam search.

Masked language models generate by iterative unmasking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.generation.beam_search import BeamHypothesis, BeamSearch
from meristem.generation.generated_text import GeneratedText, GeneratedTextBuilder, OnText
from meristem.generation.generation_inputs import (
    GenerationInputs,
    Prompt,
    build_generation_inputs,
    collate_inputs,
    input_template,
)
from meristem.generation.head_selection import LMKind, lm_kind_for
from meristem.generation.incremental_decoder import DecodeSession, limit_threads
from meristem.generation.iterative_unmasking import generate_by_unmasking
from meristem.generation.sampling import (
    SamplingSettings,
    apply_repetition_penalty,
    ban_repeated_ngrams,
    ban_tokens,
    sample_next_tokens,
)
from meristem.inputs.template import separator_id
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

MAX_ROWS = 64  # sequences decoded together
MAX_BEAM_ROWS = 256  # beams decoded together
UNMASKING_KINDS: tuple[LMKind, ...] = ("masked", "generator")
"""Kinds that generate by iterative unmasking, not token by token."""
BEAM_CAPACITY = 16  # initial KV cache slots of beams: what is copied from parent to child should be small


def generate(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[Prompt],
    settings: SamplingSettings,
    *,
    count: int = 1,
    on_text: OnText | None = None,
    as_source: bool = False,
) -> list[list[GeneratedText]]:
    """`count` texts per prompt: its continuation (an empty prompt starts a new document), or its target.

    An encoder-decoder takes the prompt as its source; a captioner takes images too. A model that can do both continues
    the prompt unless `as_source` asks for its encoder to read it.
    """
    if count < 1:
        raise MeristemError(f"count: expected at least 1 text, got {count}")
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    way = lm_kind_for(model, "generate", source=as_source or not texts)
    if way in UNMASKING_KINDS and len(texts) == len(prompts) and not as_source:
        return generate_by_unmasking(model, tokenizer, texts, settings, count=count, on_text=on_text, lm_kind=way)
    starts = [build_generation_inputs(model, tokenizer, prompt, as_source=as_source) for prompt in prompts]
    if len(found := {start.lm_kind(model) for start in starts}) > 1:
        raise MeristemError(
            f"prompts of two kinds ({' and '.join(sorted(found))}) in one call: pass each kind in its own call"
        )
    return generate_from_inputs(model, tokenizer, starts, settings, count=count, on_text=on_text)


def generate_from_inputs(
    model: Model,
    tokenizer: Tokenizer,
    items: Sequence[GenerationInputs],
    settings: SamplingSettings,
    *,
    count: int = 1,
    on_text: OnText | None = None,
    end_id: int | None = None,
) -> list[list[GeneratedText]]:
    """The same from tokenized inputs; `end_id` replaces the tokenizer's end token."""
    if settings.uses_beam_search and count > settings.beams:
        raise MeristemError(
            f"count: {count} texts need at least as many beams, got {settings.beams}; set beams={count}"
        )
    if not items:
        return []
    banned = banned_token_ids(model, tokenizer, end_id, items[0].lm_kind(model))
    order = sorted(range(len(items)), key=lambda number: items[number].num_tokens)  # similar lengths together
    if settings.uses_beam_search:
        found: dict[int, list[BeamHypothesis]] = {}
        for some in _chunks(order, max(1, MAX_BEAM_ROWS // settings.beams)):
            found |= zip(
                some,
                _beam_search(model, tokenizer, [items[n] for n in some], settings, count, banned, end_id),
                strict=True,
            )
        return [
            [
                _text_of_hypothesis(
                    tokenizer, start.prompt_ids, one, settings, _text_callback(on_text, number * count + copy), end_id
                )
                for copy, one in enumerate(found[number])
            ]
            for number, start in enumerate(items)
        ]
    writings = [
        GeneratedTextBuilder(
            tokenizer, start.prompt_ids, settings.stop, _text_callback(on_text, number * count + copy), end_id=end_id
        )
        for number, start in enumerate(items)
        for copy in range(count)
    ]
    for some in _chunks([n * count + copy for n in order for copy in range(count)], MAX_ROWS):
        session = partial(_start_session, model, [items[n // count] for n in some], settings.max_tokens)
        _decode_loop(
            session,
            [writings[n] for n in some],
            [n % count for n in some],
            settings,
            banned,
            tokenizer.end if end_id is None else end_id,
        )
    return [[writing.build() for writing in writings[n * count : (n + 1) * count]] for n in range(len(items))]


def _chunks(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (indices[first : first + size] for first in range(0, len(indices), size))


def _text_callback(on_text: OnText | None, text_index: int) -> Callable[[str], None] | None:
    return None if on_text is None else partial(on_text, text_index)


def banned_token_ids(
    model: Model, tokenizer: Tokenizer, end_id: int | None = None, lm_kind: LMKind | None = None
) -> list[int]:
    """Token ids that are never generated: special tokens except the end token and, with a source, the sentinels.

    Embedding rows without a token are banned too: published tables are often larger than their vocabularies. A start
    token that targets do not begin after is allowed with a source: the model was trained to generate it (BART).
    """
    wanted = {tokenizer.end if end_id is None else end_id}
    lm_kind = lm_kind or lm_kind_for(model, "generate")
    if lm_kind == "permutation":  # never trained to predict a special token, so it cannot end a text
        wanted = set()
    if lm_kind == "source":
        wanted |= {
            *tokenizer.sentinels,
            *({tokenizer.start} - set(input_template(model, tokenizer, lm_kind).decoder_start_ids)),
        }
    spare = range(tokenizer.vocab_size, model.backbone.embedding().num_embeddings)
    return [*(token for token in tokenizer.special_mask.nonzero()[0].tolist() if token not in wanted), *spare]


def _start_session(model: Model, items: Sequence[GenerationInputs], max_new_tokens: int) -> DecodeSession:
    tokens, sizes, inputs = collate_inputs(items, model.device)
    return DecodeSession(model, tokens, sizes, capacity=tokens.shape[1] + max_new_tokens, **inputs)


@torch.inference_mode()
def _decode_loop(
    start_session: Callable[[], DecodeSession],
    builders: list[GeneratedTextBuilder],
    copy_indices: list[int],
    settings: SamplingSettings,
    banned_ids: list[int],
    end_id: int | None,
) -> None:
    """Decode token by token until every text is finished; finished texts leave the session."""
    going = list(range(len(builders)))
    with limit_threads(len(builders)):
        session = start_session()
        for position in range(settings.max_tokens):
            forbidden = [*banned_ids, end_id] if position < settings.min_tokens and end_id is not None else banned_ids
            texts = [builders[number].all_token_ids for number in going]
            logits = ban_tokens(apply_repetition_penalty(session.logits, texts, settings.repetition_penalty), forbidden)
            logits = ban_repeated_ngrams(
                logits, [builders[number].token_ids for number in going], settings.no_repeat_ngram_size
            )
            chosen = sample_next_tokens(logits, settings, [copy_indices[number] for number in going], position)
            scores = session.logits.gather(1, chosen[:, None])[:, 0] - session.logits.logsumexp(1)
            for number, token, score in zip(going, chosen.tolist(), scores.tolist(), strict=True):
                builders[number].add_token(token, score, settings.max_tokens)
            still = [place for place, number in enumerate(going) if builders[number].finished is None]
            if not still:
                return
            rows = torch.tensor(still, device=chosen.device)
            session.select_rows(rows)
            session.decode_step(chosen[rows])
            going = [going[place] for place in still]


@torch.inference_mode()
def _beam_search(
    model: Model,
    tokenizer: Tokenizer,
    items: Sequence[GenerationInputs],
    settings: SamplingSettings,
    count: int,
    banned_ids: list[int],
    end_id: int | None,
) -> list[list[BeamHypothesis]]:
    """The best `count` hypotheses of a beam search for each input."""
    end_id = separator_id(tokenizer) if end_id is None else end_id

    def adjust(logprobs: Tensor, texts: Sequence[Sequence[int]], rows: Sequence[int]) -> Tensor:
        forbidden = [*banned_ids, end_id] if len(texts[0]) < settings.min_tokens else banned_ids
        if settings.repetition_penalty != 1.0:
            whole = [[*items[row].prompt_ids, *tokens] for row, tokens in zip(rows, texts, strict=True)]
            logprobs = apply_repetition_penalty(logprobs, whole, settings.repetition_penalty)
        return ban_repeated_ngrams(ban_tokens(logprobs, forbidden), texts, settings.no_repeat_ngram_size)

    def stopped(tokens: Sequence[int], row: int) -> bool:
        prompt = items[row].prompt_ids
        return (
            bool(settings.stop)
            and _text_of_tokens(tokenizer, prompt, tokens, settings, None, end_id).finished == "stop"
        )

    beam = BeamSearch(
        num_beams=settings.beams,
        max_new_tokens=settings.max_tokens,
        end_id=end_id,
        length_penalty=settings.length_penalty,
        early_stopping=settings.early_stopping,
        process_logprobs=adjust,
        is_finished=stopped,
    )
    return beam.search_all(_start_session(model, items, min(settings.max_tokens, BEAM_CAPACITY)), count)


def _text_of_hypothesis(
    tokenizer: Tokenizer,
    prompt_ids: list[int],
    hypothesis: BeamHypothesis,
    settings: SamplingSettings,
    on_chunk: Callable[[str], None] | None,
    end_id: int | None,
) -> GeneratedText:
    """A hypothesis as a text, with its log-probability."""
    end_id = separator_id(tokenizer) if end_id is None else end_id
    writing = _text_of_tokens(tokenizer, prompt_ids, hypothesis.tokens, settings, on_chunk, end_id)
    if writing.finished is None:
        writing.add_token(end_id, 0.0, settings.max_tokens)
    return replace(writing.build(), score=hypothesis.logprob)


def _text_of_tokens(
    tokenizer: Tokenizer,
    prompt_ids: list[int],
    token_ids: Sequence[int],
    settings: SamplingSettings,
    on_chunk: Callable[[str], None] | None,
    end_id: int,
) -> GeneratedTextBuilder:
    """Chosen tokens as a text builder."""
    writing = GeneratedTextBuilder(tokenizer, prompt_ids, settings.stop, on_chunk, end_id=end_id)
    for token in token_ids:
        writing.add_token(token, 0.0, settings.max_tokens)
    return writing
