"""Model inputs for attention maps: a text with special tokens, a task's input, or a source with its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.evaluation.held_out_loss import SEED
from meristem.evaluation.prediction_requests import TaskInput, parse_task_input
from meristem.generation.generate import generate_from_inputs
from meristem.generation.generation_inputs import GenerationInputs, ImageArray, build_generation_inputs, input_template
from meristem.generation.head_selection import encoding_lm_kind, lm_kinds
from meristem.generation.settings import SamplingSettings
from meristem.inputs.batch import Row
from meristem.inputs.template import separator_id
from meristem.interfaces.backbone import Model
from meristem.interfaces.task import Task
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

TEXT_FIELDS = ("text", "text_b")
MAX_NEW_TOKENS = 64
"""Maximum generated tokens of a target: a poorly trained model may never end."""


@dataclass(frozen=True, kw_only=True)
class AttentionInputs:
    """The backbone's inputs for one text."""

    inputs: dict[str, Any]
    """Keyword arguments of the backbone, batch size 1."""
    next_token_ids: tuple[int, ...] = ()
    """For a target: the token that follows each position."""
    notices: tuple[str, ...] = ()


def build_attention_inputs(
    model: Model,
    tokenizer: Tokenizer,
    task_input: TaskInput,
    *,
    task: Task | None = None,
    target: str | None = None,
    image: ImageArray | None = None,
) -> AttentionInputs:
    """Inputs for a text, a mapping of task inputs, or an image; a target that is not given is generated."""
    if image is not None:
        if "image" not in model.backbone.capabilities:
            raise MeristemError("image: this model has no image encoder; use a captioner (model.family=captioner)")
        if task_input:
            raise MeristemError("give an image without a text; give a caption with --target")
        levels = image if image.dtype == np.uint8 else image.astype(np.float32)
        return _source_target_inputs(model, tokenizer, build_generation_inputs(model, tokenizer, levels), target)
    if task is not None:
        return _task_inputs(model, tokenizer, task, task_input, target)
    texts = _input_texts(task_input)
    lm_kind = encoding_lm_kind(model)
    if lm_kind == "source" or (target is not None and "source" in lm_kinds(model)):
        return _source_inputs(model, tokenizer, texts, target)
    if target is not None:
        raise MeristemError("target: this model does not generate from a source; give the text alone")
    return _text_inputs(model, tokenizer, texts)


def _input_texts(task_input: TaskInput) -> list[str]:
    """The one or two texts that a run without a task takes."""
    texts_by_field: Mapping[str, Any] = {"text": task_input} if isinstance(task_input, str) else task_input
    unknown_fields = [name for name in texts_by_field if name not in TEXT_FIELDS]
    if unknown_fields or "text" not in texts_by_field:
        raise MeristemError(f"{(unknown_fields or ['text_b'])[0]}: a run without a task takes text, or text and text_b")
    return [str(texts_by_field[name]) for name in TEXT_FIELDS if name in texts_by_field]


def _single_text(texts: list[str]) -> str:
    if len(texts) > 1:
        raise MeristemError("text_b: this model was trained on single texts; join the two into one")
    return texts[0]


def _truncation_notice(num_tokens: int, max_tokens: int) -> tuple[str, ...]:
    """A notice about the tokens that were cut off."""
    if num_tokens <= max_tokens:
        return ()
    return (
        f"{num_tokens - max_tokens:,} of {num_tokens:,} tokens are not shown: the model takes at most {max_tokens:,}",
    )


def _batch_of_one(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Each input with a batch dimension, on the model's device."""
    return {name: torch.as_tensor(np.asarray(value))[None].to(model.device) for name, value in inputs.items()}


def _text_inputs(model: Model, tokenizer: Tokenizer, texts: list[str]) -> AttentionInputs:
    """One or two texts with special tokens; a causal model takes one."""
    template = input_template(model, tokenizer)
    encoded = template.encode(_single_text(texts)) if template.mode == "causal" else template.encode(*texts)
    num_shown = sum(len(text.ids) for text in encoded.texts)
    return AttentionInputs(
        inputs={**_batch_of_one(model, encoded.inputs), **template.forward_options},
        notices=_truncation_notice(num_shown + encoded.num_truncated, num_shown),
    )


def _task_inputs(
    model: Model, tokenizer: Tokenizer, task: Task, task_input: TaskInput, target: str | None
) -> AttentionInputs:
    """The first row that the task builds from its input."""
    sample, generates = parse_task_input(task, task_input), task.signature.output == "text"
    if target is not None and not generates:
        raise MeristemError(f"target: task {task.name} does not generate text; leave it out")
    pieces = task.encode_samples([sample if target is None else replace(sample, gold=(target,))])
    prepared = task.prepare(Row(inputs={}, metadata={"piece": pieces[0]}), SampleRng(SEED, 0, 0))
    rows = prepared if isinstance(prepared, list) else [prepared]
    notices = (
        _truncation_notice(pieces[0].num_tokens + pieces[0].num_truncated, pieces[0].num_tokens)
        if pieces[0].num_truncated
        else ()
    )
    if len(pieces) * len(rows) > 1:
        notices += (f"task {task.name} splits this input into {len(pieces) * len(rows)} rows; the first is shown",)
    inputs = rows[0].inputs
    if generates and "tokens" in inputs and len(inputs) > 1:
        target_inputs = _task_target_inputs(model, tokenizer, rows[0], target)
        return replace(target_inputs, notices=notices + target_inputs.notices)
    causal: dict[str, Any] = {"causal": True} if task.settings.backbone_mode == "causal" else {}
    return AttentionInputs(inputs={**_batch_of_one(model, inputs), **causal}, notices=notices)


def _task_target_inputs(model: Model, tokenizer: Tokenizer, row: Row, target: str | None) -> AttentionInputs:
    """Source and target of a generation task; the target's last token is predicted and not an input."""
    tokens = row.inputs["tokens"].tolist()
    if target is not None:
        last = next(iter(row.targets.values()))["values"][-1]
        return AttentionInputs(inputs=_batch_of_one(model, row.inputs), next_token_ids=(*tokens[1:], int(last)))
    encoder_tensors = {name: torch.as_tensor(np.array(value)) for name, value in row.inputs.items() if name != "tokens"}
    return _source_target_inputs(model, tokenizer, GenerationInputs(prompt_ids=tokens, inputs=encoder_tensors), None)


def _source_inputs(model: Model, tokenizer: Tokenizer, texts: list[str], target: str | None) -> AttentionInputs:
    text = _single_text(texts)
    encoded = input_template(model, tokenizer, "source").encode(text)
    num_tokens = len(tokenizer.encode(text, special=True).ids)
    truncation_notice = _truncation_notice(num_tokens, num_tokens - encoded.num_truncated)
    target_inputs = _source_target_inputs(
        model, tokenizer, build_generation_inputs(model, tokenizer, text, as_source=True), target
    )
    return replace(target_inputs, notices=truncation_notice + target_inputs.notices)


def _source_target_inputs(
    model: Model, tokenizer: Tokenizer, generation_inputs: GenerationInputs, target: str | None
) -> AttentionInputs:
    """A source and its target; without one the target is decoded greedily."""
    max_tokens = max(1, model.backbone.max_length + 1 - len(generation_inputs.prompt_ids))
    if target is None:
        target_ids, notices = _generate_target(model, tokenizer, generation_inputs, min(max_tokens, MAX_NEW_TOKENS))
    else:
        target_ids, notices = _encode_target(model, tokenizer, target, max_tokens), ()
    next_token_ids = (*generation_inputs.prompt_ids[1:], *target_ids)
    tokens = torch.tensor([[generation_inputs.prompt_ids[0], *next_token_ids[:-1]]], device=model.device)
    inputs: dict[str, Tensor] = {name: value[None].to(model.device) for name, value in generation_inputs.inputs.items()}
    return AttentionInputs(inputs={**inputs, "tokens": tokens}, next_token_ids=next_token_ids, notices=notices)


def _generate_target(
    model: Model, tokenizer: Tokenizer, generation_inputs: GenerationInputs, max_new_tokens: int
) -> tuple[list[int], tuple[str, ...]]:
    """The generated target, ending with the end token if the model generates one."""
    settings = SamplingSettings.model_validate({"greedy": True, "max_tokens": max_new_tokens})
    ((generated,),) = generate_from_inputs(model, tokenizer, [generation_inputs], settings)
    if generated.finished == "end":
        return [*generated.tokens, separator_id(tokenizer)][:max_new_tokens], ()
    return list(generated.tokens), (
        f"the generated text did not end within {max_new_tokens} tokens; the rest is not shown",
    )


def _encode_target(model: Model, tokenizer: Tokenizer, target: str, max_tokens: int) -> list[int]:
    """A target as in training, with special tokens, without those that are decoder start tokens."""
    template = input_template(model, tokenizer, "source")
    ids = tokenizer.encode(target, special=True).ids.astype(np.int64)
    return [int(token) for token in template.strip_start(template.target_ids(ids, max_tokens))]
