"""Text embeddings: hidden states of any layer, pooled to one vector per text; texts of similar length share a batch."""

# B texts, T tokens, D hidden size

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.config.errors import MeristemError
from meristem.evaluation.held_out_loss import eval_mode
from meristem.generation.generation_inputs import input_template
from meristem.generation.head_selection import encoding_lm_kind
from meristem.generation.token_scores import forward_passes
from meristem.inputs.encoded_input import EncodedInput
from meristem.interfaces.backbone import Hidden, Model
from meristem.learning.inference_options import forward_precision, in_float32
from meristem.tokenizers.tokenizer import Tokenizer

Pooling = Literal["mean", "first", "last"]
Layer = int | Literal["mix"] | None
"""0 is the embeddings, 1 the first layer, negative ones count from the last; `mix` averages all; None is the output."""
MAX_TOKENS_PER_PASS = 4096
"""Tokens per forward pass, padding included."""


def encode_text(model: Model, tokenizer: Tokenizer, text: str) -> EncodedInput:
    """A text as in training, truncated to the model's maximum length; an LSTM (ELMo) reads texts of any length."""
    if not reads_text(model):
        raise MeristemError(
            f"this {type(model.backbone).__name__} does not encode text by itself; "
            "use a run of bert, gpt2, transformer or another family that was pretrained on text"
        )
    template = input_template(model, tokenizer)
    return template.encode(text, truncate=template.mode != "both_directions")


def reads_text(model: Model) -> bool:
    """Whether the model encodes a text by itself, with an encoder or decoder trained on texts."""
    backbone = model.backbone
    can_encode = (
        model.task_template is not None
        or encoding_lm_kind(model) is not None
        or "bidirectional" in backbone.capabilities
        or "encoder_decoder" not in backbone.capabilities
    )
    return backbone.supports_text_tasks and can_encode


def hidden_states(
    model: Model, tokenizer: Tokenizer, texts: Sequence[EncodedInput], extra_outputs: tuple[str, ...] = ()
) -> Hidden:
    """One forward pass over several texts, padded on the right; with characters they must have the same length.

    The decoder of an encoder-decoder reads its start tokens alone, since only the encoder's states are used.
    """
    template, device = input_template(model, tokenizer), model.device
    inputs: dict[str, Any] = {
        name: pad_sequence([torch.from_numpy(item.inputs[name]) for item in texts], batch_first=True).to(device)
        for name in texts[0].inputs
    }
    if "source" in inputs:
        inputs["tokens"] = torch.tensor([template.decoder_start_ids] * len(texts), device=device)
    if len({item.num_tokens for item in texts}) > 1 and template.mode != "causal":
        # padding comes after the text, so that causal attention never sees it
        sizes = torch.tensor([item.num_tokens for item in texts], device=device)
        present = torch.arange(int(sizes.max()), device=device) < sizes[:, None]
        inputs["source_present" if "source" in inputs else "present"] = present
    return model.backbone(**inputs, **template.forward_options, want=extra_outputs)  # type: ignore[no-any-return]  # nn.Module.__call__


def embed(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[EncodedInput],
    pooling: Pooling | None = None,
    *,
    layer: Layer = None,
) -> Tensor:
    """One vector per text [B, D]: the mean, first or last of its hidden states (of the encoder, if there is one).

    Without `pooling` as its objective pooled them in training, by default their mean.
    """
    pooling = pooling or default_pooling(model)
    rows = token_states(model, tokenizer, texts, layer=layer)
    return torch.stack([_pool(states_TD, pooling) for states_TD in rows]).clone()


def default_pooling(model: Model) -> Pooling:
    """The pooling that the model was trained with; the mean if it was not trained for text embeddings."""
    return next((pooling for pooling in get_args(Pooling) if pooling == model.text_pooling), "mean")


def token_states(
    model: Model, tokenizer: Tokenizer, texts: Sequence[EncodedInput], *, layer: Layer = None
) -> list[Tensor]:
    """The hidden states of each text [T, D], for an encoder-decoder those of its encoder."""
    states_by_text: dict[int, Tensor] = {}
    extra_outputs = () if layer is None else ("layers",)
    with eval_mode(model):
        has_characters = any("characters" in item.inputs for item in texts)  # characters are never padded
        sizes = [max(1, item.num_tokens) for item in texts]
        with forward_precision(model, sum(sizes)):
            for batch in forward_passes(sizes, MAX_TOKENS_PER_PASS, max_difference=0 if has_characters else None):
                hidden = hidden_states(model, tokenizer, [texts[index] for index in batch], extra_outputs)
                states_BTD = _select_layer(model, in_float32(hidden), layer)
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
