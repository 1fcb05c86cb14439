"""What every view does to make a row: the frame of special tokens, and which document each position is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from meristem.batch import Array, Row
from meristem.errors import MeristemError
from meristem.store.encode import separator_of
from meristem.store.store import Ints, Stream

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


def content_length(stream: Stream, tokenizer: Tokenizer, length: int, frame_tokens: int) -> int:
    """How many of a row's tokens are text, once stream, tokenizer and length are known to fit together."""
    if stream.tokenizer != tokenizer.digest:
        raise MeristemError(f"{stream.place}: made with another tokenizer (digest {stream.tokenizer[:12]}, now "
                            f"{tokenizer.digest[:12]}); build the store again with this one")
    if length <= frame_tokens:
        raise MeristemError(f"model.length: {length} leaves no room for text beside {frame_tokens} special tokens")
    return length - frame_tokens


def frame_of(tokenizer: Tokenizer) -> tuple[Ints, Ints]:
    """The tokens before and after the text of a framed row: the tokenizer's own, else its start and its end."""
    if tokenizer.frame is not None:
        return tokenizer.frame
    if tokenizer.start is None or tokenizer.end is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.array([tokenizer.start]), np.array([tokenizer.end])


def ended(tokens: Ints, tokenizer: Tokenizer, length: int) -> Ints:
    """A text with its end token, or as much of it as fits: one that was cut does not end.

    A tokenizer with a frame of its own puts that around the text, which is cut to leave room for it.
    """
    if tokenizer.frame is not None:
        before, after = tokenizer.frame
        return np.concatenate([before, tokens[: max(0, length - len(before) - len(after))], after]).astype(np.int64)
    return np.append(tokens, separator_of(tokenizer))[:length].astype(np.int64)


def documents_in(stream: Stream, start: int, stop: int, before: int, after: int) -> Ints:
    """The document of each position of a row; the frame belongs to its neighbours."""
    return stream.documents_at(start, stop).take(np.arange(-before, stop - start + after), mode="clip")


def row_of(tokenizer: Tokenizer, tokens: Ints, extra: Mapping[str, Array], sample: int, **notes: Any) -> Row:
    """A row of tokens that says which of them are special: those are never hidden from a model."""
    notes = {"special": tokenizer.specials[tokens], **notes}
    return Row(inputs={"tokens": tokens, **extra}, notes=notes, sample=sample)
