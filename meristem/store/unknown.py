"""Unknown tokens of a text: their share, what it means for training, and what they cost in bits per byte."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from meristem.errors import MeristemError

if TYPE_CHECKING:
    from meristem.store.store import Store, Stream
    from meristem.tokenizers.tokenizer import Tokenizer

MANY = 0.05
"""Share of unknown tokens from which a person is warned: a tokenizer made for the text leaves less than a hundredth."""
SYMBOLS = 257
"""The bytes, and the end of an unknown word: what spelling it chooses from."""
CHUNK = 1 << 24


def unknown_share(stream: Stream, tokenizer: Tokenizer) -> float:
    """The share of a stream's tokens, separators apart, that are the unknown one."""
    return count_unknown(stream, tokenizer) / max(1, len(stream) - stream.documents)


def counter_of(tokenizer: Tokenizer) -> Callable[[list[str]], tuple[int, int]]:
    """A function that counts the tokens of texts, and those of them that are the unknown one."""

    def count(texts: list[str]) -> tuple[int, int]:
        ids = tokenizer.ids_many(texts)
        unknown = 0 if tokenizer.unknown is None else sum(int((one == tokenizer.unknown).sum()) for one in ids)
        return sum(map(len, ids)), unknown

    return count


def unknown_share_of(texts: Iterable[str], tokenizer: Tokenizer) -> float:
    """The share of the tokens of texts that are the unknown one."""
    tokens, unknown = counter_of(tokenizer)(list(texts)) if tokenizer.unknown is not None else (0, 0)
    return unknown / max(1, tokens)


def count_unknown(stream: Stream, tokenizer: Tokenizer) -> int:
    """Unknown tokens of a stream: as its shards say, or counted where they were made before that was done."""
    if tokenizer.unknown is None:
        return 0
    if stream.unknown is not None:
        return stream.unknown.tokens
    starts = range(0, len(stream), CHUNK)
    found = sum(int(np.count_nonzero(stream.tokens(at, min(at + CHUNK, len(stream))) == tokenizer.unknown))
                for at in starts)
    return found - (stream.documents if tokenizer.end == tokenizer.unknown else 0)


def token_summary(store: Store, tokenizer: Tokenizer) -> str:
    """Tokens of all splits, and the share of unknown ones."""
    streams = [store.split(name) for name in store.splits]
    tokens = sum(len(one) - one.documents for one in streams)
    unknown = sum(count_unknown(one, tokenizer) for one in streams)
    return f"{tokens:,} tokens, {percent(unknown / max(1, tokens))} unknown"


def spelling_bits(stream: Stream, tokenizer: Tokenizer) -> float | None:
    """Bits per token for spelling what unknown tokens stand for, letter by letter and without any knowledge.

    A model that says "unknown" has not yet said which word: n bytes and the end of them cost (n + 1) · log2(257)
    bits more. None where shards do not say how many bytes there are.
    """
    unknown = count_unknown(stream, tokenizer)
    if not unknown:
        return 0.0
    if stream.unknown is None:
        return None
    return (stream.unknown.bytes + unknown) * math.log2(SYMBOLS) / len(stream)


def percent(share: float) -> str:
    """A share for people: 0, 0.03 %, 12 %."""
    return "0 %" if share == 0 else f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def notice_of(share: float, what: str) -> str | None:
    """What a person should know where many tokens of a text are unknown."""
    if share <= MANY:
        return None
    return (
        f"WARNING: {percent(share)} of the tokens of {what} are unknown to the tokenizer, which was made for other "
        "text: a model learns and predicts nothing about them"
    )


def refuse_unknown(share: float, most: float, what: str, *, kept: str | None) -> None:
    """Refuse text that the tokenizer mostly has no tokens for; `kept` names the run whose tokenizer is kept, if any."""
    if share <= most:
        return
    mend = (
        f"give it a tokenizer of its own: from.tokenizer=own (rows of tokens known to both are copied from {kept}), "
        "from.take=embeddings (only those), or train from scratch"
        if kept
        else "train another (tokenizer.kind, tokenizer.size, without tokenizer.path), or give a file made for this text"
    )
    raise MeristemError(
        f"{percent(share)} of the tokens of {what} are unknown to the tokenizer, so that there is hardly anything to "
        f"learn from; {mend}. store.max_unknown={math.ceil(share * 100) / 100:g} trains all the same"
    )
