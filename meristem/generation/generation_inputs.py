"""Generation inputs: prompt token ids for the decoder, and encoder inputs (source text or image)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.config.errors import MeristemError
from meristem.generation.head_selection import LMKind, encoding_lm_kind, lm_kind_for, lm_kinds
from meristem.inputs.char_ids import surface_forms, token_char_ids
from meristem.inputs.template import BackboneMode, InputTemplate, separator_id
from meristem.interfaces.backbone import Backbone, Model
from meristem.tokenizers.tokenizer import Tokenizer

ImageArray = NDArray[Any]
Prompt = str | ImageArray
"""A text, or an image [P, P, 3]: uint8, or floats from 0 to 1."""
BACKBONE_MODES: dict[LMKind, BackboneMode] = {
    "causal": "causal",
    "source": "encoder_decoder",
    "permutation": "bidirectional",
    "bilm": "both_directions",
    "masked": "bidirectional",
    "masked_next": "bidirectional",
    "generator": "bidirectional",
}
"""How the backbone reads a text for each kind of language-model head."""


@dataclass(frozen=True, kw_only=True)
class GenerationInputs:
    """The inputs of one text to generate."""

    prompt_ids: list[int]
    inputs: dict[str, Tensor] = field(default_factory=dict)
    """Encoder inputs, without a batch dimension."""

    @property
    def num_tokens(self) -> int:
        """Length of the prompt and the encoder inputs; an image counts its rows."""
        return len(self.prompt_ids) + sum(len(value) for name, value in self.inputs.items() if name != "characters")

    def lm_kind(self, model: Model) -> LMKind:
        """The kind of language-model head that decodes these inputs: `source` with encoder inputs."""
        return lm_kind_for(model, "generate", source=has_encoder_inputs(self.inputs))


def has_encoder_inputs(inputs: Mapping[str, Any]) -> bool:
    """Whether there are inputs for an encoder."""
    return "source" in inputs or "image" in inputs


def build_generation_inputs(
    model: Model, tokenizer: Tokenizer, prompt: Prompt, *, as_source: bool = False
) -> GenerationInputs:
    """A prompt as in training: the beginning of a document, or the source of a target.

    An image is always a source; with `as_source` a text is one too for a model that could also continue it.
    """
    if as_source and "source" not in lm_kinds(model):
        raise MeristemError(f"source: this {type(model.backbone).__name__} has no encoder for a source; give a prompt")
    lm_kind = lm_kind_for(model, "generate", source=as_source or not isinstance(prompt, str))
    template = input_template(model, tokenizer, lm_kind)
    if lm_kind == "source":
        return GenerationInputs(
            prompt_ids=list(template.decoder_start_ids), inputs=encoder_inputs(model, tokenizer, prompt)
        )
    if not isinstance(prompt, str):
        raise MeristemError(f"{_no_images_message(model)}; give a text")
    ids = template.prompt_ids(tokenizer.ids_each([prompt])[0])
    if not ids:
        raise MeristemError(
            'this model has no start token, so it cannot generate from an empty prompt: give --prompt "…"'
        )
    if "characters" not in model.backbone.capabilities:
        return GenerationInputs(prompt_ids=ids)
    # words are read by their characters, whether or not they have a token
    words = [*[b""] * len(template.prompt_start_ids), *surface_forms(prompt, tokenizer.encode(prompt).offsets)]
    char_ids = token_char_ids(np.array(ids), words, tokenizer)
    return GenerationInputs(prompt_ids=ids, inputs={"characters": torch.from_numpy(char_ids)})


def input_template(model: Model, tokenizer: Tokenizer, lm_kind: LMKind | None = None) -> InputTemplate:
    """The input template of a model, as in its training.

    By default that of its task, or of the head that encodes a text; with `lm_kind` that of this language-model head.
    """
    if lm_kind is None and model.task_template is not None:
        return model.task_template
    kind, backbone = lm_kind or encoding_lm_kind(model), model.backbone
    mode = _default_mode(backbone) if kind is None else BACKBONE_MODES[kind]
    special_ids: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    if kind == "causal":
        return InputTemplate.for_documents(tokenizer, backbone.max_length, model.causal_start_ids)
    if kind == "masked_next":  # framed as a causal text; the first token is predicted at the one before it
        special_ids = model.causal_start_ids or (separator_id(tokenizer),), ()
    if kind == "permutation" and has_memory(model) and tokenizer.single_template is None:
        # trained on consecutive segments of running text, with separators instead of other special tokens
        special_ids = (separator_id(tokenizer),), (separator_id(tokenizer),)
    return InputTemplate(
        tokenizer,
        mode,
        backbone.max_length,
        decoder_start_ids=model.decoder_start_ids or (),
        special_ids=special_ids,
        closes_cut_texts="text" not in model.source_kinds,
    )


def _default_mode(backbone: Backbone) -> BackboneMode:
    """The mode of a backbone without a language-model head, the first that it has."""
    modes: tuple[BackboneMode, ...] = ("bidirectional", "both_directions", "causal", "encoder_decoder")
    return next(mode for mode in modes if mode in backbone.capabilities)


def has_memory(model: Model) -> bool:
    """Whether the model has memory (Transformer-XL), so that it was trained on consecutive segments of running text."""
    return model.backbone.settings.carries_memory


def encoder_inputs(
    model: Model, tokenizer: Tokenizer, prompt: Prompt, *, allow_empty: bool = False
) -> dict[str, Tensor]:
    """Encoder inputs: a text with its end token, truncated to the model's length as in training, or an image.

    [MASK] marks missing text. A text without tokens is an error unless `allow_empty`.
    """
    if not isinstance(prompt, str):
        if "image" not in model.backbone.capabilities:
            raise MeristemError(f"{_no_images_message(model)}; a captioner has one (model.family=captioner)")
        return {"image": torch.from_numpy(np.array(prompt))}
    ids = tokenizer.encode(prompt, special=True).ids.astype(np.int64)
    if not len(ids) and not allow_empty:
        raise MeristemError('this model generates from a source text, and the prompt is empty: give --prompt "…"')
    masks = np.flatnonzero(ids == tokenizer.mask)[: len(tokenizer.sentinels)]
    ids[masks] = tokenizer.sentinels[: len(masks)]  # where gaps are numbered (T5), the first is the first sentinel
    return {"source": torch.from_numpy(input_template(model, tokenizer, "source").source_ids(ids))}


def _no_images_message(model: Model) -> str:
    return f"this {type(model.backbone).__name__} has no image encoder"


def collate_inputs(items: Sequence[GenerationInputs], device: torch.device) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Collate inputs: tokens [B, T], lengths [B] and the encoder inputs, padded on the right."""
    sizes = torch.tensor([len(item.prompt_ids) for item in items])
    tokens = pad_sequence([torch.tensor(item.prompt_ids) for item in items], batch_first=True)
    inputs: dict[str, Tensor] = {}
    for name in items[0].inputs:
        inputs[name], present = pad_rows([item.inputs[name] for item in items], device)
        if present is not None:
            inputs[f"{name}_present"] = present
    return tokens.to(device), sizes, inputs


def pad_rows(rows: Sequence[Tensor], device: torch.device, padding_value: int = 0) -> tuple[Tensor, Tensor | None]:
    """Rows padded on the right, and which positions are not padding; None if no row is padded."""
    padded = pad_sequence(list(rows), batch_first=True, padding_value=padding_value).to(device)
    if len({len(row) for row in rows}) == 1:
        return padded, None
    sizes = torch.tensor([len(row) for row in rows], device=device)
    return padded, torch.arange(padded.shape[1], device=device) < sizes[:, None]
