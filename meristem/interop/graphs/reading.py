"""Encoders as graphs: tokens in, their states and what every head says of them out."""

# B batch, T tokens, D width

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from meristem.batch import Model
from meristem.blocks.outlook import Outlook
from meristem.blocks.relative import Scattered
from meristem.blocks.relative_stack import Pass
from meristem.interop.graphs.graph import Graph, Port
from meristem.models.bert import Bert
from meristem.models.xlnet import XLNet

Say = Callable[[nn.Module, Tensor], Tensor]
KINDS: Mapping[str, Say] = {
    "vocabulary": lambda head, states: head(states),
    "tags": lambda head, states: head(states),
    "token_score": lambda head, states: head(states),
    "pooled": lambda head, states: head(states[:, 0]),
    "pooler": lambda head, states: head(states[:, 0]),
}
"""Kinds of heads that can be asked in a graph, and where; the other one, a generator, reads tokens of its own."""
OTHER_WAY = frozenset({"clm", "plm"})
"""Heads that read states of another kind than an encoder's: causal ones, or a query stream's."""
BATCH = ("batch", "length")


class Reading(nn.Module):
    """A bidirectional backbone with its heads."""

    def __init__(self, model: Model, heads: tuple[str, ...]) -> None:
        super().__init__()
        self.states = RelativeStates(model.backbone) if isinstance(model.backbone, XLNet) else States(model.backbone)
        self.heads = nn.ModuleList(model.heads[name] for name in heads)
        self._say = [KINDS[model.declared[name].kind] for name in heads]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """[B, T] → states [B, T, D], and what each head says."""
        states = self.states(input_ids, attention_mask > 0, token_type_ids)
        return states, *(say(head, states) for say, head in zip(self._say, self.heads, strict=True))


class States(nn.Module):
    """A backbone called as training calls it."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, tokens_BT: Tensor, present_BT: Tensor, segments_BT: Tensor | None) -> Tensor:
        """[B, T, D]."""
        told = {} if segments_BT is None else {"segments": segments_BT}
        return self.backbone(tokens=tokens_BT, present=present_BT, **told).last  # type: ignore[no-any-return]  # nn.Module.__call__


class RelativeStates(nn.Module):
    """XLNet's content stream without memory; scores by distance are gathered, where training reads a shifted view."""

    def __init__(self, backbone: XLNet) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, tokens_BT: Tensor, present_BT: Tensor, segments_BT: Tensor | None) -> Tensor:
        """[B, T, D]."""
        x, stack = self.backbone.tokens(tokens_BT), self.backbone.stack
        rows, time = tokens_BT.shape
        outlook = Outlook(
            time=time, causal=False, device=x.device, dtype=x.dtype, present=present_BT, segments=segments_BT
        )
        places_BT = torch.arange(time, device=x.device).expand(rows, time)
        look = replace(outlook.content(), turn=Scattered.at(places_BT, time, time))
        given = Pass(distances=stack.waves(outlook), content=look)
        for layer in stack.each():
            x, _, _ = layer(x, None, None, given, False)
        return stack.final_norm(x)  # type: ignore[no-any-return]  # nn.Module.__call__


def encoder(model: Model, file: str = "model.onnx", *, unlearnt: Collection[str] = ()) -> Graph:
    """The graph of a model that sees its whole input, without heads that never learnt anything."""
    heads = tuple(name for name in model.declared if name not in unlearnt and _asked(model, name))
    inputs = [Port("input_ids", BATCH), Port("attention_mask", BATCH)]
    backbone = model.backbone
    if isinstance(backbone, Bert | XLNet) and backbone.settings.segments:
        inputs.append(Port("token_type_ids", BATCH))
    return Graph(
        file=file,
        module=Reading(model, heads),
        inputs=tuple(inputs),
        outputs=("last_hidden_state", *_names(model, heads)),
        heads=heads,
    )


def _asked(model: Model, name: str) -> bool:
    """Whether a head reads what this graph says, and where: XLNet's texts are read at their end, except in pairs."""
    kind = model.declared[name].kind
    if isinstance(model.backbone, XLNet) and kind == "pooled" and name != "nsp":
        return False
    return kind in KINDS and name not in OTHER_WAY


def _names(model: Model, heads: Sequence[str]) -> list[str]:
    """A single head says `logits`, several say whose."""
    scored = [name for name in heads if model.declared[name].kind != "pooler"]
    own = {name: "logits" if len(scored) == 1 else f"{name}_logits" for name in scored}
    return [own.get(name, "pooler_output") for name in heads]
