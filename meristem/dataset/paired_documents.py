"""Encodes documents with two sides: source-target pairs with the start of the target, captions with their image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from meristem.corpus.paired_text import IMAGE_SEPARATOR, PAIR_SEPARATOR, split_pair
from meristem.data.images import load_image
from meristem.dataset.encode_documents import EncodedBatch, TokenSpellings, encode_texts, fingerprint
from meristem.dataset.token_dataset import IntArray
from meristem.tokenizers.tokenizer import Tokenizer


def batch_cost(text: str, image_size: int) -> int:
    """The cost of a document in a batch, in characters; pixels of an image count too, so that memory stays bounded."""
    return len(text) + (3 * image_size * image_size if IMAGE_SEPARATOR in text else 0)


def encode_batch(
    texts: Sequence[str], tokenizer: Tokenizer, *, keep_words: bool = False, image_size: int = 32
) -> EncodedBatch:
    """Encode a batch of documents of one kind: plain texts, pairs, or captioned images."""
    documents = [split_pair(text) for text in texts]
    separator = documents[0].separator
    if not separator:
        return encode_texts(texts, tokenizer, keep_words=keep_words)
    fingerprints = b"".join(fingerprint(text.encode("utf-8", "surrogatepass")) for text in texts)
    if separator == PAIR_SEPARATOR:
        side_texts = [side for source_text, target_text, _ in documents for side in (source_text, target_text)]
        return _merge_pairs(encode_texts(side_texts, tokenizer, keep_words=keep_words), fingerprints)
    encoded = encode_texts([target_text for _, target_text, _ in documents], tokenizer, keep_words=keep_words)
    has_tokens = encoded.lengths > 0
    loaded = [load_image(source_text, image_size) for source_text, _, _ in compress(documents, has_tokens)]
    images = np.stack(loaded) if loaded else np.zeros((0, image_size, image_size, 3), np.uint8)
    return replace(encoded, fingerprints=fingerprints, images=images)


def _merge_pairs(encoded: EncodedBatch, fingerprints: bytes) -> EncodedBatch:
    """Alternating sources and targets merged into pairs with one separator; pairs with an empty side are dropped."""
    spans_P2 = encoded.lengths.reshape(-1, 2)
    is_complete_P = (spans_P2 > 0).all(1)
    keep = np.repeat(np.repeat(is_complete_P, 2), encoded.lengths)
    target_starts = np.cumsum(encoded.lengths)[0::2][is_complete_P]  # right after the separator of the source
    keep[target_starts - 1] = False
    new_position: IntArray = np.cumsum(keep) - keep  # position before → position after
    spellings = encoded.spellings and TokenSpellings(ids=encoded.spellings.ids[keep], table=encoded.spellings.table)
    return EncodedBatch(
        tokens=encoded.tokens[keep],
        lengths=(spans_P2.sum(1) - 1) * is_complete_P,
        sentence_starts=new_position[encoded.sentence_starts[keep[encoded.sentence_starts]]],
        byte_sizes=encoded.byte_sizes.reshape(-1, 2).sum(1) * is_complete_P,
        fingerprints=fingerprints,
        unknown_counts=np.where(np.expand_dims(is_complete_P, 1), encoded.unknown_counts.reshape(-1, 2, 2).sum(1), 0),
        spellings=spellings,
        target_starts=new_position[target_starts],
    )
