"""Rows with a source and a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meristem.config.errors import MeristemError
from meristem.corpus.paired_text import PAIR_SEPARATOR
from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.views.examples import ExamplesView
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng


def test_each_side_ends_and_is_cut_to_the_length(make: Callable[..., TokenDataset], tokenizer: Tokenizer) -> None:
    pairs = [("A b.", "c d!"), ("a" * 30, "b"), ("a", "b" * 30), ("你好", "好")]
    view = ExamplesView(make([f"{a}{PAIR_SEPARATOR}{b}" for a, b in pairs]).split("train"), tokenizer, 8)
    assert len(view) == 4 and view.shuffled
    for number, (source, target) in enumerate(pairs):
        row = view.row(number, SampleRng(0, 0, number))
        for side, text in (("source", source), ("tokens", target)):
            expected = [*tokenizer.encode_ids([text])[0].tolist(), tokenizer.end]
            assert row.inputs[side].tolist() == expected[:8]
            assert row.inputs[side].dtype == "int64"
        assert row.metadata["special"].tolist() == [token == tokenizer.end for token in row.inputs["tokens"]]
        assert row.metadata["source_special"].tolist() == [token == tokenizer.end for token in row.inputs["source"]]
        assert set(row.inputs) == {"source", "tokens"}
    with pytest.raises(IndexError):
        view.row(4, SampleRng(0, 0, 0))


def test_plain_text_has_no_examples(make: Callable[..., TokenDataset], tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(MeristemError, match=r"have no targets; set corpus\.target"):
        ExamplesView(make(["A text.", "Another."]).split("train"), tokenizer, 8)
