"""Documents in a new order in each epoch: the same documents, the same methods, exact positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from meristem.config.errors import RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.dataset.shuffled_stream import ShuffledStream
from meristem.dataset.token_dataset import TokenDataset, TokenStream
from meristem.dataset.views.windows import WindowsView
from meristem.learning.build import check_recipe
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng


@pytest.fixture(scope="module")
def stream(make: Callable[..., TokenDataset], generate_stories: Callable[..., list[str]]) -> TokenStream:
    return make(generate_stories(40), shard_tokens=900).split("train")


def documents_of(stream: TokenStream) -> list[list[int]]:
    """The tokens of each document with its separator."""
    spans = [stream.document(number) for number in range(stream.documents)]
    return [stream.tokens(span.start, span.stop).tolist() for span in spans]


def test_every_epoch_has_all_documents_in_another_order(stream: TokenStream) -> None:
    documents, orders = documents_of(stream), []
    for epoch in range(3):
        shuffled = ShuffledStream(stream, 3, epoch)
        numbers = shuffled.documents_at(0, len(stream))
        found = np.split(shuffled.tokens(0, len(stream)), np.flatnonzero(np.diff(numbers)) + 1)
        assert sorted(part.tolist() for part in found) == sorted(documents)
        orders.append([part.tolist() for part in found])
    assert orders[0] != orders[1] != orders[2] != documents
    again = ShuffledStream(stream, 3, 1)
    assert again.tokens(0, len(stream)).tolist() == [token for part in orders[1] for token in part]


@pytest.mark.parametrize("size", [1, 7, 250])
def test_any_range_is_a_part_of_the_whole(stream: TokenStream, size: int) -> None:
    shuffled, length = ShuffledStream(stream, 0, 5), len(stream)
    tokens, sentences = shuffled.tokens(0, length), shuffled.sentences(0, length)
    numbers = shuffled.documents_at(0, length)
    assert len(sentences) == len(stream.sentences(0, length))
    for start in range(0, length - size, 97):
        stop = start + size
        assert shuffled.tokens(start, stop).tolist() == tokens[start:stop].tolist()
        inside = sentences[(sentences >= start) & (sentences < stop)]
        assert shuffled.sentences(start, stop).tolist() == inside.tolist()
        assert shuffled.documents_at(start, stop).tolist() == (numbers[start:stop] - numbers[start]).tolist()


def test_windows_of_an_epoch_are_cut_from_its_order(stream: TokenStream, tokenizer: Tokenizer) -> None:
    view = WindowsView(stream, tokenizer, 34, shuffle_documents=True, isolate=True, sentences=True)
    plain = WindowsView(stream, tokenizer, 34)
    draws = [SampleRng(3, epoch, 0) for epoch in (0, 1)]
    windows = [[view.row(index, draw).inputs["tokens"][1:-1] for index in range(len(view) - 1)] for draw in draws]
    for epoch in (0, 1):
        expected = ShuffledStream(stream, 3, epoch).tokens(0, 32 * (len(view) - 1))
        assert np.concatenate(windows[epoch]).tolist() == expected.tolist()
    assert len(view) == len(plain)
    assert not np.array_equal(np.concatenate(windows[0]), np.concatenate(windows[1]))
    part = view.row_part(0, 1, 2, draws[1]).inputs["tokens"]
    assert part[1:-1].tolist() == windows[1][0][16:].tolist()


def test_rows_that_are_not_packed_are_refused() -> None:
    recipe = resolve_recipe(
        "pairs",
        {"model": {"family": "bert"}, "objective": ["mlm", "nsp"], "dataset": {"shuffle_documents": True}},
    )
    with pytest.raises(RecipeError, match=r"dataset.shuffle_documents: only packed text .* \(nsp\)"):
        check_recipe(recipe)
