"""Text embeddings: hidden states of any layer, pooled to one vector per text; texts of like length share a batch."""

# B texts, T tokens, D width

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from meristem.batch import Hidden, Model
from meristem.errors import MeristemError
from meristem.evaluation.held_out import resting
from meristem.generation.given import Given, given, together
from meristem.generation.watching import go_on, tokens_per_pass
from meristem.generation.way import reading_way
from meristem.store.letters import spelled
from meristem.tokenizers.tokenizer import Tokenizer

Pooling = Literal["mean", "first", "last"]
Layer = int | Literal["mix"] | None
"""0 is the embeddings, 1 the first layer, negative numbers count from the last; `mix` joins all; none is the output."""
TOKENS = 4096
"""Read at once, padding counted."""


@dataclass(frozen=True, kw_only=True)
class Framed:
    """One text as the backbone reads it."""

    ids: list[int]
    letters: NDArray[Any] | None = None
    """How each token is written, for backbones that read letters."""
    start: Given | None = None
    """What an encoder reads, where there is one."""
    offsets: NDArray[Any]
    """[size, 2] the characters of the text each token covers; (0, 0) for special tokens that were added."""
    truncated: int = 0
    """Tokens at the end of the text that the model has no room for."""

    @property
    def size(self) -> int:
        """Tokens that are read."""
        return len(self.ids)


def frame(model: Model, tokenizer: Tokenizer, text: str) -> Framed:
    """A text between the tokens that stood round texts in training, cut to what the model reads."""
    way, can = reading_way(model), model.backbone.can
    if not reads_text(model):
        raise MeristemError(
            f"this {type(model.backbone).__name__} reads no text by itself, so that there is none to look into; "
            "take a run of bert, gpt2, transformer or another family that was pretrained on text"
        )
    whole = way == "source" or "characters" in can
    found = tokenizer.encode(text, special=True, limit=None if whole else model.backbone.length)
    if way == "source":
        start = given(model, tokenizer, text, source=True)
        ids = start.inputs["source"].tolist()
        before, after = tokenizer.frame or ((), ())
        kept = min(len(found.ids), len(ids) - len(before) - len(after))
        placed = _placed(found.offsets[:kept], len(before), len(ids))
        return Framed(ids=ids, start=start, offsets=placed, truncated=len(found.ids) - kept)
    ids, first = found.ids.tolist(), 0
    if way == "causal" or tokenizer.start is None or tokenizer.end is None:
        ids = ids or [tokenizer.end or 0]
    else:
        ids, first = [tokenizer.start, *ids, tokenizer.end], 1
    placed = _placed(found.offsets, first, len(ids))
    if "characters" in can:
        return Framed(ids=ids, letters=_letters(tokenizer, text, ids, found.offsets), offsets=placed)
    length = model.backbone.length
    cut = max(0, first + len(found.ids) + found.left_out - length)
    return Framed(ids=ids[:length], offsets=placed[:length], truncated=cut)


def reads_text(model: Model) -> bool:
    """Whether a text by itself has states in this model: read by an encoder or a decoder that learned from texts."""
    backbone = model.backbone
    alone = reading_way(model) is not None or "bidirectional" in backbone.can or "encoder_decoder" not in backbone.can
    return backbone.text_tasks and alone


def _placed(offsets: NDArray[Any], first: int, size: int) -> NDArray[Any]:
    """Offsets of a row of `size` tokens whose text begins at token `first` [size, 2]."""
    out = np.zeros((size, 2), np.int64)
    out[first : first + len(offsets)] = offsets
    return out


def states(model: Model, texts: Sequence[Framed], want: tuple[str, ...] = ()) -> Hidden:
    """Several texts in one pass, padded on the right; those with letters must be of one length."""
    device = model.device
    starts = [one.start for one in texts if one.start is not None]
    if starts:
        tokens, _, inputs = together(starts, device)
        return model.backbone(tokens=tokens, **inputs, want=want)  # type: ignore[no-any-return]  # nn.Module.__call__
    tokens = pad_sequence([torch.tensor(one.ids) for one in texts], batch_first=True).to(device)
    reads: dict[str, Any] = {"tokens": tokens}
    if reading_way(model) == "causal":
        reads["causal"] = True  # padding comes later in the row, so that nothing sees it
    elif len({one.size for one in texts}) > 1:
        sizes = torch.tensor([one.size for one in texts], device=device)
        reads["present"] = torch.arange(tokens.shape[1], device=device) < sizes[:, None]
    letters = [one.letters for one in texts if one.letters is not None]
    if letters:
        reads["characters"] = torch.from_numpy(np.stack(letters)).to(device)
    return model.backbone(**reads, want=want)  # type: ignore[no-any-return]  # nn.Module.__call__


def embed(model: Model, texts: Sequence[Framed], pooling: Pooling = "mean", *, layer: Layer = None) -> Tensor:
    """One vector per text [B, D]: the mean of its (encoder's) states, or its first or last."""
    rows = token_states(model, texts, layer=layer)
    return torch.stack([_pooled(states_TD, pooling) for states_TD in rows]).clone()


def token_states(model: Model, texts: Sequence[Framed], *, layer: Layer = None) -> list[Tensor]:
    """The hidden states of each text [its tokens, D], of an encoder-decoder those of its encoder."""
    out: dict[int, Tensor] = {}
    want = () if layer is None else ("layers",)
    with resting(model):
        for some in _together(texts):
            states_BTD = _at_layer(model, states(model, [texts[number] for number in some], want), layer)
            for row, number in enumerate(some):
                out[number] = states_BTD[row, : texts[number].size]
    return [out[number] for number in range(len(texts))]


def _at_layer(model: Model, hidden: Hidden, layer: Layer) -> Tensor:
    """One layer of a forward pass [B, T, D]; the last one is the model's output, behind its final norm."""
    output = hidden.last if hidden.source is None else hidden.source
    if layer is None:
        return output
    layers = hidden.layers if hidden.source is None else hidden.extra.get("encoder_layers", ())
    if layer == "mix":
        return _mixed(model, layers)
    count = len(layers) - 1
    if not -count - 1 <= layer <= count:
        raise MeristemError(f"layer {layer}: this model has 0 (its embeddings) to {count}, and mix")
    return output if layer in (count, -1) else layers[layer]


def _mixed(model: Model, layers: Sequence[Tensor]) -> Tensor:
    """γ Σ s_j h_j with the weights a task learned; without such, the mean of all layers (Peters et al. 2018, eq. 1)."""
    if "mix" in model.heads:
        return model.heads["mix"](layers)  # type: ignore[no-any-return]  # nn.Module.__call__
    if len({one.shape[-1] for one in layers}) > 1:
        raise MeristemError("layer mix: the embeddings of this model are not as wide as its layers; name one of them")
    return torch.stack(list(layers)).mean(0)


def _pooled(states_TD: Tensor, pooling: Pooling) -> Tensor:
    if pooling == "mean":
        return states_TD.mean(0)
    return states_TD[0 if pooling == "first" else -1]


def _together(texts: Sequence[Framed]) -> Iterator[list[int]]:
    """Places of texts of like length, as many as are read at once; letters are never padded."""
    some: list[int] = []
    most = tokens_per_pass(TOKENS)
    for number in sorted(range(len(texts)), key=lambda number: texts[number].size):
        size = texts[number].size
        other = some and texts[number].letters is not None and texts[some[0]].size != size
        if some and (other or (len(some) + 1) * size > most):
            yield some
            go_on()
            some = []
        some.append(number)
    if some:
        yield some


def _letters(tokenizer: Tokenizer, text: str, ids: list[int], offsets: NDArray[Any]) -> NDArray[Any]:
    """How each token of a framed text is written, whether or not its word is in the vocabulary."""
    words = [text[first:last].encode("utf-8", "surrogatepass") for first, last in offsets.tolist()]
    edge = [b""] * ((len(ids) - len(words)) // 2)
    if len(words) + 2 * len(edge) < len(ids):  # an empty text without a frame is read as its end
        words = [b""]
    return spelled(np.array(ids), [*edge, *words, *edge], tokenizer)
