"""Encoder-decoders as two graphs: one reads the source, the other writes."""

# B batch, S places of the source, T new tokens, D width

from __future__ import annotations

import torch
from torch import Tensor, nn

from meristem.batch import Model
from meristem.blocks.decoder import seen_source
from meristem.blocks.sight import Sight
from meristem.interop.graphs.graph import Graph, Port, cached, presents
from meristem.interop.graphs.sight import Buckets, Grown, shut
from meristem.models.captioner import Captioner
from meristem.models.transformer import Transformer


class Encoding(nn.Module):
    """The reading half."""

    def __init__(self, backbone: Transformer) -> None:
        super().__init__()
        self.backbone = backbone
        if backbone.encoder.relative is not None:
            backbone.encoder.relative = Buckets(backbone.encoder.relative)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[B, S] → [B, S, D]."""
        return self.backbone.encode(source=input_ids, source_present=attention_mask > 0)[0]


class Looking(nn.Module):
    """A captioner's reading half, for pictures."""

    def __init__(self, backbone: Captioner) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixel_values: Tensor) -> Tensor:
        """[B, P, P, 3] → [B, S, D]."""
        return self.backbone.encode(image=pixel_values)[0]


class Decoding(nn.Module):
    """The writing half: each call may bring new tokens and new places of the source, and keeps both as keys and values.

    So the source is read in the first call, and later ones bring none of it.
    """

    def __init__(self, backbone: Transformer, head: nn.Module) -> None:
        super().__init__()
        self.words, self.entrance, self.decoder = backbone.tokens, backbone.enter_target, backbone.decoder
        self.head, relative = head, backbone.decoder.relative
        self.relative = None if relative is None else Buckets(relative)

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor, past: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """[B, T] and [B, new S, D] → logits [B, T, V], and keys and values of all so far."""
        (rows, time), before = input_ids.shape, past[0].shape[2]
        kept: list[Tensor] = []
        at_T = before + torch.arange(time, device=input_ids.device)
        x = self.entrance.place(self.words(input_ids), at_T)
        far_TS = at_T[:, None] - torch.arange(before + time, device=input_ids.device)
        source_sight = seen_source(encoder_attention_mask > 0, x.dtype)
        windows = {self.decoder.window(number) for number in range(len(self.decoder.layers))}
        sights = {window: self._sight(far_TS, window, x.dtype) for window in windows}
        for number, layer in enumerate(self.decoder.each()):
            own, read = past[4 * number : 4 * number + 2], past[4 * number + 2 : 4 * number + 4]
            now = Grown.of(own[0], own[1], at_T.expand(rows, time), [])
            source = Grown.of(read[0], read[1], at_T, []).push(*layer.cross.pair(encoder_hidden_states))
            x = layer(x, sights[self.decoder.window(number)], source, source_sight, now)
            kept += [*now.kept, *source]
        return self.head(self.decoder.final_norm(x)), kept

    def _sight(self, far_TS: Tensor, window: int | None, dtype: torch.dtype) -> Sight:
        hidden = far_TS < 0 if window is None else (far_TS < 0) | (far_TS >= window)
        mask = shut(hidden, dtype)[None, None]
        return Sight(mask=mask if self.relative is None else mask + self.relative.between(-far_TS))


def reader_and_writer(model: Model) -> list[Graph]:
    """The graphs of a model that writes from a source."""
    backbone = model.backbone
    assert isinstance(backbone, Transformer)
    graphs = [_encoder(backbone)]
    if isinstance(backbone, Captioner):
        graphs = [_looker(backbone), _encoder(backbone, "text_encoder_model.onnx")]
    return [*graphs, _decoder(backbone, model.heads["seq2seq"])]


def _encoder(backbone: Transformer, file: str = "encoder_model.onnx") -> Graph:
    return Graph(
        file=file,
        module=Encoding(backbone),
        inputs=(Port("input_ids", ("batch", "length")), Port("attention_mask", ("batch", "length"))),
        outputs=("last_hidden_state",),
    )


def _looker(backbone: Captioner) -> Graph:
    side = backbone.settings.picture
    return Graph(
        file="encoder_model.onnx",
        module=Looking(backbone),
        inputs=(Port("pixel_values", ("batch", side, side, 3), torch.float32),),
        outputs=("last_hidden_state",),
    )


def _decoder(backbone: Transformer, head: nn.Module) -> Graph:
    s = backbone.settings
    past = cached(
        len(backbone.decoder.layers),
        s.groups or s.heads,
        s.width // s.heads,
        parts=[(".decoder", "past"), (".encoder", "past_source")],
    )
    return Graph(
        file="decoder_model.onnx",
        module=Decoding(backbone, head),
        inputs=(
            Port("input_ids", ("batch", "length")),
            Port("encoder_hidden_states", ("batch", "new_source", s.width), torch.float32),
            Port("encoder_attention_mask", ("batch", "source")),
        ),
        past=past,
        outputs=("logits", *presents(past)),
        heads=("seq2seq",),
    )
