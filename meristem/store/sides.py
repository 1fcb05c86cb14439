"""Documents with two sides on their way to a shard: pairs keep where the target begins, captions keep their picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meristem.corpus.pictures import load
from meristem.corpus.sides import PAIR, PICTURE, sides
from meristem.store.encode import Pack, Words, encode, fingerprint
from meristem.store.store import Ints

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


def weight(text: str, picture: int) -> int:
    """What a document adds to a batch, in characters; a picture's pixels count too, so that memory stays flat."""
    return len(text) + (3 * picture * picture if PICTURE in text else 0)


def pack_of(texts: Sequence[str], tokenizer: Tokenizer, *, keep_words: bool = False, picture: int = 32) -> Pack:
    """A batch of documents of one kind, encoded as that kind is."""
    each = [sides(text) for text in texts]
    mark = each[0].mark
    if not mark:
        return encode(texts, tokenizer, keep_words=keep_words)
    prints = b"".join(fingerprint(text.encode("utf-8", "surrogatepass")) for text in texts)
    if mark == PAIR:
        flat = [side for given, told, _ in each for side in (given, told)]
        return _paired(encode(flat, tokenizer, keep_words=keep_words), prints)
    pack = encode([told for _, told, _ in each], tokenizer, keep_words=keep_words)
    shown = [load(given, picture) for (given, _, _), span in zip(each, pack.spans, strict=True) if span]
    pictures = np.stack(shown) if shown else np.zeros((0, picture, picture, 3), np.uint8)
    return replace(pack, fingerprints=prints, pictures=pictures)


def _paired(pack: Pack, prints: bytes) -> Pack:
    """Sources and targets by turns become pairs, with one separator each; a pair without a token on a side is none."""
    spans_P2 = pack.spans.reshape(-1, 2)
    whole_P = (spans_P2 > 0).all(1)
    keep = np.repeat(np.repeat(whole_P, 2), pack.spans)
    begins = np.cumsum(pack.spans)[0::2][whole_P]  # each target's first token, right after the source's separator
    keep[begins - 1] = False
    moved: Ints = np.cumsum(keep) - keep  # position before → position after
    words = pack.words and Words(numbers=pack.words.numbers[keep], spellings=pack.words.spellings)
    return Pack(
        tokens=pack.tokens[keep],
        spans=(spans_P2.sum(1) - 1) * whole_P,
        sentences=moved[pack.sentences[keep[pack.sentences]]],
        sizes=pack.sizes.reshape(-1, 2).sum(1) * whole_P,
        fingerprints=prints,
        unknown=np.where(np.expand_dims(whole_P, 1), pack.unknown.reshape(-1, 2, 2).sum(1), 0),
        words=words,
        middles=moved[begins],
    )
