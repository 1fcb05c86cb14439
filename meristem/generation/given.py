"""What a text is written from: the tokens it goes on from, and what an encoder reads before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.generation.way import Way, way_for, ways
from meristem.store.encode import separator_of
from meristem.store.letters import spelled, written_words
from meristem.store.rows import ended, frame_of
from meristem.tokenizers.tokenizer import Tokenizer

Picture = NDArray[Any]
Prompt = str | Picture
"""A text, or a picture [P, P, 3]: bytes, or numbers from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """Where one text starts."""

    prompt: list[int]
    inputs: dict[str, Tensor] = field(default_factory=dict)
    """What the encoder reads, without a dimension for rows."""

    @property
    def size(self) -> int:
        """Tokens that are read before the first is written; for a picture, rows of it."""
        return len(self.prompt) + sum(len(value) for name, value in self.inputs.items() if name != "characters")

    def way(self, model: Model) -> Way:
        """How a model goes on from here: from a source where an encoder reads one."""
        return way_for(model, "generate", source=has_source(self.inputs))


def has_source(inputs: Mapping[str, Any]) -> bool:
    """Whether an encoder reads something before the first token is written."""
    return "source" in inputs or "image" in inputs


def given(model: Model, tokenizer: Tokenizer, prompt: Prompt, *, source: bool = False) -> Given:
    """A prompt as training saw it: the beginning of a document, or the source that a target is written from.

    A picture is always a source; with `source` a text is one too for a model that could also go on from it.
    """
    if source and "source" not in ways(model):
        raise MeristemError(f"source: this {type(model.backbone).__name__} has no encoder to read one; give a prompt")
    way = way_for(model, "generate", source=source or not isinstance(prompt, str))
    if way == "source":
        return Given(prompt=start_of(model, tokenizer), inputs=source_inputs(model, tokenizer, prompt))
    if not isinstance(prompt, str):
        raise MeristemError(f"{_no_pictures(model)}; give a text")
    first = opening(model, tokenizer, way)
    ids = [*first, *tokenizer.ids_each([prompt])[0].tolist()]
    if not ids:
        raise MeristemError('no token begins a text for this model, so it needs words to go on from: give --prompt "…"')
    if "characters" in model.backbone.can:  # words are read as they are written, whether or not they have a token
        words = [*[b""] * len(first), *written_words(prompt, tokenizer.encode(prompt).offsets)]
        return Given(prompt=ids, inputs={"characters": torch.from_numpy(spelled(np.array(ids), words, tokenizer))})
    return Given(prompt=ids)


def opening(model: Model, tokenizer: Tokenizer, way: Way = "causal") -> list[int]:
    """The tokens a text begins after: as its objective says, else the separator of documents.

    A permutation or bidirectional model that was trained on framed rows begins after what stands before their text.
    """
    framed = way == "bilm" or (way == "permutation" and not remembers(model))
    if framed and len(before := frame_of(tokenizer)[0]):
        return [int(token) for token in before]
    return [separator_of(tokenizer)] if model.opening is None else list(model.opening)


def remembers(model: Model) -> bool:
    """Whether the model has memory, and so was trained on segments of running text that follow each other."""
    settings: Any = getattr(model.backbone, "settings", None)
    return "memory" in model.backbone.can and settings.memory > 0


def start_of(model: Model, tokenizer: Tokenizer) -> list[int]:
    """The tokens every target begins after: as in training, else the start token, or the separator without one."""
    if model.begin is not None:
        return list(model.begin)
    return [separator_of(tokenizer) if tokenizer.start is None else tokenizer.start]


def source_inputs(model: Model, tokenizer: Tokenizer, prompt: Prompt, *, empty: bool = False) -> dict[str, Tensor]:
    """A text with its end token, cut to the model's length as in training; [MASK] stands for what is missing.

    One without a token is refused unless `empty` allows it.
    """
    if not isinstance(prompt, str):
        if "image" not in model.backbone.can:
            raise MeristemError(f"{_no_pictures(model)}; a captioner does (model.family=captioner)")
        return {"image": torch.from_numpy(np.array(prompt))}
    ids = tokenizer.encode(prompt, special=True).ids.astype(np.int64)
    if not len(ids) and not empty:
        raise MeristemError('this model writes from a source text, and there is none: give --prompt "…"')
    masks = np.flatnonzero(ids == tokenizer.mask)[: len(tokenizer.sentinels)]
    ids[masks] = tokenizer.sentinels[: len(masks)]  # where gaps are numbered (T5), the first is the first sentinel
    return {"source": torch.from_numpy(ended(ids, tokenizer, model.backbone.length))}


def _no_pictures(model: Model) -> str:
    return f"this {type(model.backbone).__name__} reads no pictures"


def together(starts: Sequence[Given], device: torch.device) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Several starts side by side: tokens [B, T], sizes [B], and the encoder's inputs, padded on the right."""
    sizes = torch.tensor([len(one.prompt) for one in starts])
    tokens = pad_sequence([torch.tensor(one.prompt) for one in starts], batch_first=True)
    inputs: dict[str, Tensor] = {}
    for name in starts[0].inputs:
        rows = [one.inputs[name] for one in starts]
        inputs[name] = pad_sequence(rows, batch_first=True).to(device)
        longest = inputs[name].shape[1]
        if any(len(row) < longest for row in rows):
            lengths = torch.tensor([len(row) for row in rows], device=device)
            inputs[f"{name}_present"] = torch.arange(longest, device=device) < lengths[:, None]
    return tokens.to(device), sizes, inputs
