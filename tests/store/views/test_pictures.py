"""Rows with a picture and its caption."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meristem.corpus.pictures import drawn
from meristem.corpus.sides import PICTURE
from meristem.errors import MeristemError
from meristem.randomness import Draw
from meristem.samples.microworld import draw, scene
from meristem.store.store import Store
from meristem.store.views.pictures import Pictures
from meristem.tokenizers.tokenizer import Tokenizer


def test_a_picture_and_its_caption(make: Callable[..., Store], tokenizer: Tokenizer) -> None:
    captions = ["A b.", "c" * 30]
    texts = [f"{drawn(f'microworld:3:{n}')}{PICTURE}{text}" for n, text in enumerate(captions)]
    view = Pictures(make(texts).split("train"), tokenizer, 8)
    assert len(view) == 2
    for number, text in enumerate(captions):
        row = view.row(number, Draw(0, 0, number))
        assert (row.inputs["image"] == draw(scene(3, number), 32)).all()
        assert row.inputs["image"].flags.writeable  # no window into the file leaves the store
        whole = [*tokenizer.ids_many([text])[0].tolist(), tokenizer.end]
        assert row.inputs["tokens"].tolist() == whole[:8]
        assert len(row.notes["special"]) == len(row.inputs["tokens"])


def test_plain_text_has_no_pictures(make: Callable[..., Store], tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match=r"have no pictures; name the column that does with corpus\.picture"):
        Pictures(make(["A text."]).split("train"), tokenizer, 8)
