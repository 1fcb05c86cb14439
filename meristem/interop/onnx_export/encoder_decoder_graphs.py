"""ONNX graphs of encoder-decoders: one for the encoder, one for the decoder with its KV cache."""

# B batch, S source positions, T new tokens, D hidden size

from __future__ import annotations

import torch
from torch import Tensor, nn

from meristem.blocks.attention.attention_mask import AttentionMask
from meristem.blocks.transformer.decoder import source_attention_mask
from meristem.interfaces.backbone import Model
from meristem.interop.onnx_export.graph_masks import BucketLookupBias, ConcatKVCache, additive_mask
from meristem.interop.onnx_export.onnx_graph import GraphInput, OnnxGraph, cache_inputs, present_names
from meristem.models.captioner import Captioner
from meristem.models.transformer import Transformer


class OnnxEncoder(nn.Module):
    """The encoder."""

    def __init__(self, backbone: Transformer) -> None:
        super().__init__()
        self.backbone = backbone
        if backbone.encoder.relative is not None:
            backbone.encoder.relative = BucketLookupBias(backbone.encoder.relative)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[B, S] → [B, S, D]."""
        return self.backbone.encode(source=input_ids, source_present=attention_mask > 0)[0]


class OnnxImageEncoder(nn.Module):
    """A captioner's image encoder."""

    def __init__(self, backbone: Captioner) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixel_values: Tensor) -> Tensor:
        """[B, P, P, 3] → [B, S, D]."""
        return self.backbone.encode(image=pixel_values)[0]


class OnnxDecoder(nn.Module):
    """The decoder: each call takes new tokens and new source positions, and caches the keys and values of both.

    The first call takes the whole source, later ones none of it.
    """

    def __init__(self, backbone: Transformer, head: nn.Module) -> None:
        super().__init__()
        self.words, self.entrance, self.decoder = backbone.tokens, backbone.enter_target, backbone.decoder
        self.head, relative = head, backbone.decoder.relative
        self.relative = None if relative is None else BucketLookupBias(relative)

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor, past: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """[B, T] and [B, new S, D] → logits [B, T, V], and keys and values of all so far."""
        (batch_size, time), past_length = input_ids.shape, past[0].shape[2]
        present: list[Tensor] = []
        positions_T = past_length + torch.arange(time, device=input_ids.device)
        x = self.entrance.add_positions(self.words(input_ids), positions_T)
        distances_TS = positions_T[:, None] - torch.arange(past_length + time, device=input_ids.device)
        source_mask = source_attention_mask(encoder_attention_mask > 0, x.dtype)
        windows = {self.decoder.settings.window_of(number) for number in range(len(self.decoder.layers))}
        layer_masks = {window: self._attention_mask(distances_TS, window, x.dtype) for window in windows}
        for number, layer in enumerate(self.decoder.iter_layers()):
            self_past, cross_past = past[4 * number : 4 * number + 2], past[4 * number + 2 : 4 * number + 4]
            cache = ConcatKVCache.for_layer(self_past[0], self_past[1], positions_T.expand(batch_size, time), [])
            source = ConcatKVCache.for_layer(cross_past[0], cross_past[1], positions_T, []).update(
                *layer.cross.project_source(encoder_hidden_states)
            )
            x = layer(x, layer_masks[self.decoder.settings.window_of(number)], source, source_mask, cache)
            present += [*cache.present, *source]
        return self.head(self.decoder.final_norm(x)), present

    def _attention_mask(self, distances_TS: Tensor, window: int | None, dtype: torch.dtype) -> AttentionMask:
        hidden = distances_TS < 0 if window is None else (distances_TS < 0) | (distances_TS >= window)
        mask = additive_mask(hidden, dtype)[None, None]
        return AttentionMask(
            additive_mask=mask if self.relative is None else mask + self.relative.bias_at(-distances_TS)
        )


def build_encoder_decoder_graphs(model: Model) -> list[OnnxGraph]:
    """The graphs of an encoder-decoder."""
    backbone = model.backbone
    assert isinstance(backbone, Transformer)
    graphs = [_encoder_graph(backbone)]
    if isinstance(backbone, Captioner):
        graphs = [_image_encoder_graph(backbone), _encoder_graph(backbone, "text_encoder_model.onnx")]
    return [*graphs, _decoder_graph(backbone, model.heads["seq2seq"])]


def _encoder_graph(backbone: Transformer, file: str = "encoder_model.onnx") -> OnnxGraph:
    return OnnxGraph(
        file=file,
        module=OnnxEncoder(backbone),
        inputs=(GraphInput("input_ids", ("batch", "length")), GraphInput("attention_mask", ("batch", "length"))),
        outputs=("last_hidden_state",),
    )


def _image_encoder_graph(backbone: Captioner) -> OnnxGraph:
    image_size = backbone.settings.image_size
    return OnnxGraph(
        file="encoder_model.onnx",
        module=OnnxImageEncoder(backbone),
        inputs=(GraphInput("pixel_values", ("batch", image_size, image_size, 3), torch.float32),),
        outputs=("last_hidden_state",),
    )


def _decoder_graph(backbone: Transformer, head: nn.Module) -> OnnxGraph:
    s = backbone.settings
    past = cache_inputs(
        len(backbone.decoder.layers),
        s.kv_heads or s.heads,
        s.hidden_size // s.heads,
        parts=[(".decoder", "past"), (".encoder", "past_source")],
    )
    return OnnxGraph(
        file="decoder_model.onnx",
        module=OnnxDecoder(backbone, head),
        inputs=(
            GraphInput("input_ids", ("batch", "length")),
            GraphInput("encoder_hidden_states", ("batch", "new_source", s.hidden_size), torch.float32),
            GraphInput("encoder_attention_mask", ("batch", "source")),
        ),
        past=past,
        outputs=("logits", *present_names(past)),
        heads=("seq2seq",),
    )
