"""Documents and how long texts are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.corpus.document import Document, cut_document
from meristem.data import text_units


def test_short_text_is_one_document():
    assert list(cut_document("a b", "f:1")) == [Document("a b", "f:1", "train")]


@pytest.mark.parametrize("unit", ["word ", "线", "诗。", "x", "\n"])
def test_pieces_are_bounded_and_lose_nothing(unit):
    text = unit * (2_500_000 // len(unit))
    pieces = [piece.text for piece in cut_document(text, "f:1")]
    assert "".join(pieces) == text
    assert len(pieces) >= 3
    assert max(map(len, pieces)) <= text_units.MAX_TEXT_CHARS


def test_words_are_not_broken_where_there_is_white_space():
    text = "wording " * 300_000
    assert all(piece.text.endswith("wording ") for piece in cut_document(text, "f:1"))


@given(st.text(alphabet="ab \n。", max_size=200))
def test_any_text_survives_cutting(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_units, "MAX_TEXT_CHARS", 7)
        pieces = [piece.text for piece in cut_document(text, "f:1")]
    assert "".join(pieces) == text
    assert all(len(piece) <= 7 for piece in pieces)
