"""Unknown (out-of-vocabulary) tokens: their share of a text, warnings about it, and their cost in bits per byte."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from meristem.config.errors import MeristemError
from meristem.dataset.token_dataset import TokenDataset, TokenStream
from meristem.tokenizers.tokenizer import Tokenizer

WARN_UNKNOWN_SHARE = 0.05
"""Share of unknown tokens from which a warning is shown; a tokenizer that suits the text is below 1 %."""
SPELLING_SYMBOLS = 257
"""Alphabet for spelling an unknown word: 256 bytes and an end mark."""
CHUNK_TOKENS = 1 << 24


def unknown_share(stream: TokenStream, tokenizer: Tokenizer) -> float:
    """The share of unknown tokens in a stream, separators not counted."""
    return count_unknown(stream, tokenizer) / max(1, len(stream) - stream.documents)


def make_token_counter(tokenizer: Tokenizer) -> Callable[[list[str]], tuple[int, int]]:
    """A function that returns (tokens, unknown tokens) of a list of texts."""

    def count(texts: list[str]) -> tuple[int, int]:
        ids = tokenizer.encode_ids(texts)
        if tokenizer.unknown is None:
            return sum(map(len, ids)), 0
        return sum(map(len, ids)), sum(int((text_ids == tokenizer.unknown).sum()) for text_ids in ids)

    return count


def unknown_share_of_texts(texts: Iterable[str], tokenizer: Tokenizer) -> float:
    """The share of unknown tokens in texts."""
    tokens, unknown = make_token_counter(tokenizer)(list(texts)) if tokenizer.unknown is not None else (0, 0)
    return unknown / max(1, tokens)


def count_unknown(stream: TokenStream, tokenizer: Tokenizer) -> int:
    """Unknown tokens of a stream: from its shards' records, or counted now if those are older than the records."""
    if tokenizer.unknown is None:
        return 0
    if stream.unknown is not None:
        return stream.unknown.tokens
    starts = range(0, len(stream), CHUNK_TOKENS)
    total = sum(
        int(np.count_nonzero(stream.tokens(start, min(start + CHUNK_TOKENS, len(stream))) == tokenizer.unknown))
        for start in starts
    )
    return total - (stream.documents if tokenizer.end == tokenizer.unknown else 0)


def token_summary(dataset: TokenDataset, tokenizer: Tokenizer) -> str:
    """ "N tokens, P % unknown" over all splits."""
    streams = [dataset.split(name) for name in dataset.splits]
    tokens = sum(len(stream) - stream.documents for stream in streams)
    unknown = sum(count_unknown(stream, tokenizer) for stream in streams)
    return f"{tokens:,} tokens, {format_percent(unknown / max(1, tokens))} unknown"


def spelling_bits(stream: TokenStream, tokenizer: Tokenizer) -> float | None:
    """Bits per token for spelling out the unknown tokens, byte by byte with a uniform code.

    A model that predicts "unknown" has not predicted the word: n bytes and an end mark cost another (n + 1) · log2(257)
    bits. None if the shards do not record the bytes.
    """
    unknown = count_unknown(stream, tokenizer)
    if not unknown:
        return 0.0
    if stream.unknown is None:
        return None
    return (stream.unknown.bytes + unknown) * math.log2(SPELLING_SYMBOLS) / len(stream)


def format_percent(share: float) -> str:
    """A share as text: 0 %, 0.03 %, 12 %."""
    return "0 %" if share == 0 else f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def unknown_warning(share: float, text_name: str) -> str | None:
    """A warning if many tokens of a text are unknown, else None."""
    if share <= WARN_UNKNOWN_SHARE:
        return None
    return (
        f"WARNING: {format_percent(share)} of the tokens of {text_name} are unknown to the tokenizer, "
        "which was trained on other text: a model learns and predicts nothing about them"
    )


def check_unknown_share(share: float, max_share: float, text_name: str, *, kept_from: str | None) -> None:
    """Raise an error if too many tokens are unknown; `kept_from` is the run whose tokenizer is reused, if any."""
    if share <= max_share:
        return
    fix = (
        f"give it a tokenizer of its own: from.tokenizer=own (rows of tokens known to both are copied from "
        f"{kept_from}), from.load=embeddings (only those), or train from scratch"
        if kept_from
        else "train another (tokenizer.kind, tokenizer.vocab_size, without tokenizer.path), or use "
        "a tokenizer file trained on such text"
    )
    raise MeristemError(
        f"{format_percent(share)} of the tokens of {text_name} are unknown to the tokenizer, which leaves "
        f"too little to learn from; {fix}. dataset.max_unknown={math.ceil(share * 100) / 100:g} trains anyway"
    )
