"""Attention maps: the attention weights of every layer and head for one input, with token labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.data.text_units import word_spans
from meristem.drawing.attention_record import AttentionRecord, AttentionWeights, Floats
from meristem.drawing.attention_record import ImageArray as Pixels
from meristem.evaluation.attention_inputs import AttentionInputs, build_attention_inputs
from meristem.evaluation.held_out_loss import SEED, eval_mode
from meristem.evaluation.prediction_requests import TaskInput
from meristem.generation.generation_inputs import ImageArray, input_template
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.task import Task
from meristem.tokenizers.tokenizer import Tokenizer, replace_surrogates
from meristem.utils.randomness import generator

EXTRA_OUTPUTS = ("attention",)


def attention_maps(
    model: Model,
    tokenizer: Tokenizer,
    task_input: TaskInput = "",
    *,
    run: str = "",
    task: Task | None = None,
    target: str | None = None,
    image: ImageArray | None = None,
    order: Sequence[int] | None = None,
    previous_text: str | None = None,
) -> AttentionRecord:
    """All attention weights for a text, a mapping of task inputs, or an image.

    `target` is the target text of an encoder-decoder, greedily decoded by default; `order` the factorisation order of
    two-stream attention (XLNet), randomly drawn by default; `previous_text` fills the memory of a model that has one.
    """
    _check_supported(model, task, order)
    factorization_order: tuple[int, ...] = ()
    with eval_mode(model):
        attention_inputs = build_attention_inputs(model, tokenizer, task_input, task=task, target=target, image=image)
        inputs, memory_labels = _with_memory(model, tokenizer, previous_text, attention_inputs.inputs)
        hidden: Hidden = model.backbone(**inputs, want=EXTRA_OUTPUTS)
        if not hidden.attention:
            raise no_attention_error(model)
        if "source" in inputs or "image" in inputs:
            kinds = _decoder_attention(hidden, attention_inputs, tokenizer)
        else:
            labels = tokenizer.display_labels(inputs["tokens"][0].tolist())
            kinds = {"self": _self_attention(hidden.attention, labels, memory_labels)}
            if "two_stream" in model.backbone.capabilities and task is None:
                text = task_input if isinstance(task_input, str) else ""
                streams, factorization_order = _two_stream_attention(
                    model, tokenizer, inputs, order, memory_labels, text
                )
                kinds |= streams
    if target is None:
        target = tokenizer.decode(attention_inputs.next_token_ids).strip()
    target_text = replace_surrogates(target)
    return AttentionRecord(
        text=_one_line(task_input) or target_text,
        run=run,
        kinds=kinds,
        target=target_text,
        picture=None if image is None else _to_uint8(image),
        order=factorization_order,
        notices=attention_inputs.notices,
    )


def _check_supported(model: Model, task: Task | None, order: Sequence[int] | None) -> None:
    """Raise an error for unsupported models and settings before any computation."""
    if not model.backbone.has_attention:
        raise no_attention_error(model)
    if order is not None and ("two_stream" not in model.backbone.capabilities or task is not None):
        raise MeristemError("order: only a pretrained model with two-stream attention takes one (model.family=xlnet)")


def no_attention_error(model: Model) -> MeristemError:
    """The error for a model without attention weights: it names models that have them."""
    return MeristemError(
        f"this {type(model.backbone).__name__} has no attention; Transformers have it "
        "(bert, gpt2, xlnet, transformer, captioner, …), and so has rnn with model.attention=general"
    )


def _one_line(task_input: TaskInput) -> str:
    """The input in one line, without surrogate characters, which cannot be written to a file."""
    parts = task_input.values() if isinstance(task_input, Mapping) else [task_input]
    return replace_surrogates(
        " | ".join(part if isinstance(part, str) else " | ".join(map(str, part)) for part in parts)
    )


def _to_uint8(image: ImageArray) -> Pixels:
    """Pixels as uint8, also from floats between 0 and 1."""
    levels = np.asarray(image)
    return levels if levels.dtype == np.uint8 else np.round(levels * 255).clip(0, 255).astype(np.uint8)


def _stack_layers(layers: Sequence[Tensor]) -> Floats:
    """[L, H, Q, K] attention weights of the only row."""
    return torch.stack([layer[0] for layer in layers]).float().cpu().numpy()


def _self_attention(layers: Sequence[Tensor], labels: Sequence[str], memory_labels: Sequence[str]) -> AttentionWeights:
    """Self-attention over a text and its memory; empty memory slots are left out."""
    keys = (*memory_labels, *labels)
    weights = _stack_layers(layers)[..., -len(keys) :]
    return AttentionWeights(queries=tuple(labels), keys=keys, weights=weights, supports_rollout=True)


def _decoder_attention(
    hidden: Hidden, attention_inputs: AttentionInputs, tokenizer: Tokenizer
) -> dict[str, AttentionWeights]:
    """Cross-attention and decoder self-attention; encoder self-attention if the encoder has attention.

    A row of `cross` is the token being generated; one of `decoder` the token just read, which is also a column.
    """
    decoder_labels = tuple(tokenizer.display_labels(attention_inputs.inputs["tokens"][0].tolist()))
    queries = tuple(tokenizer.display_labels(attention_inputs.next_token_ids)) or decoder_labels
    cross_weights = _stack_layers(hidden.attention)
    if "image" in attention_inputs.inputs:
        name, keys = "image", _patch_labels(cross_weights.shape[-1])
    else:
        keys = tuple(tokenizer.display_labels(attention_inputs.inputs["source"][0].tolist()))
        name = "cross" if "encoder_attention" in hidden.extra else "align"
    kinds = {name: AttentionWeights(queries=queries, keys=keys, weights=cross_weights)}
    for side, labels in (("encoder", keys), ("decoder", decoder_labels)):
        if layers := hidden.extra.get(f"{side}_attention"):
            kinds["self" if side == "encoder" else side] = _self_attention(layers, labels, ())
    return kinds


def _patch_labels(num_patches: int) -> tuple[str, ...]:
    """Row and column of each image patch, from 1."""
    side = round(num_patches**0.5)
    return tuple(f"{index // side + 1},{index % side + 1}" for index in range(num_patches))


def _with_memory(
    model: Model, tokenizer: Tokenizer, previous_text: str | None, inputs: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The inputs with the memory of a previous text, and the labels of the tokens in memory."""
    if not previous_text:
        return inputs, []
    start_ids = input_template(model, tokenizer).prompt_start_ids if "causal" in inputs else ()
    token_ids = [*start_ids, *tokenizer.encode(previous_text, special=True).ids.tolist()]
    state: dict[str, Tensor] = {}
    causal_flag = {"causal": True} if "causal" in inputs else {}
    for start in range(0, len(token_ids), model.backbone.max_length) if "memory" in model.backbone.capabilities else ():
        tokens = torch.tensor([token_ids[start : start + model.backbone.max_length]], device=model.device)
        fresh = torch.tensor([[start == 0]], device=model.device)
        state = model.backbone(tokens=tokens, fresh=fresh, state=state, **causal_flag).state
    if not state:
        raise MeristemError(
            "before: this model has no memory; use one with model.memory_length above 0 (transformer_xl)"
        )
    new_inputs = {**inputs, "state": state, "fresh": torch.tensor([[False]], device=model.device)}
    if start_ids:  # the text continues the previous one, so it has no document start
        new_inputs["tokens"] = inputs["tokens"][:, len(start_ids) :]
        if not new_inputs["tokens"].numel():
            raise MeristemError("the text has no tokens: attention is shown for the text, not for the text before it")
    return new_inputs, tokenizer.display_labels(token_ids[-state["documents"].shape[1] :])


def _two_stream_attention(
    model: Model,
    tokenizer: Tokenizer,
    inputs: dict[str, Any],
    order: Sequence[int] | None,
    memory_labels: Sequence[str],
    text: str,
) -> tuple[dict[str, AttentionWeights], tuple[int, ...]]:
    """Content and query stream under one order: a content position sees its own token, a query only its position."""
    tokens = inputs["tokens"][0].cpu().numpy()
    # special tokens come first in the order and are never predicted
    text_positions = np.flatnonzero(~tokenizer.special_mask[tokens])
    factorization_order = _factorization_order(
        len(text_positions), order, _tokens_by_word(tokenizer, text, len(text_positions))
    )
    rank = np.ones(len(tokens), np.int64)
    rank[text_positions[list(factorization_order)]] = 2 + np.arange(len(text_positions))
    ordered = {**inputs, "order": torch.from_numpy(rank)[None].to(model.device)}
    labels = tokenizer.display_labels(tokens.tolist())
    content = model.backbone(**ordered, want=EXTRA_OUTPUTS)
    kinds = {"content": _self_attention(content.attention, labels, memory_labels)}
    if len(text_positions):
        slots = torch.from_numpy(text_positions)[None].to(model.device)
        query = _stack_layers(model.backbone(**ordered, slots=slots, want=EXTRA_OUTPUTS).attention)
        keys = (*memory_labels, *labels)
        weights = query[..., -len(keys) :].copy()
        if not memory_labels and len(text_positions) == len(tokens):
            weights[:, :, factorization_order[0]] = 0.0  # the first token of the order attends to nothing
        kinds["query"] = AttentionWeights(
            queries=tuple(labels[position] for position in text_positions), keys=keys, weights=weights
        )
    return kinds, factorization_order


def _factorization_order(
    num_tokens: int, order: Sequence[int] | None, words: Sequence[Sequence[int]] = ()
) -> tuple[int, ...]:
    """The given order, checked to list every token or every word once; or a random one, always the same.

    A word of several tokens is expanded into its tokens from left to right.
    """
    if order is None:
        return tuple(generator(SEED, "looking", 0, 0).permutation(num_tokens).tolist())
    if sorted(order) == list(range(num_tokens)):
        return tuple(order)
    if sorted(order) == list(range(len(words))):
        return tuple(token for word in order for token in words[word])
    word_hint = f", or each of its {len(words)} words" if len(words) not in (0, num_tokens) else ""
    raise MeristemError(
        f"order: expected each of the text's {num_tokens} tokens once, numbered 0 to {num_tokens - 1}{word_hint}; "
        f"got {' '.join(map(str, order))}"
    )


def _tokens_by_word(tokenizer: Tokenizer, text: str, num_tokens: int) -> list[list[int]]:
    """Token indices of each word of a text, without special tokens; only the first `num_tokens` of a truncated text."""
    words = word_spans(text)
    encoding = tokenizer.encode(text, special=True)
    starts = encoding.offsets[~tokenizer.special_mask[encoding.ids], 0][:num_tokens]
    # the first word that ends after the token's start
    word_of_token = np.searchsorted([end for _, end in words], starts, side="right")
    return [np.flatnonzero(np.minimum(word_of_token, len(words) - 1) == word).tolist() for word in range(len(words))]
