"""Sentence pairs for next-sentence prediction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers.processors import TemplateProcessing

from meristem.config.errors import MeristemError
from meristem.corpus.document import Document
from meristem.dataset.build import build_dataset
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.token_dataset import TokenDataset, TokenStream
from meristem.dataset.views.pairs import PairsView
from meristem.inputs.batch import Row
from meristem.tokenizers import tokenizer_files
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

Make = Callable[..., TokenDataset]
Tell = Callable[..., list[str]]


def rows_of(view: PairsView, epochs: int = 1) -> list[Row]:
    return [view.row(index, SampleRng(3, epoch, index)) for epoch in range(epochs) for index in range(len(view))]


def segments(row: Row, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """A and B, after checking the special tokens around them."""
    tokens, numbers = row.inputs["tokens"].tolist(), row.inputs["segments"].tolist()
    second = numbers.index(1)
    assert numbers == [0] * second + [1] * (len(tokens) - second)
    assert (tokens[0], tokens[second - 1], tokens[-1]) == (tokenizer.start, tokenizer.end, tokenizer.end)
    assert np.flatnonzero(row.metadata["special"]).tolist() == [0, second - 1, len(tokens) - 1]
    return tokens[1 : second - 1], tokens[second:-1]


class Places:
    """Where a run of tokens lies in the stream."""

    def __init__(self, stream: TokenStream) -> None:
        self.stream = stream
        self._whole = stream.tokens(0, len(stream)).tolist()
        self._at: dict[tuple[int, ...], list[int]] = {}
        for start in range(len(self._whole)):
            self._at.setdefault(tuple(self._whole[start : start + 3]), []).append(start)

    def find(self, tokens: list[int]) -> list[int]:
        starts = self._at.get(tuple(tokens[:3]), []) if len(tokens) >= 3 else range(len(self._whole))
        return [start for start in starts if self._whole[start : start + len(tokens)] == tokens]


@pytest.fixture(scope="module")
def texts(generate_stories: Tell) -> list[str]:
    return generate_stories(120, seed=9, sentences=(2, 30))


@pytest.fixture(scope="module")
def stream(make: Make, texts: list[str]) -> TokenStream:
    return make(texts, shard_tokens=6_000).split("train")


@pytest.mark.parametrize(("negatives", "rate"), [("other", 0.5), ("swap", 0.5), ("other", 0.2)])
def test_the_share_of_false_pairs(stream: TokenStream, tokenizer: Tokenizer, negatives: Any, rate: float) -> None:
    rows = rows_of(PairsView(stream, tokenizer, 48, negatives=negatives, rate=rate), epochs=5)
    labels = np.array([row.metadata["pair"] for row in rows])
    assert len(labels) > 3_000
    assert abs(labels.mean() - rate) < 4 * np.sqrt(rate * (1 - rate) / len(labels))


@pytest.mark.parametrize("negatives", ["other", "swap"])
def test_true_pairs_follow_each_other_and_false_ones_do_not(
    stream: TokenStream, tokenizer: Tokenizer, negatives: Any
) -> None:
    positions = Places(stream)
    sentences = set(stream.sentences(0, len(stream)).tolist())
    for row in rows_of(PairsView(stream, tokenizer, 48, negatives=negatives)):
        a, b = segments(row, tokenizer)
        if negatives == "swap" and row.metadata["pair"]:
            a, b = b, a
        if negatives == "swap" or not row.metadata["pair"]:
            joined = positions.find(a + b)
            assert joined
            assert any(start in sentences and start + len(a) in sentences for start in joined)
        else:
            owners_a, owners_b = ({stream.document_at(p) for p in positions.find(part)} for part in (a, b))
            assert owners_a - owners_b or owners_b - owners_a
            assert any(start in sentences for start in positions.find(b))
        assert tokenizer.end not in a + b  # no row reaches over a document's end


def test_rows_are_full_where_documents_allow(stream: TokenStream, tokenizer: Tokenizer) -> None:
    rows = rows_of(PairsView(stream, tokenizer, 48), epochs=3)
    long_enough = [number for number in range(stream.documents) if stream.lengths(number, number + 1)[0] >= 45]
    full = sum(len(row.inputs["tokens"]) == 48 for row in rows)
    assert all(len(row.inputs["tokens"]) <= 48 for row in rows)
    view = PairsView(stream, tokenizer, 48)
    of_long = sum(view._samples(index)[0] in set(long_enough) for index in range(len(view))) * 3
    assert full >= 0.99 * of_long


def test_length_does_not_give_the_answer_away(make: Make, tokenizer: Tokenizer, generate_stories: Tell) -> None:
    stream = make(generate_stories(200, seed=4, sentences=(2, 5))).split("train")
    rows = rows_of(PairsView(stream, tokenizer, 128), epochs=5)
    lengths = {
        label: np.mean([len(r.inputs["tokens"]) for r in rows if r.metadata["pair"] == label]) for label in (0, 1)
    }
    assert abs(lengths[0] - lengths[1]) < 0.06 * lengths[0]


def test_every_token_is_met_within_a_few_epochs(stream: TokenStream, tokenizer: Tokenizer) -> None:
    view = PairsView(stream, tokenizer, 48, rate=0.0)
    positions, covered = Places(stream), np.zeros(len(stream), bool)
    for row in rows_of(view, epochs=6):
        a, b = segments(row, tokenizer)
        for start in positions.find(a + b):
            covered[start : start + len(a) + len(b)] = True
    assert covered[stream.tokens(0, len(stream)) != tokenizer.end].mean() > 0.93


def test_rows_are_pure_and_change_with_the_epoch(stream: TokenStream, tokenizer: Tokenizer) -> None:
    view = PairsView(stream, tokenizer, 48, isolate=True)
    forward = rows_of(view)
    for index in reversed(range(len(view))):
        repeated = view.row(index, SampleRng(3, 0, index))
        assert all(repeated.inputs[key].tolist() == forward[index].inputs[key].tolist() for key in repeated.inputs)
        assert repeated.metadata["pair"] == forward[index].metadata["pair"]
        assert not repeated.inputs["documents"].any()
    later = [view.row(index, SampleRng(3, 1, index)) for index in range(len(view))]
    changed = [
        row.inputs["tokens"].tolist() != other.inputs["tokens"].tolist()
        for row, other in zip(forward, later, strict=True)
    ]
    assert sum(changed) > len(view) / 2


def test_one_long_sentence_is_cut_anywhere(make: Make, tokenizer: Tokenizer) -> None:
    stream = make(["ab " * 400, "cd", "e", "f"]).split("train")
    view = PairsView(stream, tokenizer, 48, rate=0.0)
    rows = rows_of(view, epochs=8)
    assert {view._samples(index)[0] for index in range(len(view))} == {0, 1}  # one token is no pair
    cuts = {len(segments(row, tokenizer)[0]) for row in rows if len(row.inputs["tokens"]) == 48}
    assert len(cuts) > 20
    assert [[*map(len, segments(row, tokenizer))] for row in rows if len(row.inputs["tokens"]) < 48] == [[1, 1]] * 8


def test_what_cannot_be_paired_is_refused(make: Make, tokenizer: Tokenizer) -> None:
    stream = make(["Only one. But two sentences."]).split("train")
    assert len(PairsView(stream, tokenizer, 64, negatives="swap")) == 1
    with pytest.raises(MeristemError, match="no document has the two tokens"):
        PairsView(make(["a", "b"]).split("train"), tokenizer, 32)
    with pytest.raises(MeristemError, match=r"model\.max_length: 4"):
        PairsView(stream, tokenizer, 4, negatives="swap")


def test_one_document_has_false_pairs_too(make: Make, tokenizer: Tokenizer, texts: list[str]) -> None:
    """B comes from elsewhere in it, as long as it would be; a short text has its halves swapped."""
    long = make([" ".join(texts[:30])])
    for stream, length in ((long.split("train"), 32), (make(["Only one. But two sentences."]).split("train"), 64)):
        view, labels = PairsView(stream, tokenizer, length), []
        for index in range(len(view)):
            for epoch in range(40):
                row = view.row(index, SampleRng(0, epoch, index))
                a, b = segments(row, tokenizer)
                true = view._choose_boundaries(stream.document(0), view._samples(index), _drawn(epoch, index))
                follows = stream.tokens(true.middle, true.stop)
                labels.append(row.metadata["pair"])
                if not row.metadata["pair"] or len(b) > 5:  # a word may come again by chance
                    assert np.array_equal(b, follows) == (not row.metadata["pair"])
                assert len(a) + len(b) == true.stop - true.start
        assert 0.3 < sum(labels) / len(labels) < 0.7


def _drawn(epoch: int, index: int) -> np.random.Generator:
    """The view's own draws up to where it cuts."""
    generator = SampleRng(0, epoch, index)("pairs")
    generator.random()
    return generator


def test_pairs_use_the_template_of_a_published_tokenizer(
    tokenizer: Tokenizer, texts: list[str], tmp_path: Path
) -> None:
    """RoBERTa puts two end tokens between two texts; XLNet puts [CLS] last, where the pair is classified then."""
    for name, pair, special in (
        ("roberta", "[CLS] $A [SEP] [SEP] $B [SEP]", "[CLS] [SEP] [SEP] [SEP]"),
        ("xlnet", "$A [SEP] $B:1 [SEP]:1 [CLS]:2", "[SEP] [SEP] [CLS]"),
    ):
        library = tokenizer_files.parse_tokenizer(tokenizer.json_text, "tokenizer.json")
        names = [(token, library.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
        library.post_processor = TemplateProcessing("[CLS] $A [SEP]", pair, names)
        published = Tokenizer(library.to_str())
        documents = [Document(text, f"test:{number}") for number, text in enumerate(texts[:9])]
        dataset = build_dataset(documents, published, tmp_path / name, DatasetSettings(), processes=1)
        row = PairsView(dataset.split("train"), published, 64).row(0, SampleRng(0, 0, 0))
        tokens = row.inputs["tokens"]
        assert [published.id_to_token(token) for token in tokens[row.metadata["special"]].tolist()] == special.split()
        assert tokens[row.metadata["summary"]] == published.start and len(tokens) <= 64
