"""Stop strings in streamed text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meristem.generation.stop_strings import StopStringFilter

LETTERS = st.text("ab", max_size=12)


@given(st.lists(LETTERS), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_text_is_cut_at_the_first_stop_however_it_arrives(pieces: list[str], stops: list[str]) -> None:
    full_text = "".join(pieces)
    stopping, streamed = StopStringFilter(stops), ""
    for piece in pieces:
        streamed += stopping.push(piece)
        assert not any(stop in streamed for stop in stops)
        assert full_text.startswith(streamed)
    streamed += "" if stopping.stopped else stopping.finish()
    firsts = [full_text.index(stop) for stop in stops if stop in full_text]
    assert stopping.stopped == bool(firsts)
    if not firsts:
        assert streamed == full_text
    else:
        assert not any(stop in streamed for stop in stops)
        assert any(full_text[len(streamed) :].startswith(stop) for stop in stops)


def test_only_what_may_become_a_stop_is_held_back() -> None:
    stopping = StopStringFilter(["\n\n"])
    assert stopping.push("one\n") == "one"
    assert stopping.push("two") == "\ntwo"
    assert stopping.push("\n\nthree") == ""
    assert stopping.stopped
    assert stopping.push("more") == ""
