"""Causal models as graphs: one that reads prompts and single tokens alike, with what was read before as its input."""

# B batch, T new tokens, S all tokens so far, D width, H heads, G key-value heads, C channels of one head

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.batch import Model
from meristem.blocks.relative import waves
from meristem.blocks.relative_stack import RelativeLayer
from meristem.interop.graphs.graph import Graph, Port, cached, presents
from meristem.interop.graphs.sight import Backwards, Grown, shut
from meristem.models.gpt2 import GPT2
from meristem.models.transformer_xl import TransformerXL


class Causal(nn.Module):
    """GPT, GPT-2 and their modern form."""

    def __init__(self, backbone: GPT2, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Tokens [B, T] and a mask over all so far [B, S] → logits [B, T, V], and keys and values of all so far."""
        back = Backwards(attention_mask, input_ids.shape[1])
        x, stack = self._embed(input_ids, back.at_BT), self.backbone.stack
        kept: list[Tensor] = []
        s = stack.settings
        dense = back.sight(None, x.dtype)
        banded = dense if s.window is None else back.sight(s.window, x.dtype)
        for number, layer in enumerate(stack.layers):
            sight = banded if (number + 1) % s.window_every == 0 else dense
            x = layer(x, sight, Grown.of(past[2 * number], past[2 * number + 1], back.at_BT, kept))
        return self.head(stack.final_norm(x)), kept

    def _embed(self, tokens_BT: Tensor, at_BT: Tensor) -> Tensor:
        e = self.backbone.embed
        x: Tensor = e.tokens(tokens_BT)
        if e.positions is not None:
            x = x + e.positions(at_BT)
        return x if e.norm is None else e.norm(x)


class RelativeCausal(nn.Module):
    """Transformer-XL as a session writes with it: every token sees the `reach` last ones, itself among them."""

    def __init__(self, backbone: TransformerXL, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head, self.reach = backbone, head, backbone.writer().reach

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Tokens [B, T] and a mask over all so far [B, S] → logits [B, T, V], and keys and values of all so far."""
        back = Backwards(attention_mask, input_ids.shape[1])
        stack, x = self.backbone.stack, self.backbone.embed(input_ids)
        kept: list[Tensor] = []
        far_S = torch.arange(attention_mask.shape[1], device=x.device)
        clamp = stack.settings.clamp
        waves_1SD = waves(far_S[None] if clamp is None else far_S[None].clamp(max=clamp), self.backbone.width, x.dtype)
        mask = shut(back.hidden(self.reach), x.dtype)
        for number, layer in enumerate(stack.each()):
            grown = Grown.of(past[2 * number], past[2 * number + 1], back.at_BT, kept)
            x = layer.after(x, _attend(layer, layer.ready(x), waves_1SD, back, mask, grown))
        return self.head(stack.final_norm(x)), kept


def _attend(
    layer: RelativeLayer, ready: Tensor, waves_1SD: Tensor, back: Backwards, mask: Tensor, grown: Grown
) -> Tensor:
    a, (rows, time, _) = layer.attention, ready.shape
    q_BTHC = a.query(ready).view(rows, time, a.heads, a.channels)
    new = a.key_value(ready).view(rows, time, 2, a.heads, a.channels).permute(2, 0, 3, 1, 4)
    keys, values = grown.push(new[0], new[1])
    distances_HSC = a.distances(waves_1SD)[:, 0]
    by_distance_BHTS = (q_BTHC + a.biases.distance).transpose(1, 2) @ distances_HSC.mT
    far_BHTS = back.far_BTS.clamp(min=0)[:, None].expand(-1, a.heads, -1, -1)
    bias = by_distance_BHTS.gather(3, far_BHTS) * a.channels**-0.5
    mixed = F.scaled_dot_product_attention(
        (q_BTHC + a.biases.content).transpose(1, 2), keys, values, attn_mask=bias + mask
    )
    return a.output(mixed.transpose(1, 2).reshape(rows, time, -1))  # type: ignore[no-any-return]  # nn.Module.__call__


def writer(model: Model, file: str = "model.onnx") -> Graph:
    """The graph of a model that goes on with texts."""
    backbone, head = model.backbone, model.heads["clm"]
    if isinstance(backbone, TransformerXL):
        module: nn.Module = RelativeCausal(backbone, head)
        groups = backbone.settings.heads
    else:
        assert isinstance(backbone, GPT2)
        module = Causal(backbone, head)
        groups = backbone.settings.groups or backbone.settings.heads
    s = backbone.settings
    past = cached(s.layers, groups, s.width // s.heads, parts=[("", "past")])
    return Graph(
        file=file,
        module=module,
        inputs=(Port("input_ids", ("batch", "length")), Port("attention_mask", ("batch", "total"))),
        past=past,
        outputs=("logits", *presents(past)),
        heads=("clm",),
    )
