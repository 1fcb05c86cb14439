"""Numbered lines of bounded length."""

from hypothesis import given
from hypothesis import strategies as st

from meristem.data.formats import lines
from meristem.data.formats.lines import number_lines


@given(st.lists(st.text(alphabet="ab\n", max_size=9), max_size=12))
def test_chunks_do_not_matter(chunks):
    text = "".join(chunks)
    expected = text.split("\n")
    if not expected[-1]:
        expected.pop()
    assert list(number_lines(chunks)) == list(enumerate(expected, start=1))


def test_a_line_too_long_is_passed_over_and_keeps_its_number(monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_CHARS", 10)
    chunks = ["short\nlong", "er than", " ten", "\nnext\n", "x" * 11, "\nlast", "y" * 20]
    assert list(number_lines(chunks)) == [(1, "short"), (2, None), (3, "next"), (4, None), (5, None)]
