"""Search for token sequences: the same as trying every position, across shards and chunks, whatever the hash."""

import numpy as np
import pytest

from meristem.corpus.document import Document
from meristem.dataset.build import build_dataset
from meristem.dataset.settings import DatasetSettings
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.train import train_tokenizer
from meristem.trust.exposure import corpus_search
from meristem.trust.exposure.corpus_search import find_sequences
from meristem.trust.exposure.passages import passage_size, sample_passages


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """A training split of few words, in several shards, so that many sequences occur often."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["a", "b", "c"], rng.integers(2, 40))) for _ in range(120)]
    tokenizer = train_tokenizer(TokenizerSettings(kind="words", vocab_size=64), texts)
    dataset = build_dataset(
        (Document(text, "-") for text in texts),
        tokenizer,
        tmp_path_factory.mktemp("dataset") / "store",
        DatasetSettings(shard_tokens=700),
        processes=1,
    )
    assert len(dataset.manifest.splits["train"]) > 2
    return dataset.split("train")


def tried_everywhere(stream, sequence):
    tokens = stream.tokens(0, len(stream))
    size = len(sequence)
    return [start for start in range(len(tokens) - size + 1) if np.array_equal(tokens[start : start + size], sequence)]


@pytest.mark.parametrize("chunk", [64, 1 << 21])
def test_every_occurrence_is_counted(stream, monkeypatch, chunk):
    monkeypatch.setattr(corpus_search, "CHUNK_TOKENS", chunk)
    rng = np.random.default_rng(1)
    starts = rng.integers(0, len(stream) - 12, 60)
    sequences = [
        stream.tokens(start, start + int(size)) for start, size in zip(starts, rng.integers(1, 12, 60), strict=True)
    ]
    sequences += [rng.integers(0, 9, 5), np.array([10_000, 3]), stream.tokens(0, 0), stream.tokens(0, len(stream))]
    for sequence, occurrences in zip(sequences, find_sequences(stream, sequences), strict=True):
        expected = tried_everywhere(stream, sequence) if len(sequence) else []
        assert occurrences.count == len(expected)
        assert occurrences.positions == expected[: corpus_search.MAX_POSITIONS]


def test_a_hash_that_always_collides_finds_nothing_false(stream, monkeypatch):
    monkeypatch.setattr(
        corpus_search, "_window_hashes", lambda tokens, length: np.zeros(len(tokens) - length + 1, np.uint64)
    )
    present = stream.tokens(5, 12)
    absent = np.append(present[:-1], 10_000)
    found = find_sequences(stream, [present, absent])
    assert found[0].count == len(tried_everywhere(stream, present)) > 0
    assert found[1].count == 0


def test_passages_lie_within_documents_and_do_not_overlap(stream):
    first = stream.document(7)
    skipped = {tuple(stream.tokens(first.start, first.text_stop).tolist())}
    passages = sample_passages(stream, 4, 200, seed=0, skipped=skipped)
    covered = set()
    for passage in passages:
        span = stream.document(passage.document)
        assert span.start <= passage.position and passage.position + 4 <= span.text_stop
        assert np.array_equal(passage.ids, stream.tokens(passage.position, passage.position + 4))
        positions = set(range(passage.position, passage.position + 4))
        assert not positions & covered
        covered |= positions
    assert len(passages) == 200 and 7 not in {passage.document for passage in passages}
    assert len({passage.document for passage in passages}) > 80
    again = sample_passages(stream, 4, 200, seed=0, skipped=skipped)
    assert [passage.position for passage in again] == [passage.position for passage in passages]


def test_short_documents_make_passages_short(stream):
    lengths = [stream.document(number).text_stop - stream.document(number).start for number in range(stream.documents)]
    assert passage_size(stream, 1000, ()) == np.quantile(lengths, 0.25, method="lower")
    assert passage_size(stream, 3, ()) == 3
