"""Rows with a source and a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meristem.corpus.sides import PAIR
from meristem.errors import MeristemError
from meristem.randomness import Draw
from meristem.store.store import Store
from meristem.store.views.examples import Examples
from meristem.tokenizers.tokenizer import Tokenizer


def test_each_side_ends_and_is_cut_to_the_length(make: Callable[..., Store], tokenizer: Tokenizer) -> None:
    pairs = [("A b.", "c d!"), ("a" * 30, "b"), ("a", "b" * 30), ("你好", "好")]
    view = Examples(make([f"{a}{PAIR}{b}" for a, b in pairs]).split("train"), tokenizer, 8)
    assert len(view) == 4 and view.shuffled
    for number, (source, target) in enumerate(pairs):
        row = view.row(number, Draw(0, 0, number))
        for side, text in (("source", source), ("tokens", target)):
            whole = [*tokenizer.ids_many([text])[0].tolist(), tokenizer.end]
            assert row.inputs[side].tolist() == whole[:8]
            assert row.inputs[side].dtype == "int64"
        assert row.notes["special"].tolist() == [token == tokenizer.end for token in row.inputs["tokens"]]
        assert row.notes["source_special"].tolist() == [token == tokenizer.end for token in row.inputs["source"]]
        assert set(row.inputs) == {"source", "tokens"}
    with pytest.raises(IndexError):
        view.row(4, Draw(0, 0, 0))


def test_plain_text_has_no_examples(make: Callable[..., Store], tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(MeristemError, match=r"have no targets; say where they are with corpus\.target"):
        Examples(make(["A text.", "Another."]).split("train"), tokenizer, 8)
