"""Contextual token and word embeddings: the hidden state of each token, or the mean over the tokens of each word."""

# T tokens of a text, D hidden size

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem.data.text_units import word_spans
from meristem.evaluation.text_embeddings import Layer, token_states
from meristem.inputs.encoded_input import EncodedInput
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.result_tables import pandas_module

Level = Literal["text", "token", "word"]


@dataclass(frozen=True, kw_only=True)
class TokenVectors:
    """The tokens or words of one text and their vectors, in text order."""

    text: str
    level: Level
    units: tuple[str, ...]
    """The tokens or words as spelled in the text; special tokens by name."""
    offsets: tuple[tuple[int, int], ...]
    """Character span of each in the text; (0, 0) for added special tokens."""
    vectors: Tensor
    """[units, D]."""

    def __len__(self) -> int:
        return len(self.units)

    def __repr__(self) -> str:
        return f"TokenVectors({self.text!r}: {len(self)} {self.level}s, vectors {list(self.vectors.shape)})"

    def plain(self) -> list[dict[str, Any]]:
        """One dict per token or word: itself, start, end, embedding."""
        rows = zip(self.units, self.offsets, self.vectors.float().cpu().tolist(), strict=True)
        return [
            {self.level: unit, "start": span[0], "end": span[1], "embedding": vector} for unit, span, vector in rows
        ]

    def to_pandas(self) -> Any:
        """A DataFrame with a row per token or word, its offsets, and a column per dimension."""
        pandas = pandas_module()
        names = pandas.DataFrame(
            {
                self.level: self.units,
                "start": [start for start, _ in self.offsets],
                "end": [end for _, end in self.offsets],
            }
        )
        return names.join(pandas.DataFrame(self.vectors.float().cpu().numpy()))


def token_vectors(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    encoded_texts: Sequence[EncodedInput],
    *,
    level: Level = "token",
    layer: Layer = None,
) -> list[TokenVectors]:
    """The vectors of the tokens or words of each text; `encoded_texts` are the texts' model inputs.

    Words are those of tagging tasks: letters and digits together, punctuation and ideographs each by itself. A
    word-level model (ELMo) keeps its own. A word without tokens, or beyond the model's maximum length, is left out.
    """
    reads_whole_words = "characters" in model.backbone.capabilities
    states = token_states(model, tokenizer, encoded_texts, layer=layer)
    return [
        _word_level(text, encoded_text, states_TD, whole_words=reads_whole_words)
        if level == "word"
        else _token_level(tokenizer, text, encoded_text, states_TD)
        for text, encoded_text, states_TD in zip(texts, encoded_texts, states, strict=True)
    ]


def _token_level(tokenizer: Tokenizer, text: str, encoded_text: EncodedInput, states_TD: Tensor) -> TokenVectors:
    spans = [(start, end) for start, end in encoded_text.offsets.tolist()]
    names = [
        text[start:end] if end > start else tokenizer.id_to_token(token_id)
        for (start, end), token_id in zip(spans, encoded_text.ids, strict=True)
    ]
    return TokenVectors(text=text, level="token", units=tuple(names), offsets=tuple(spans), vectors=states_TD.clone())


def _word_level(text: str, encoded_text: EncodedInput, states_TD: Tensor, *, whole_words: bool) -> TokenVectors:
    """Each word with the mean of the states of all tokens that overlap it."""
    pieces = np.flatnonzero(encoded_text.offsets[:, 1] > encoded_text.offsets[:, 0])
    starts, ends = encoded_text.offsets[pieces].T
    words = list(zip(starts.tolist(), ends.tolist(), strict=True)) if whole_words else word_spans(text)
    tokens_by_word = [(word, pieces[(starts < word[1]) & (ends > word[0])]) for word in words]
    covered_words = [(word, token_indices) for word, token_indices in tokens_by_word if len(token_indices)]
    return TokenVectors(
        text=text,
        level="word",
        units=tuple(text[start:end] for (start, end), _ in covered_words),
        offsets=tuple(word for word, _ in covered_words),
        vectors=_mean_states(states_TD, [token_indices for _, token_indices in covered_words]),
    )


def _mean_states(states_TD: Tensor, groups: Sequence[NDArray[Any]]) -> Tensor:
    """The mean state [groups, D] of each group of positions."""
    sizes = torch.tensor([len(group) for group in groups], dtype=torch.long, device=states_TD.device)
    flat = np.concatenate([np.zeros(0, np.int64), *groups])
    group_ids = torch.repeat_interleave(sizes)
    sums = states_TD.new_zeros(len(groups), states_TD.shape[-1])
    sums.index_add_(0, group_ids, states_TD[torch.from_numpy(flat).to(states_TD.device)])
    return sums / sizes[:, None]
