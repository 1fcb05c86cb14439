"""Rows of single documents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError
from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.views.documents import DocumentsView
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

DRAW = SampleRng(0, 0, 0)


@pytest.fixture(scope="module")
def store(make: Callable[..., TokenDataset], generate_stories: Callable[..., list[str]]) -> TokenDataset:
    return make(generate_stories(40), shard_tokens=900)


@settings(max_examples=40, deadline=None)
@given(length=st.integers(8, 300), overlap=st.integers(0, 5), frame=st.booleans())
def test_windows_of_a_document_joined_are_the_document(
    store: TokenDataset, tokenizer: Tokenizer, length: int, overlap: int, frame: bool
) -> None:
    stream = store.split("train")
    view = DocumentsView(stream, tokenizer, length, frame=frame, overlap=overlap)
    document_tokens: dict[int, list[int]] = {}
    for index in range(len(view)):
        row = view.row(index, DRAW)
        tokens = row.inputs["tokens"]
        assert len(tokens) <= length
        assert not frame or (tokens[0], tokens[-1]) == (tokenizer.start, tokenizer.end)
        text = tokens[1:-1] if frame else tokens
        fresh = text[overlap:] if row.metadata["window"] else text
        assert len(fresh)  # no window repeats only what the one before it held
        document_tokens.setdefault(row.metadata["document"], []).extend(fresh.tolist())
    for number in range(stream.documents):
        span = stream.document(number)
        assert document_tokens[number] == stream.tokens(span.start, span.text_stop if frame else span.stop).tolist()


def test_only_the_first_window_on_request(store: TokenDataset, tokenizer: Tokenizer) -> None:
    stream = store.split("train")
    view = DocumentsView(stream, tokenizer, 12, first=True, isolate=True)
    assert len(view) == stream.documents
    row = view.row(7, DRAW)
    start = stream.document(7).start
    assert row.inputs["tokens"][1:-1].tolist() == stream.tokens(start, start + 10).tolist()
    assert row.inputs["documents"].tolist() == [0] * 12
    assert np.flatnonzero(row.metadata["special"]).tolist() == [0, 11]


def test_an_overlap_as_long_as_a_row_is_refused(store: TokenDataset, tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match="overlap: 6 must be between 0 and 5"):
        DocumentsView(store.split("train"), tokenizer, 8, overlap=6)
