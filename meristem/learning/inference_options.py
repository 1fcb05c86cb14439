"""How a loaded model computes: float32, bfloat16 in forward passes over many tokens, or int8 weights.

bfloat16 is for encoding texts: embeddings, predictions of tasks, scores, held-out loss. What turns hidden states into
an answer (task heads, logits, softmax) is float32 then too, and so is all decoding: a step for one row gains nothing
from bfloat16, and one token that differs would change all that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from meristem.blocks.bfloat16_speed import bfloat16_features, product_speedup
from meristem.blocks.int8_linear import int8_features
from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Hidden, Model
from meristem.learning.quantization import Quantization, quantize_model

InferencePrecision = Literal["auto", "float32", "bfloat16"]
MIN_SPEEDUP = 1.3
"""How much faster a bfloat16 product must be: what is between the products gains less."""
MIN_HIDDEN_SIZE = 128
"""Smaller models spend their time between the products, where bfloat16 gains nothing."""
MIN_TOKENS = 256
"""With fewer tokens in a call, converting the weights takes more time than faster products save."""


def set_inference_options(
    model: Model, precision: InferencePrecision = "auto", quantize: Quantization | None = None
) -> str | None:
    """Apply the options to a loaded model; returns one line that says which, or None for plain float32."""
    if quantize is not None:
        if precision == "bfloat16":
            raise MeristemError("precision=bfloat16 and quantize=int8 cannot be combined: choose one of them")
        quantize_model(model)
        return f"int8 weights ({', '.join(int8_features())}); embeddings, norms and task heads in float32"
    if precision == "bfloat16":
        model.bfloat16_min_tokens = 0
        return "forward passes in bfloat16, heads and decoding in float32"
    if precision == "auto" and _gains_from_bfloat16(model):
        model.bfloat16_min_tokens = MIN_TOKENS
        return (
            f"forward passes over {MIN_TOKENS} tokens or more in bfloat16 ({', '.join(bfloat16_features())}), "
            "heads and decoding in float32; --precision float32 for all of it"
        )
    return None


def _gains_from_bfloat16(model: Model) -> bool:
    """Whether this CPU multiplies matrices of the model's size sufficiently faster in bfloat16."""
    backbone = model.backbone
    return (
        model.device.type == "cpu"
        and bool(bfloat16_features())
        and backbone.gains_from_bfloat16
        and backbone.hidden_size >= MIN_HIDDEN_SIZE
        and product_speedup(backbone.hidden_size) >= MIN_SPEEDUP
    )


def forward_precision(model: Model, num_tokens: int) -> AbstractContextManager[object]:
    """The context for all forward passes of a call that processes this many tokens: autocast to bfloat16, or none."""
    if model.bfloat16_min_tokens is None or num_tokens < model.bfloat16_min_tokens:
        return nullcontext()
    return torch.autocast(model.device.type, dtype=torch.bfloat16)


def head_precision(model: Model) -> AbstractContextManager[object]:
    """The context, inside `forward_precision`, in which hidden states become answers: float32."""
    if model.bfloat16_min_tokens is None:
        return nullcontext()
    return torch.autocast(model.device.type, enabled=False)


def in_float32(hidden: Hidden) -> Hidden:
    """The same hidden states in float32."""
    return replace(
        hidden,
        last_hidden_state=hidden.last_hidden_state.float(),
        layers=_float32(hidden.layers),
        encoder_hidden_state=_float32(hidden.encoder_hidden_state),
        extra={name: _float32(value) for name, value in hidden.extra.items()},
    )


def _float32(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.dtype == torch.bfloat16 else value
    if isinstance(value, Sequence) and value and all(isinstance(item, Tensor) for item in value):
        return tuple(_float32(item) for item in value)
    return value
