"""Rows of token ids, as all views make them: special tokens around the text, and the document of each position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from meristem.config.errors import MeristemError
from meristem.dataset.shuffled_stream import TokenReader
from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.inputs.batch import Array, Row
from meristem.tokenizers.tokenizer import Tokenizer


def content_length(stream: TokenStream, tokenizer: Tokenizer, length: int, num_special: int) -> int:
    """How many of a row's `length` tokens are text; also checks that stream, tokenizer and length fit together."""
    if stream.tokenizer != tokenizer.digest:
        raise MeristemError(
            f"{stream.path}: built with another tokenizer (digest {stream.tokenizer[:12]}, now "
            f"{tokenizer.digest[:12]}); rebuild the dataset with this one"
        )
    if length <= num_special:
        raise MeristemError(f"model.max_length: {length} leaves no room for text beside {num_special} special tokens")
    return length - num_special


def document_ids(stream: TokenReader, start: int, stop: int, prefix_length: int, suffix_length: int) -> IntArray:
    """The document of each position of a row; special tokens belong to the document beside them."""
    return stream.documents_at(start, stop).take(np.arange(-prefix_length, stop - start + suffix_length), mode="clip")


def make_row(tokenizer: Tokenizer, tokens: IntArray, extra: Mapping[str, Array], sample: int, **notes: Any) -> Row:
    """A row of tokens with the mask of special tokens, which are never masked out by an objective."""
    notes = {"special": tokenizer.special_mask[tokens], **notes}
    return Row(inputs={"tokens": tokens, **extra}, metadata=notes, sample_id=sample)
