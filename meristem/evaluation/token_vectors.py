"""Contextual vectors of tokens and words: the hidden state of each token, or the mean over the pieces of each word."""

# T tokens of a text, D width

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem.batch import Model
from meristem.evaluation.embedding import Framed, Layer, token_states
from meristem.tasks._words import cut
from meristem.tokenizers.tokenizer import Tokenizer

Level = Literal["text", "token", "word"]


@dataclass(frozen=True, kw_only=True)
class TokenVectors:
    """The tokens or words of one text and their vectors, in the order of the text."""

    text: str
    level: Level
    units: tuple[str, ...]
    """The tokens or words as the text writes them; special tokens by name."""
    offsets: tuple[tuple[int, int], ...]
    """The characters of the text that each covers; (0, 0) for special tokens the model adds."""
    vectors: Tensor
    """[units, D]."""

    def __len__(self) -> int:
        return len(self.units)

    def __repr__(self) -> str:
        return f"TokenVectors({self.text!r}: {len(self)} {self.level}s, vectors {list(self.vectors.shape)})"

    def plain(self) -> list[dict[str, Any]]:
        """One mapping per token or word: itself, start, end, embedding."""
        rows = zip(self.units, self.offsets, self.vectors.float().cpu().tolist(), strict=True)
        return [{self.level: unit, "start": at[0], "end": at[1], "embedding": vector} for unit, at, vector in rows]

    def to_pandas(self) -> Any:
        """A DataFrame with a row per token or word, its offsets, and a column per dimension."""
        import pandas

        names = pandas.DataFrame({
            self.level: self.units,
            "start": [start for start, _ in self.offsets],
            "end": [end for _, end in self.offsets],
        })
        return names.join(pandas.DataFrame(self.vectors.float().cpu().numpy()))


def token_vectors(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    framed: Sequence[Framed],
    *,
    level: Level = "token",
    layer: Layer = None,
) -> list[TokenVectors]:
    """The vectors of the tokens, or of the words, of each text; `framed` are the texts as the model reads them.

    Words are those that tagging knows: letters and digits together, punctuation and ideographs each by itself. A model
    that reads whole words (ELMo) keeps its own. A word that the model has no token of, or no room for, is left out.
    """
    whole = "characters" in model.backbone.can
    states = token_states(model, framed, layer=layer)
    return [
        _words(text, one, states_TD, whole=whole) if level == "word" else _tokens(tokenizer, text, one, states_TD)
        for text, one, states_TD in zip(texts, framed, states, strict=True)
    ]


def _tokens(tokenizer: Tokenizer, text: str, framed: Framed, states_TD: Tensor) -> TokenVectors:
    spans = [(start, end) for start, end in framed.offsets.tolist()]
    names = [
        text[start:end] if end > start else tokenizer.token(number)
        for (start, end), number in zip(spans, framed.ids, strict=True)
    ]
    return TokenVectors(
        text=text, level="token", units=tuple(names), offsets=tuple(spans), vectors=states_TD.clone()
    )


def _words(text: str, framed: Framed, states_TD: Tensor, *, whole: bool) -> TokenVectors:
    """Each word with the mean of the states of all tokens that cover some of it."""
    pieces = np.flatnonzero(framed.offsets[:, 1] > framed.offsets[:, 0])
    starts, ends = framed.offsets[pieces].T
    words = list(zip(starts.tolist(), ends.tolist(), strict=True)) if whole else cut(text)
    covers = [(word, pieces[(starts < word[1]) & (ends > word[0])]) for word in words]
    there = [(word, at) for word, at in covers if len(at)]
    return TokenVectors(
        text=text,
        level="word",
        units=tuple(text[start:end] for (start, end), _ in there),
        offsets=tuple(word for word, _ in there),
        vectors=_means(states_TD, [at for _, at in there]),
    )


def _means(states_TD: Tensor, groups: Sequence[NDArray[Any]]) -> Tensor:
    """The mean state of each group of positions [groups, D]."""
    sizes = torch.tensor([len(at) for at in groups], dtype=torch.long, device=states_TD.device)
    flat = np.concatenate([np.zeros(0, np.int64), *groups])
    owner = torch.repeat_interleave(sizes)
    sums = states_TD.new_zeros(len(groups), states_TD.shape[-1])
    sums.index_add_(0, owner, states_TD[torch.from_numpy(flat).to(states_TD.device)])
    return sums / sizes[:, None]
