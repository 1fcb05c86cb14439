"""Text generation from prompts or sources: sampling, greedy decoding and beam search.

Masked language models generate by iterative unmasking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from meristem.config.errors import MeristemError
from meristem.dataset.length_buckets import length_batches
from meristem.generation.beam_search import BeamHypothesis, BeamSearch
from meristem.generation.continuous_batching import ContinuousBatch, SequenceState, TokenSampler
from meristem.generation.generated_text import GeneratedText, OnText, TextStream, build_text
from meristem.generation.generation_inputs import (
    GenerationInputs,
    Prompt,
    build_generation_inputs,
    collate_inputs,
    input_template,
)
from meristem.generation.head_selection import MASKED_KINDS, LMKind, lm_kind_for
from meristem.generation.incremental_decoder import DecodeSession
from meristem.generation.iterative_unmasking import generate_by_unmasking
from meristem.generation.logits_processors import build_processors
from meristem.generation.sampling import seeded_uniforms
from meristem.generation.settings import SamplingSettings
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

MAX_BEAM_ROWS = 256  # beams decoded together
UNMASKING_KINDS: tuple[LMKind, ...] = MASKED_KINDS
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
    kind = lm_kind_for(model, "generate", source=as_source or not texts)
    if kind in UNMASKING_KINDS and len(texts) == len(prompts) and not as_source:
        return generate_by_unmasking(model, tokenizer, texts, settings, count=count, on_text=on_text, lm_kind=kind)
    starts = [build_generation_inputs(model, tokenizer, prompt, as_source=as_source) for prompt in prompts]
    if len(lm_kinds := {start.lm_kind(model) for start in starts}) > 1:
        raise MeristemError(
            f"prompts of two kinds ({' and '.join(sorted(lm_kinds))}) in one call: pass each kind in its own call"
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
    lm_kind, settings = items[0].lm_kind(model), settings.with_seed()
    banned_ids = banned_token_ids(model, tokenizer, end_id, lm_kind)
    end_id = tokenizer.end if end_id is None else end_id
    if settings.uses_beam_search:
        return _beam_search(model, tokenizer, items, settings, count, on_text, banned_ids, end_id)
    sampler = TokenSampler.from_settings(settings, banned_ids, end_id, model.device)
    sequences = [
        SequenceState(
            inputs,
            sampler,
            seeded_uniforms(settings.seed or 0, prompt_index, copy_index),
            settings.max_tokens,
            end_id,
            _text_stream(tokenizer, inputs, settings, on_text, prompt_index * count + copy_index),
        )
        for prompt_index, inputs in enumerate(items)
        for copy_index in range(count)
    ]
    batch = ContinuousBatch(model, lm_kind=lm_kind)
    for sequence in sorted(sequences, key=lambda sequence: sequence.inputs.num_tokens):  # similar lengths together
        batch.add(sequence)
    batch.run()
    texts = [sequence.to_text(tokenizer, settings.used_seed) for sequence in sequences]
    return [texts[first : first + count] for first in range(0, len(texts), count)]


def _text_stream(
    tokenizer: Tokenizer, inputs: GenerationInputs, settings: SamplingSettings, on_text: OnText | None, text_index: int
) -> TextStream | None:
    """Decodes while tokens are generated, where that is needed."""
    if not (settings.stop or on_text):
        return None
    return TextStream(tokenizer, inputs.prompt_ids, settings.stop, _text_callback(on_text, text_index))


def _text_callback(on_text: OnText | None, text_index: int) -> Callable[[str], None] | None:
    return None if on_text is None else partial(on_text, text_index)


def banned_token_ids(
    model: Model, tokenizer: Tokenizer, end_id: int | None = None, lm_kind: LMKind | None = None
) -> tuple[int, ...]:
    """Token ids that are never generated: special tokens except the end token and, with a source, the sentinels.

    Embedding rows without a token are banned too: published tables are often larger than their vocabularies. A start
    token that targets do not begin after is allowed with a source: the model was trained to generate it (BART).
    """
    allowed_ids = {tokenizer.end if end_id is None else end_id}
    lm_kind = lm_kind or lm_kind_for(model, "generate")
    if lm_kind == "permutation":  # never trained to predict a special token, so it cannot end a text
        allowed_ids = set()
    if lm_kind == "source":
        allowed_ids |= {
            *tokenizer.sentinels,
            *({tokenizer.start} - set(input_template(model, tokenizer, lm_kind).decoder_start_ids)),
        }
    spare = range(tokenizer.vocab_size, model.backbone.embedding().num_embeddings)
    return (*(token for token in tokenizer.special_mask.nonzero()[0].tolist() if token not in allowed_ids), *spare)


def _beam_search(
    model: Model,
    tokenizer: Tokenizer,
    items: Sequence[GenerationInputs],
    settings: SamplingSettings,
    count: int,
    on_text: OnText | None,
    banned_ids: tuple[int, ...],
    end_id: int | None,
) -> list[list[GeneratedText]]:
    """The best `count` texts of a beam search for each input."""
    search = BeamSearch(
        num_beams=settings.beams,
        max_new_tokens=settings.max_tokens,
        end_id=end_id,
        length_penalty=settings.length_penalty,
        early_stopping=settings.early_stopping,
        processors=build_processors(settings, banned_ids, end_id, model.device),
    )
    sizes = [inputs.num_tokens for inputs in items]
    hypotheses: dict[int, list[BeamHypothesis]] = {}
    for indices in length_batches(sizes, max_rows=max(1, MAX_BEAM_ROWS // settings.beams)):
        batch_items = [items[index] for index in indices]
        tokens, lengths, inputs = collate_inputs(batch_items, model.device)
        capacity = tokens.shape[1] + min(settings.max_tokens, BEAM_CAPACITY)
        session = DecodeSession(model, tokens, lengths, capacity=capacity, **inputs)
        prompts = [item.prompt_ids for item in batch_items]
        is_finished = partial(_has_stop_string, tokenizer, prompts, settings.stop) if settings.stop else None
        hypotheses |= zip(indices, search.search_all(session, count, prompts, is_finished), strict=True)
    return [
        [
            build_text(
                tokenizer,
                items[index].prompt_ids,
                hypothesis.tokens,
                finished="length" if len(hypothesis.tokens) == settings.max_tokens else "end",
                score=hypothesis.logprob,
                stop=settings.stop,
                on_chunk=_text_callback(on_text, index * count + copy_index),
            )
            for copy_index, hypothesis in enumerate(hypotheses[index])
        ]
        for index in range(len(items))
    ]


def _has_stop_string(
    tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], stop: Sequence[str], tokens: Sequence[int], row: int
) -> bool:
    stream = TextStream(tokenizer, prompts[row], stop)
    return any(stream.push(token) for token in tokens)
