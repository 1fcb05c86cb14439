"""Packed windows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError
from meristem.corpus.document import Document
from meristem.dataset.build import build_dataset
from meristem.dataset.dataset_view import DATASET_VIEWS
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.views.windows import WindowsView
from meristem.inputs.char_ids import token_char_ids
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

Make = Callable[..., TokenDataset]
DRAW = SampleRng(0, 0, 0)


@pytest.fixture(scope="module")
def store(make: Make, generate_stories: Callable[..., list[str]]) -> TokenDataset:
    return make(generate_stories(40), shard_tokens=900)


def test_the_folder_finds_it() -> None:
    assert DATASET_VIEWS["windows"] is WindowsView


@settings(max_examples=40, deadline=None)
@given(length=st.integers(3, 400))
def test_windows_with_special_tokens_joined_are_the_stream(
    store: TokenDataset, tokenizer: Tokenizer, length: int
) -> None:
    stream = store.split("train")
    view = WindowsView(stream, tokenizer, length)
    rows = [view.row(index, DRAW).inputs["tokens"] for index in range(len(view))]
    assert all(len(row) == length and (row[0], row[-1]) == (tokenizer.start, tokenizer.end) for row in rows)
    joined = np.concatenate([row[1:-1] for row in rows[:-1]]) if len(rows) > 1 else np.zeros(0, np.int64)
    rest = len(stream) - len(joined)
    assert 0 < rest <= length - 2
    assert np.concatenate([joined, rows[-1][1:-1][-rest:]]).tolist() == stream.tokens(0, len(stream)).tolist()


@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 400))
def test_causal_windows_predict_every_token_but_the_first_once(
    store: TokenDataset, tokenizer: Tokenizer, length: int
) -> None:
    stream = store.split("train")
    view = WindowsView(stream, tokenizer, length, frame=False, ahead=1)
    rows = [view.row(index, DRAW).inputs["tokens"] for index in range(len(view))]
    assert all(len(row) == length + 1 for row in rows[:-1])
    assert 2 <= len(rows[-1]) <= length + 1
    assert np.concatenate([row[1:] for row in rows]).tolist() == stream.tokens(1, len(stream)).tolist()
    assert np.concatenate([row[:-1] for row in rows]).tolist() == stream.tokens(0, len(stream) - 1).tolist()


@pytest.mark.parametrize(("frame", "ahead"), [(True, 0), (False, 1), (False, 0)])
def test_a_stream_shorter_than_a_window_is_one_shorter_row(
    make: Make, tokenizer: Tokenizer, frame: bool, ahead: int
) -> None:
    stream = make(["One."]).split("train")
    view = WindowsView(stream, tokenizer, 64, frame=frame, ahead=ahead)
    assert len(view) == 1
    assert len(view.row(0, DRAW).inputs["tokens"]) == len(stream) + 2 * frame


def test_isolated_positions_know_their_document(make: Make, tokenizer: Tokenizer) -> None:
    stream = make(["ab", "c", "def"]).split("train")  # 3 + 2 + 4 tokens with their separators
    row = WindowsView(stream, tokenizer, 11, isolate=True).row(0, DRAW)
    assert row.inputs["documents"].tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2]
    second = WindowsView(stream, tokenizer, 4, isolate=True, frame=False, ahead=1).row(1, DRAW)
    assert second.inputs["documents"].tolist() == [0, 1, 1, 1, 1]
    assert "documents" not in WindowsView(stream, tokenizer, 11).row(0, DRAW).inputs


def test_special_tokens_and_separators_are_marked(make: Make, tokenizer: Tokenizer) -> None:
    row = WindowsView(make(["ab", "c"]).split("train"), tokenizer, 7).row(0, DRAW)
    assert row.metadata["special"].tolist() == [True, False, False, True, False, True, True]
    assert row.inputs["tokens"].dtype == np.int64


def test_rows_are_pure(store: TokenDataset, tokenizer: Tokenizer) -> None:
    view = WindowsView(store.split("train"), tokenizer, 16, isolate=True)
    forward = [view.row(index, SampleRng(0, 0, index)) for index in range(len(view))]
    backward = [view.row(index, SampleRng(0, 0, index)) for index in reversed(range(len(view)))][::-1]
    for row, other in zip(forward, backward, strict=True):
        assert all((row.inputs[key] == other.inputs[key]).all() for key in row.inputs)


def test_impossible_lengths_numbers_and_tokenizers_are_refused(store: TokenDataset, tokenizer: Tokenizer) -> None:
    stream = store.split("train")
    with pytest.raises(MeristemError, match=r"model\.max_length: 2 leaves no room"):
        WindowsView(stream, tokenizer, 2)
    with pytest.raises(IndexError):
        (view := WindowsView(stream, tokenizer, 8)).row(len(view), DRAW)
    stream.tokenizer = "0" * 64  # this stream is no one else's
    with pytest.raises(MeristemError, match="built with another tokenizer"):
        WindowsView(stream, tokenizer, 8)


def test_sentences_are_noted_and_spare_positions_reserved(store: TokenDataset, tokenizer: Tokenizer) -> None:
    stream = store.split("train")
    view = WindowsView(stream, tokenizer, 40, frame=False, spare=3, sentences=True)
    windows_view = WindowsView(stream, tokenizer, 40, spare=1, sentences=True)
    num_starts = 0
    for number in range(len(view)):
        row = view.row(number, DRAW)
        tokens, sentence_starts = row.inputs["tokens"], row.metadata["sentences"]
        assert len(tokens) == 37
        start = min(number * 37, len(stream) - 37)
        assert (sentence_starts == stream.sentences(start, start + 37) - start).all()
        num_starts += len(sentence_starts)
    assert num_starts >= len(stream.sentences(0, len(stream)))
    row = windows_view.row(1, DRAW)
    assert len(row.inputs["tokens"]) == 39
    assert (row.metadata["sentences"] == stream.sentences(37, 74) - 37 + 1).all()
    assert "sentences" not in WindowsView(stream, tokenizer, 40).row(0, DRAW).metadata


def test_char_ids_come_with_the_tokens_on_request(tokenizer: Tokenizer, store: TokenDataset, tmp_path: Path) -> None:
    """From a word store as each token was written; from another store as the vocabulary names it."""
    text = "Hello wonderful 天 world"
    documents = [Document(text, "test:0")]
    settings = DatasetSettings()
    with_spellings = build_dataset(
        documents, tokenizer, tmp_path / "kept", settings, processes=1, keep_words=True
    ).split("train")
    plain = build_dataset(documents, tokenizer, tmp_path / "plain", settings, processes=1).split("train")
    assert with_spellings.has_spellings and not plain.has_spellings
    spellings = [b"", *with_spellings.spellings(0, len(with_spellings)), b""]
    names = [
        tokenizer.id_to_token(token).encode()
        for token in WindowsView(plain, tokenizer, 64).row(0, DRAW).inputs["tokens"]
    ]
    for stream, words in ((with_spellings, spellings), (plain, names)):
        row = WindowsView(stream, tokenizer, 64, characters=True).row(0, DRAW)
        assert row.inputs["characters"].dtype == np.int16
        assert np.array_equal(row.inputs["characters"], token_char_ids(row.inputs["tokens"], words, tokenizer))
        assert "characters" not in WindowsView(stream, tokenizer, 64).row(0, DRAW).inputs
    part = WindowsView(with_spellings, tokenizer, 6, frame=False, characters=True)
    characters = np.concatenate([part.row(n, DRAW).inputs["characters"] for n in range(len(with_spellings) // 6)])
    expected = token_char_ids(with_spellings.tokens(0, len(characters)), spellings[1:-1][: len(characters)], tokenizer)
    assert np.array_equal(characters, expected)
