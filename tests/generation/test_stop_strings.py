"""Stop strings in streamed text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meristem.generation.stop_strings import StopStringFilter

LETTERS = st.text("ab", max_size=12)


@given(st.lists(LETTERS), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_text_is_cut_at_the_first_stop_however_it_arrives(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    stopping, shown = StopStringFilter(stops), ""
    for piece in pieces:
        shown += stopping.push(piece)
        assert not any(stop in shown for stop in stops)
        assert whole.startswith(shown)
    shown += "" if stopping.stopped else stopping.finish()
    firsts = [whole.index(stop) for stop in stops if stop in whole]
    assert stopping.stopped == bool(firsts)
    if not firsts:
        assert shown == whole
    else:
        assert not any(stop in shown for stop in stops)
        assert any(whole[len(shown) :].startswith(stop) for stop in stops)


def test_only_what_may_become_a_stop_is_held_back() -> None:
    stopping = StopStringFilter(["\n\n"])
    assert stopping.push("one\n") == "one"
    assert stopping.push("two") == "\ntwo"
    assert stopping.push("\n\nthree") == ""
    assert stopping.stopped
    assert stopping.push("more") == ""
