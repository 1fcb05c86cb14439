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
from meristem.dataset.char_ids import surface_forms, token_char_ids
from meristem.dataset.encode_documents import separator_id
from meristem.dataset.rows import append_end_token, boundary_tokens
from meristem.generation.head_selection import LMKind, lm_kind_for, lm_kinds
from meristem.interfaces.batch import Model
from meristem.tokenizers.tokenizer import Tokenizer

ImageArray = NDArray[Any]
Prompt = str | ImageArray
"""A text, or an image [P, P, 3]: uint8, or floats from 0 to 1."""


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
    way = lm_kind_for(model, "generate", source=as_source or not isinstance(prompt, str))
    if way == "source":
        return GenerationInputs(
            prompt_ids=decoder_start_ids(model, tokenizer), inputs=encoder_inputs(model, tokenizer, prompt)
        )
    if not isinstance(prompt, str):
        raise MeristemError(f"{_no_images_message(model)}; give a text")
    first = document_start_ids(model, tokenizer, way)
    ids = [*first, *tokenizer.ids_each([prompt])[0].tolist()]
    if not ids:
        raise MeristemError(
            'this model has no start token, so it cannot generate from an empty prompt: give --prompt "…"'
        )
    if (
        "characters" in model.backbone.capabilities
    ):  # words are read by their characters, whether or not they have a token
        words = [*[b""] * len(first), *surface_forms(prompt, tokenizer.encode(prompt).offsets)]
        return GenerationInputs(
            prompt_ids=ids, inputs={"characters": torch.from_numpy(token_char_ids(np.array(ids), words, tokenizer))}
        )
    return GenerationInputs(prompt_ids=ids)


def document_start_ids(model: Model, tokenizer: Tokenizer, lm_kind: LMKind = "causal") -> list[int]:
    """The tokens before the beginning of a text: those of its objective, else the document separator.

    A permutation or bidirectional model trained on rows with special tokens uses those that precede the text.
    """
    has_boundary_tokens = lm_kind == "bilm" or (lm_kind == "permutation" and not has_memory(model))
    if has_boundary_tokens and len(before := boundary_tokens(tokenizer)[0]):
        return [int(token) for token in before]
    return [separator_id(tokenizer)] if model.causal_start_ids is None else list(model.causal_start_ids)


def has_memory(model: Model) -> bool:
    """Whether the model has memory (Transformer-XL), so that it was trained on consecutive segments of running text."""
    settings: Any = getattr(model.backbone, "settings", None)
    return "memory" in model.backbone.capabilities and settings.memory_length > 0


def decoder_start_ids(model: Model, tokenizer: Tokenizer) -> list[int]:
    """The tokens before every target: as in training, else the start token, or the separator without one."""
    if model.decoder_start_ids is not None:
        return list(model.decoder_start_ids)
    return [separator_id(tokenizer) if tokenizer.start is None else tokenizer.start]


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
    return {"source": torch.from_numpy(append_end_token(ids, tokenizer, model.backbone.max_length))}


def _no_images_message(model: Model) -> str:
    return f"this {type(model.backbone).__name__} has no image encoder"


def collate_inputs(items: Sequence[GenerationInputs], device: torch.device) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Collate inputs: tokens [B, T], lengths [B] and the encoder inputs, padded on the right."""
    sizes = torch.tensor([len(one.prompt_ids) for one in items])
    tokens = pad_sequence([torch.tensor(one.prompt_ids) for one in items], batch_first=True)
    inputs: dict[str, Tensor] = {}
    for name in items[0].inputs:
        rows = [one.inputs[name] for one in items]
        inputs[name] = pad_sequence(rows, batch_first=True).to(device)
        longest = inputs[name].shape[1]
        if any(len(row) < longest for row in rows):
            lengths = torch.tensor([len(row) for row in rows], device=device)
            inputs[f"{name}_present"] = torch.arange(longest, device=device) < lengths[:, None]
    return tokens.to(device), sizes, inputs
