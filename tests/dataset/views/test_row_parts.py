"""Packed windows cut into shorter rows: the same text, rows of equal length, every token predicted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.views.windows import WindowsView
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

DRAW = SampleRng(0, 0, 0)


@pytest.fixture(scope="module")
def store(make: Callable[..., TokenDataset], generate_stories: Callable[..., list[str]]) -> TokenDataset:
    return make(generate_stories(20), shard_tokens=900)


@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("length", [16, 34, 130])
def test_parts_have_special_tokens_of_their_own_and_the_windows_text(
    store: TokenDataset, tokenizer: Tokenizer, parts: int, length: int
) -> None:
    view = WindowsView(store.split("train"), tokenizer, length, isolate=True)
    content = length - 2
    for index in range(len(view)):
        window = view.row(index, DRAW)
        rows = [view.row_part(index, part, parts, DRAW) for part in range(parts)]
        tokens = [row.inputs["tokens"] for row in rows]
        assert {len(row) for row in tokens} == {-(-content // parts) + 2}
        assert all((row[0], row[-1]) == (tokenizer.start, tokenizer.end) for row in tokens)
        assert all(len(row.inputs["documents"]) == len(row.inputs["tokens"]) for row in rows)
        text = np.zeros(content, np.int64)
        size = -(-content // parts)
        for part, row in enumerate(tokens):
            first = min(part * size, content - size)
            text[first : first + size] = row[1:-1]
        assert text.tolist() == window.inputs["tokens"][1:-1].tolist()


@pytest.mark.parametrize("parts", [2, 4])
def test_causal_parts_predict_what_the_window_predicts(store: TokenDataset, tokenizer: Tokenizer, parts: int) -> None:
    view = WindowsView(store.split("train"), tokenizer, 32, frame=False, ahead=1)
    for index in range(len(view) - 1):
        window = view.row(index, DRAW).inputs["tokens"]
        rows = [view.row_part(index, part, parts, DRAW).inputs["tokens"] for part in range(parts)]
        assert np.concatenate([row[1:] for row in rows]).tolist() == window[1:].tolist()
        assert np.concatenate([row[:-1] for row in rows]).tolist() == window[:-1].tolist()
