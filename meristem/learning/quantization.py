"""int8 quantization of a loaded model's weights, for inference on CPUs; embeddings, norms and task heads stay."""

from __future__ import annotations

from typing import Literal

from torch import nn

from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.int8_linear import CPU_FEATURES, Int8Linear, int8_features
from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Model

Quantization = Literal["int8"]


def quantize_model(model: Model) -> None:
    """Replace the linear layers of the backbone by int8 ones, and compute logits with int8 weights."""
    if model.device.type != "cpu":
        raise MeristemError(f"quantize: int8 weights need a CPU, and this model is on {model.device}; leave it out")
    if not int8_features():
        raise MeristemError(
            f"quantize: this processor has none of {', '.join(CPU_FEATURES)}, without which int8 products are slower "
            "than float32; leave it out"
        )
    if not model.backbone.gains_from_bfloat16:
        raise MeristemError(
            f"quantize: {type(model.backbone).__name__} is recurrent: its time is in its steps, not in products of "
            "linear layers, so int8 weights would not make it faster; leave it out"
        )
    for parent in [module for module in model.backbone.modules() if not isinstance(module, Int8Linear)]:
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear) and name not in model.backbone.float32_layers:
                setattr(parent, name, Int8Linear(child.weight, child.bias))
    for head in model.heads.modules():
        if isinstance(head, VocabularyHead):
            head.quantize()
