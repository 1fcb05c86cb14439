from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.corpus.document import Document
from meristem.errors import MeristemError
from meristem.randomness import Draw
from meristem.settings import find
from meristem.store.build import build
from meristem.store.letters import spelled
from meristem.store.settings import StoreSettings
from meristem.store.store import Store
from meristem.store.views.windows import Windows
from meristem.tokenizers.tokenizer import Tokenizer

Make = Callable[..., Store]
DRAW = Draw(0, 0, 0)


@pytest.fixture(scope="module")
def store(make: Make, tell: Callable[..., list[str]]) -> Store:
    return make(tell(40), shard_tokens=900)


def test_the_folder_finds_it() -> None:
    assert find("store.views", "windows") is Windows


@settings(max_examples=40, deadline=None)
@given(length=st.integers(3, 400))
def test_framed_windows_joined_are_the_stream(store: Store, tokenizer: Tokenizer, length: int) -> None:
    stream = store.split("train")
    view = Windows(stream, tokenizer, length)
    rows = [view.row(index, DRAW).inputs["tokens"] for index in range(len(view))]
    assert all(len(row) == length and (row[0], row[-1]) == (tokenizer.start, tokenizer.end) for row in rows)
    joined = np.concatenate([row[1:-1] for row in rows[:-1]]) if len(rows) > 1 else np.zeros(0, np.int64)
    rest = len(stream) - len(joined)
    assert 0 < rest <= length - 2
    assert np.concatenate([joined, rows[-1][1:-1][-rest:]]).tolist() == stream.tokens(0, len(stream)).tolist()


@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 400))
def test_causal_windows_predict_every_token_but_the_first_once(store: Store, tokenizer: Tokenizer, length: int) -> None:
    stream = store.split("train")
    view = Windows(stream, tokenizer, length, frame=False, ahead=1)
    rows = [view.row(index, DRAW).inputs["tokens"] for index in range(len(view))]
    assert all(len(row) == length + 1 for row in rows[:-1])
    assert 2 <= len(rows[-1]) <= length + 1
    assert np.concatenate([row[1:] for row in rows]).tolist() == stream.tokens(1, len(stream)).tolist()
    assert np.concatenate([row[:-1] for row in rows]).tolist() == stream.tokens(0, len(stream) - 1).tolist()


@pytest.mark.parametrize(("frame", "ahead"), [(True, 0), (False, 1), (False, 0)])
def test_a_stream_shorter_than_a_window_is_one_shorter_row(make: Make, tokenizer: Tokenizer, frame: bool,
                                                           ahead: int) -> None:
    stream = make(["One."]).split("train")
    view = Windows(stream, tokenizer, 64, frame=frame, ahead=ahead)
    assert len(view) == 1
    assert len(view.row(0, DRAW).inputs["tokens"]) == len(stream) + 2 * frame


def test_isolated_positions_know_their_document(make: Make, tokenizer: Tokenizer) -> None:
    stream = make(["ab", "c", "def"]).split("train")  # 3 + 2 + 4 tokens with their separators
    framed = Windows(stream, tokenizer, 11, isolate=True).row(0, DRAW)
    assert framed.inputs["documents"].tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2]
    second = Windows(stream, tokenizer, 4, isolate=True, frame=False, ahead=1).row(1, DRAW)
    assert second.inputs["documents"].tolist() == [0, 1, 1, 1, 1]
    assert "documents" not in Windows(stream, tokenizer, 11).row(0, DRAW).inputs


def test_special_tokens_and_separators_are_marked(make: Make, tokenizer: Tokenizer) -> None:
    row = Windows(make(["ab", "c"]).split("train"), tokenizer, 7).row(0, DRAW)
    assert row.notes["special"].tolist() == [True, False, False, True, False, True, True]
    assert row.inputs["tokens"].dtype == np.int64


def test_rows_are_pure(store: Store, tokenizer: Tokenizer) -> None:
    view = Windows(store.split("train"), tokenizer, 16, isolate=True)
    forward = [view.row(index, Draw(0, 0, index)) for index in range(len(view))]
    backward = [view.row(index, Draw(0, 0, index)) for index in reversed(range(len(view)))][::-1]
    for one, other in zip(forward, backward, strict=True):
        assert all((one.inputs[key] == other.inputs[key]).all() for key in one.inputs)


def test_impossible_lengths_numbers_and_tokenizers_are_refused(store: Store, tokenizer: Tokenizer) -> None:
    stream = store.split("train")
    with pytest.raises(MeristemError, match=r"model\.length: 2 leaves no room"):
        Windows(stream, tokenizer, 2)
    with pytest.raises(IndexError):
        (view := Windows(stream, tokenizer, 8)).row(len(view), DRAW)
    stream.tokenizer = "0" * 64  # this stream is no one else's
    with pytest.raises(MeristemError, match="made with another tokenizer"):
        Windows(stream, tokenizer, 8)


def test_sentences_are_noted_and_room_is_spared(store: Store, tokenizer: Tokenizer) -> None:
    stream = store.split("train")
    view = Windows(stream, tokenizer, 40, frame=False, spare=3, sentences=True)
    framed = Windows(stream, tokenizer, 40, spare=1, sentences=True)
    seen = 0
    for number in range(len(view)):
        row = view.row(number, DRAW)
        tokens, begins = row.inputs["tokens"], row.notes["sentences"]
        assert len(tokens) == 37
        start = min(number * 37, len(stream) - 37)
        assert (begins == stream.sentences(start, start + 37) - start).all()
        seen += len(begins)
    assert seen >= len(stream.sentences(0, len(stream)))
    row = framed.row(1, DRAW)
    assert len(row.inputs["tokens"]) == 39
    assert (row.notes["sentences"] == stream.sentences(37, 74) - 37 + 1).all()
    assert "sentences" not in Windows(stream, tokenizer, 40).row(0, DRAW).notes


def test_letters_come_with_the_tokens_when_asked_for(tokenizer: Tokenizer, store: Store, tmp_path: Path) -> None:
    """From a word store as each token was written; from another store as the vocabulary names it."""
    text = "Hello wonderful 天 world"
    documents = [Document(text, "test:0")]
    settings = StoreSettings()
    kept = build(documents, tokenizer, tmp_path / "kept", settings, processes=1, keep_words=True).split("train")
    plain = build(documents, tokenizer, tmp_path / "plain", settings, processes=1).split("train")
    assert kept.spelled and not plain.spelled
    spellings = [b"", *kept.spellings(0, len(kept)), b""]
    names = [tokenizer.token(token).encode() for token in Windows(plain, tokenizer, 64).row(0, DRAW).inputs["tokens"]]
    for stream, words in ((kept, spellings), (plain, names)):
        row = Windows(stream, tokenizer, 64, characters=True).row(0, DRAW)
        assert row.inputs["characters"].dtype == np.int16
        assert np.array_equal(row.inputs["characters"], spelled(row.inputs["tokens"], words, tokenizer))
        assert "characters" not in Windows(stream, tokenizer, 64).row(0, DRAW).inputs
    part = Windows(kept, tokenizer, 6, frame=False, characters=True)
    whole = np.concatenate([part.row(n, DRAW).inputs["characters"] for n in range(len(kept) // 6)])
    expected = spelled(kept.tokens(0, len(whole)), spellings[1:-1][: len(whole)], tokenizer)
    assert np.array_equal(whole, expected)
