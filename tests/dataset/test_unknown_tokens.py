"""Unknown tokens are counted when a dataset is built, rejected if there are too many, and cost their bytes."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.corpus.document import Document
from meristem.dataset.build import build_dataset
from meristem.dataset.encode_documents import count_unknown_per_text
from meristem.dataset.manifest import MANIFEST_FILE
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.unknown_tokens import (
    check_unknown_share,
    count_unknown,
    spelling_bits,
    unknown_share,
    unknown_warning,
)

TEXTS = ["a b é c", "天 龙 龙 地", "all known here.", "€uro"]
BEHIND = "é龙龙€uro"  # a word with a sign that no token has is unknown as a whole


@pytest.fixture
def store(make):
    return make(TEXTS)


def test_shards_count_unknown_tokens_and_their_bytes(store, tokenizer):
    stream = store.split("train")
    ids = np.concatenate([tokenizer.encode(text).ids for text in TEXTS])
    assert stream.unknown is not None
    assert stream.unknown.tokens == np.count_nonzero(ids == tokenizer.unknown)
    spans = [(text, encoding) for text in TEXTS for encoding in [tokenizer.encode(text)]]
    words = "".join(
        text[start:stop] for text, span in spans for start, stop in span.offsets[span.ids == tokenizer.unknown].tolist()
    )
    assert words.replace("uro", "") == BEHIND.replace("uro", "")
    assert stream.unknown.bytes == len(words.encode())
    assert unknown_share(stream, tokenizer) == stream.unknown_share == stream.unknown.tokens / len(ids)


def test_the_count_is_the_same_in_pieces_pairs_and_with_words(tokenizer, tmp_path):
    texts = TEXTS * 30
    for name, keep_words, processes in (("plain", False, 1), ("words", True, 2)):
        documents = [Document(text, "test:1") for text in texts]
        settings = DatasetSettings(shard_tokens=50)
        dataset = build_dataset(
            documents, tokenizer, tmp_path / name, settings, processes=processes, keep_words=keep_words
        )
        unknown = dataset.split("train").unknown
        assert unknown == tuple(
            30 * count_unknown_per_text(TEXTS, [tokenizer.encode(t).ids for t in TEXTS], tokenizer).sum(0)
        )
    pairs = [Document("a é\x1e龙 b", "test:1"), Document("a\x1eé", "test:2"), Document("a\x1e", "test:3")]
    assert build_dataset(pairs, tokenizer, tmp_path / "pairs", DatasetSettings(), processes=1).split(
        "train"
    ).unknown == (
        3,
        7,
    )


def test_shards_from_before_they_were_counted_still_open(store, tokenizer):
    path = store.folder / MANIFEST_FILE
    body = json.loads(path.read_text())
    counted = store.split("train")
    for record in body["store"]["splits"]["train"]:
        del record["unknown"], record["unknown_bytes"]
    del body["sha256"]
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({"sha256": digest, **body}, indent=1, sort_keys=True) + "\n")
    old = TokenDataset.open(store.folder).split("train")
    assert old.unknown is None and old.unknown_share is None
    assert unknown_share(old, tokenizer) == counted.unknown_share
    assert count_unknown(old, tokenizer) == counted.unknown.tokens
    assert spelling_bits(old, tokenizer) is None  # how many bytes they stand for is not known any more


def test_what_cannot_be_read_at_all_costs_more_than_its_bytes(make, tokenizer):
    text = "龙龙龙凤凤凤" * 5
    stream = make([text]).split("train")
    bits = spelling_bits(stream, tokenizer)
    assert bits * len(stream) == pytest.approx((len(text.encode()) + count_unknown(stream, tokenizer)) * math.log2(257))
    assert bits / (stream.bytes / len(stream)) > 8  # even with a model that says "unknown" with certainty
    assert spelling_bits(make(["all known here."]).split("train"), tokenizer) == 0


def test_many_are_warned_of_and_most_are_refused():
    assert unknown_warning(0.05, "a.txt") is None
    assert unknown_warning(0.062, "a.txt").startswith(
        "WARNING: 6.2 % of the tokens of a.txt are unknown to the tokenizer"
    )
    check_unknown_share(0.5, 0.5, "a.txt", kept_from=None)
    with pytest.raises(MeristemError, match=r"99 % of the tokens of a\.txt.*from\.tokenizer=own.*max_unknown=1 trains"):
        check_unknown_share(0.991, 0.5, "a.txt", kept_from="runs/bert")
    with pytest.raises(MeristemError, match="train another"):
        check_unknown_share(0.6, 0.5, "a.txt", kept_from=None)
