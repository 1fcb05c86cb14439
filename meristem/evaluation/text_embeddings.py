"""Text embeddings: hidden states of any layer, pooled to one vector per text; texts of similar length share a batch."""

# B texts, T tokens, D hidden size

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.config.errors import MeristemError
from meristem.dataset.char_ids import token_char_ids
from meristem.evaluation.held_out_loss import eval_mode
from meristem.generation.generation_inputs import GenerationInputs, build_generation_inputs, collate_inputs
from meristem.generation.head_selection import encoding_lm_kind
from meristem.generation.token_scores import forward_passes
from meristem.interfaces.batch import Hidden, Model
from meristem.tokenizers.tokenizer import Tokenizer

Pooling = Literal["mean", "first", "last"]
Layer = int | Literal["mix"] | None
"""0 is the embeddings, 1 the first layer, negative ones count from the last; `mix` averages all; None is the output."""
MAX_TOKENS_PER_PASS = 4096
"""Tokens per forward pass, padding included."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingInput:
    """The model inputs of one text."""

    ids: list[int]
    char_ids: NDArray[Any] | None = None
    """Character ids of each token, for character-based backbones (ELMo)."""
    encoder_inputs: GenerationInputs | None = None
    """Encoder inputs, for encoder-decoders."""
    offsets: NDArray[Any]
    """[T, 2] character span of each token in the text; (0, 0) for added special tokens."""
    num_truncated: int = 0
    """Tokens cut off at the end of the text."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the input."""
        return len(self.ids)


def build_embedding_input(model: Model, tokenizer: Tokenizer, text: str) -> EmbeddingInput:
    """A text with the special tokens of training, truncated to the model's maximum length."""
    lm_kind, abilities = encoding_lm_kind(model), model.backbone.capabilities
    if not reads_text(model):
        raise MeristemError(
            f"this {type(model.backbone).__name__} does not encode text by itself; "
            "use a run of bert, gpt2, transformer or another family that was pretrained on text"
        )
    whole = lm_kind == "source" or "characters" in abilities
    encoding = tokenizer.encode(text, special=True, max_tokens=None if whole else model.backbone.max_length)
    if lm_kind == "source":
        encoder_inputs = build_generation_inputs(model, tokenizer, text, as_source=True)
        ids = encoder_inputs.inputs["source"].tolist()
        prefix_ids, suffix_ids = tokenizer.single_template or ((), ())
        num_kept = min(len(encoding.ids), len(ids) - len(prefix_ids) - len(suffix_ids))
        offsets = _place_offsets(encoding.offsets[:num_kept], len(prefix_ids), len(ids))
        return EmbeddingInput(
            ids=ids, encoder_inputs=encoder_inputs, offsets=offsets, num_truncated=len(encoding.ids) - num_kept
        )
    ids, text_start = encoding.ids.tolist(), 0
    if lm_kind == "causal" or tokenizer.start is None or tokenizer.end is None:
        ids = ids or [tokenizer.end or 0]
    else:
        ids, text_start = [tokenizer.start, *ids, tokenizer.end], 1
    offsets = _place_offsets(encoding.offsets, text_start, len(ids))
    if "characters" in abilities:
        return EmbeddingInput(ids=ids, char_ids=_char_ids(tokenizer, text, ids, encoding.offsets), offsets=offsets)
    length = model.backbone.max_length
    num_truncated = max(0, text_start + len(encoding.ids) + encoding.left_out - length)
    return EmbeddingInput(ids=ids[:length], offsets=offsets[:length], num_truncated=num_truncated)


def reads_text(model: Model) -> bool:
    """Whether the model encodes a text by itself, with an encoder or decoder trained on texts."""
    backbone = model.backbone
    can_encode = (
        encoding_lm_kind(model) is not None
        or "bidirectional" in backbone.capabilities
        or "encoder_decoder" not in backbone.capabilities
    )
    return backbone.supports_text_tasks and can_encode


def _place_offsets(offsets: NDArray[Any], text_start: int, num_tokens: int) -> NDArray[Any]:
    """Offsets [num_tokens, 2] of a row whose text begins at token `text_start`."""
    out = np.zeros((num_tokens, 2), np.int64)
    out[text_start : text_start + len(offsets)] = offsets
    return out


def hidden_states(model: Model, texts: Sequence[EmbeddingInput], extra_outputs: tuple[str, ...] = ()) -> Hidden:
    """One forward pass over several texts, padded on the right; with characters they must have the same length."""
    device = model.device
    encoder_items = [item.encoder_inputs for item in texts if item.encoder_inputs is not None]
    if encoder_items:
        tokens, _, encoder_inputs = collate_inputs(encoder_items, device)
        return model.backbone(tokens=tokens, **encoder_inputs, want=extra_outputs)  # type: ignore[no-any-return]  # nn.Module.__call__
    tokens = pad_sequence([torch.tensor(item.ids) for item in texts], batch_first=True).to(device)
    inputs: dict[str, Any] = {"tokens": tokens}
    if encoding_lm_kind(model) == "causal":
        inputs["causal"] = True  # padding comes after the text, so that causal attention never sees it
    elif len({item.num_tokens for item in texts}) > 1:
        sizes = torch.tensor([item.num_tokens for item in texts], device=device)
        inputs["present"] = torch.arange(tokens.shape[1], device=device) < sizes[:, None]
    char_ids = [item.char_ids for item in texts if item.char_ids is not None]
    if char_ids:
        inputs["characters"] = torch.from_numpy(np.stack(char_ids)).to(device)
    return model.backbone(**inputs, want=extra_outputs)  # type: ignore[no-any-return]  # nn.Module.__call__


def embed(model: Model, texts: Sequence[EmbeddingInput], pooling: Pooling = "mean", *, layer: Layer = None) -> Tensor:
    """One vector per text [B, D]: the mean, first or last of its hidden states (of the encoder, if there is one)."""
    rows = token_states(model, texts, layer=layer)
    return torch.stack([_pool(states_TD, pooling) for states_TD in rows]).clone()


def token_states(model: Model, texts: Sequence[EmbeddingInput], *, layer: Layer = None) -> list[Tensor]:
    """The hidden states of each text [T, D], for an encoder-decoder those of its encoder."""
    states_by_text: dict[int, Tensor] = {}
    extra_outputs = () if layer is None else ("layers",)
    with eval_mode(model):
        has_characters = any(item.char_ids is not None for item in texts)  # characters are never padded
        sizes = [max(1, item.num_tokens) for item in texts]
        for batch in forward_passes(sizes, MAX_TOKENS_PER_PASS, max_difference=0 if has_characters else None):
            states_BTD = _select_layer(
                model, hidden_states(model, [texts[index] for index in batch], extra_outputs), layer
            )
            for row, index in enumerate(batch):
                states_by_text[index] = states_BTD[row, : texts[index].num_tokens]
    return [states_by_text[index] for index in range(len(texts))]


def _select_layer(model: Model, hidden: Hidden, layer: Layer) -> Tensor:
    """One layer of a forward pass [B, T, D]; the last one is the model's output, after its final norm."""
    output = hidden.last_hidden_state if hidden.encoder_hidden_state is None else hidden.encoder_hidden_state
    if layer is None:
        return output
    layers = hidden.layers if hidden.encoder_hidden_state is None else hidden.extra.get("encoder_layers", ())
    if layer == "mix":
        return _mix_layers(model, layers)
    count = len(layers) - 1
    if not -count - 1 <= layer <= count:
        raise MeristemError(f"layer {layer}: this model has layers 0 (embeddings) to {count}, and mix")
    return output if layer in (count, -1) else layers[layer]


def _mix_layers(model: Model, layers: Sequence[Tensor]) -> Tensor:
    """γ Σ s_j h_j with the weights learned by a task, else the mean of all layers (Peters et al. 2018, eq. 1)."""
    if "mix" in model.heads:
        return model.heads["mix"](layers)  # type: ignore[no-any-return]  # nn.Module.__call__
    if len({layer_states.shape[-1] for layer_states in layers}) > 1:
        raise MeristemError("layer mix: the embeddings of this model differ in width from its layers; choose one layer")
    return torch.stack(list(layers)).mean(0)


def _pool(states_TD: Tensor, pooling: Pooling) -> Tensor:
    if pooling == "mean":
        return states_TD.mean(0)
    return states_TD[0 if pooling == "first" else -1]


def _char_ids(tokenizer: Tokenizer, text: str, ids: list[int], offsets: NDArray[Any]) -> NDArray[Any]:
    """Character ids of each token of a text with special tokens, whether or not the word is in the vocabulary."""
    words = [text[first:last].encode("utf-8", "surrogatepass") for first, last in offsets.tolist()]
    special_bytes = [b""] * ((len(ids) - len(words)) // 2)
    if len(words) + 2 * len(special_bytes) < len(ids):  # an empty text without special tokens is read as its end token
        words = [b""]
    return token_char_ids(np.array(ids), [*special_bytes, *words, *special_bytes], tokenizer)
