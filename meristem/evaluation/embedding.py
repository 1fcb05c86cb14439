"""Texts as vectors: what a backbone makes of each, read together with others of like length."""

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
from meristem.generation.way import ways
from meristem.store.letters import spelled
from meristem.tokenizers.tokenizer import Tokenizer

Pooling = Literal["mean", "first", "last"]
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

    @property
    def size(self) -> int:
        """Tokens that are read."""
        return len(self.ids)


def frame(model: Model, tokenizer: Tokenizer, text: str) -> Framed:
    """A text between the tokens that stood round texts in training, cut to what the model reads."""
    way, can = next(iter(ways(model)), None), model.backbone.can
    if "image" in can or (way is None and "encoder_decoder" in can):
        raise MeristemError(
            f"this {type(model.backbone).__name__} reads no text by itself, so that there is none to look into; "
            "take a run of bert, gpt2, transformer or another family that was pretrained on text"
        )
    if way == "source":
        start = given(model, tokenizer, text)
        return Framed(ids=start.inputs["source"].tolist(), start=start)
    found = tokenizer.encode(text, special=True)
    ids: list[int] = found.ids.tolist()
    if way == "causal" or tokenizer.start is None or tokenizer.end is None:
        ids = ids or [tokenizer.end or 0]
    else:
        ids = [tokenizer.start, *ids, tokenizer.end]
    if "characters" in can:
        return Framed(ids=ids, letters=_letters(tokenizer, text, ids, found.offsets))
    return Framed(ids=ids[: model.backbone.length])


def states(model: Model, texts: Sequence[Framed], want: tuple[str, ...] = ()) -> Hidden:
    """Several texts in one pass, padded on the right; those with letters must be of one length."""
    device = model.device
    starts = [one.start for one in texts if one.start is not None]
    if starts:
        tokens, _, inputs = together(starts, device)
        return model.backbone(tokens=tokens, **inputs, want=want)  # type: ignore[no-any-return]  # nn.Module.__call__
    tokens = pad_sequence([torch.tensor(one.ids) for one in texts], batch_first=True).to(device)
    reads: dict[str, Any] = {"tokens": tokens}
    if "causal" in ways(model):
        reads["causal"] = True  # padding comes later in the row, so that nothing sees it
    elif len({one.size for one in texts}) > 1:
        sizes = torch.tensor([one.size for one in texts], device=device)
        reads["present"] = torch.arange(tokens.shape[1], device=device) < sizes[:, None]
    letters = [one.letters for one in texts if one.letters is not None]
    if letters:
        reads["characters"] = torch.from_numpy(np.stack(letters)).to(device)
    return model.backbone(**reads, want=want)  # type: ignore[no-any-return]  # nn.Module.__call__


def embed(model: Model, texts: Sequence[Framed], pooling: Pooling = "mean") -> Tensor:
    """One vector per text [B, D]: the mean of its (encoder's) states, or its first or last."""
    out: dict[int, Tensor] = {}
    with resting(model):
        for some in _together(texts):
            hidden = states(model, [texts[number] for number in some])
            read_BTD = hidden.last if hidden.source is None else hidden.source
            for row, number in enumerate(some):
                out[number] = _pooled(read_BTD[row, : texts[number].size], pooling)
    return torch.stack([out[number] for number in range(len(texts))]).clone()


def _pooled(states_TD: Tensor, pooling: Pooling) -> Tensor:
    if pooling == "mean":
        return states_TD.mean(0)
    return states_TD[0 if pooling == "first" else -1]


def _together(texts: Sequence[Framed]) -> Iterator[list[int]]:
    """Places of texts of like length, as many as are read at once; letters are never padded."""
    some: list[int] = []
    for number in sorted(range(len(texts)), key=lambda number: texts[number].size):
        size = texts[number].size
        other = some and texts[number].letters is not None and texts[some[0]].size != size
        if some and (other or (len(some) + 1) * size > TOKENS):
            yield some
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
