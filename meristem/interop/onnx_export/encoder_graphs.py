"""ONNX graphs of encoders: tokens in, hidden states and the outputs of every head out."""

# B batch, T tokens, D hidden size

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from meristem.blocks.attention.relative_attention import IndexedShift
from meristem.blocks.attention.relative_mask import RelativeMaskSpec
from meristem.blocks.transformer.relative_stack import RelativeLayerInputs
from meristem.interfaces.backbone import Model
from meristem.interop.onnx_export.onnx_graph import GraphInput, OnnxGraph
from meristem.models.bert import Bert
from meristem.models.xlnet import XLNet

FIRST_TOKEN_KINDS = frozenset({"pooled", "pooler"})
"""Kinds of heads that read the state of the first token."""
SUPPORTED_KINDS = FIRST_TOKEN_KINDS | {"vocabulary", "tags", "token_score"}
"""A generator, the only other kind, reads its own tokens."""
UNSUPPORTED_HEADS = frozenset({"clm", "plm"})
"""Heads that do not read an encoder's states: causal ones, or a query stream's."""
BATCH_AXES = ("batch", "length")


class OnnxEncoderHeads(nn.Module):
    """A bidirectional backbone with its heads."""

    def __init__(self, model: Model, heads: tuple[str, ...]) -> None:
        super().__init__()
        self.states = (
            OnnxRelativeBackbone(model.backbone) if isinstance(model.backbone, XLNet) else OnnxBackbone(model.backbone)
        )
        self.heads = nn.ModuleList(model.heads[name] for name in heads)
        self._reads_first_token = [model.head_specs[name].kind in FIRST_TOKEN_KINDS for name in heads]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """[B, T] → states [B, T, D], and the output of each head."""
        states = self.states(input_ids, attention_mask > 0, token_type_ids)
        heads = zip(self.heads, self._reads_first_token, strict=True)
        return states, *(head(states[:, 0] if reads_first else states) for head, reads_first in heads)


class OnnxBackbone(nn.Module):
    """A backbone called as in training."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, tokens_BT: Tensor, present_BT: Tensor, segments_BT: Tensor | None) -> Tensor:
        """[B, T, D]."""
        extra_inputs = {} if segments_BT is None else {"segments": segments_BT}
        return self.backbone(tokens=tokens_BT, present=present_BT, **extra_inputs).last_hidden_state  # type: ignore[no-any-return]  # nn.Module.__call__


class OnnxRelativeBackbone(nn.Module):
    """XLNet's content stream without memory; scores by distance are gathered, where training uses a shifted view."""

    def __init__(self, backbone: XLNet) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, tokens_BT: Tensor, present_BT: Tensor, segments_BT: Tensor | None) -> Tensor:
        """[B, T, D]."""
        x, stack = self.backbone.tokens(tokens_BT), self.backbone.stack
        batch_size, time = tokens_BT.shape
        relative_mask = RelativeMaskSpec(
            num_tokens=time, causal=False, device=x.device, dtype=x.dtype, present=present_BT, segments=segments_BT
        )
        positions_BT = torch.arange(time, device=x.device).expand(batch_size, time)
        content_mask = replace(
            relative_mask.content_mask(), shift=IndexedShift.from_positions(positions_BT, time, time)
        )
        layer_inputs = RelativeLayerInputs(distances=stack.distance_encoding(relative_mask), content=content_mask)
        for layer in stack.iter_layers():
            x, _, _ = layer(x, None, None, layer_inputs, False)
        return stack.final_norm(x)  # type: ignore[no-any-return]  # nn.Module.__call__


def build_encoder_graph(model: Model, file: str = "model.onnx", *, untrained: Collection[str] = ()) -> OnnxGraph:
    """The graph of a bidirectional model, without untrained heads."""
    heads = tuple(name for name in model.head_specs if name not in untrained and _is_supported(model, name))
    inputs = [GraphInput("input_ids", BATCH_AXES), GraphInput("attention_mask", BATCH_AXES)]
    backbone = model.backbone
    if isinstance(backbone, Bert | XLNet) and backbone.settings.segments:
        inputs.append(GraphInput("token_type_ids", BATCH_AXES))
    return OnnxGraph(
        file=file,
        module=OnnxEncoderHeads(model, heads),
        inputs=tuple(inputs),
        outputs=("last_hidden_state", *_output_names(model, heads)),
        heads=heads,
    )


def _is_supported(model: Model, name: str) -> bool:
    """Whether a head reads this graph's states: XLNet's text heads read the last token, except for pairs."""
    kind = model.head_specs[name].kind
    if isinstance(model.backbone, XLNet) and kind == "pooled" and name != "nsp":
        return False
    return kind in SUPPORTED_KINDS and name not in UNSUPPORTED_HEADS


def _output_names(model: Model, heads: Sequence[str]) -> list[str]:
    """A single head outputs `logits`, several have their names in them."""
    scored = [name for name in heads if model.head_specs[name].kind != "pooler"]
    names_by_head = {name: "logits" if len(scored) == 1 else f"{name}_logits" for name in scored}
    return [names_by_head.get(name, "pooler_output") for name in heads]
