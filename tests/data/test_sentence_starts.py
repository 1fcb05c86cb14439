"""Sentence splitting."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.data.text_units import find_sentence_starts

# Each case is written as its sentences; joined, they must come apart again at the same places.
CASES = [
    # English: plain ends
    ["It rained. ", "We stayed in."],
    ["Stop! ", "Who goes there? ", "A friend."],
    ["Really?! ", "Yes."],
    ["He waited... ", "Nobody came."],
    ["It began in 1999. ", "It ended in 2003."],
    ["It cost 5. ", "6 were sold."],
    ["One line.\n", "Another line."],
    ["So did I. ", "Then he left."],
    ["It was the King's. ", "He kept it."],
    ["Did you? ", "No. ", "He did."],
    ["She bought apples, pears, etc. ", "The bag was full."],
    # English: quotes and brackets
    ['"Go!" ', "He went."],
    ["“I know.” ", "She smiled."],
    ['He said "no." ', '"Why?" ', "Nobody knew."],
    ["(It was late.) ", "They slept."],
    ["He left. ", "(She stayed.)"],
    ["She sang. ", "“Again,” he said."],
    ["It was over.' ", "'Was it?' ", "'Yes.'"],
    # English: not an end
    ['"What?" he asked.'],
    ["“Come in!” cried the old man."],
    ["Mr. Brown met Mrs. Green."],
    ["Dr. Who is a doctor, vs. Prof. Moriarty."],
    ["He likes fruit, e.g. Apples or i.e. Pears."],
    ["J. R. R. Tolkien wrote it."],
    ["The U.S. Army came."],
    ["Pi is 3.14 and e is 2.72."],
    ["See Fig. 3 and No. 7 on pp. 12."],
    ["On Jan. 5 it snowed."],
    ["Version 2.0.1 is out at example.com/Index."],
    ["St. Paul's is on Ludgate Hill."],
    ["Wait ... what?"],
    ["1. First of all"],
    ["Well…maybe not."],
    # Blank lines
    ["A Title\n\n", "the text begins"],
    ["A Title\n  \t\n", "the text begins"],
    ["one line\nthe same sentence"],
    ["The end.\n\n\n", "A new part."],
    # Chinese
    ["今天下雨。", "我们在家。"],
    ["真的吗？", "真的！", "太好了。"],
    ["他说：“我来了。”", "大家都笑了。"],
    ["「你好！」", "她说。"],
    ["（完了。）", "我们走吧。"],
    ["什么？！", "不可能。"],
    ["他走了……", "再也没有回来。"],
    ["我想……，算了。"],
    ["圆周率是3.14，不是3。", "对。"],
    ["第一句。\n", "第二句。"],
    ["第一段。\n\n\u3000\u3000", "第二段。"],
    ["标题\n\n", "正文"],
    ["“真的？”", "他问。"],
    # Both, and others
    ["他说OK. ", "然后走了。"],
    ["我用Python。", "It is fast. ", "很好。"],
    ["Он ушёл. ", "Она осталась."],
    ["Élan vital. ", "École normale. c'est tout"],
    ["Fue ayer. ", "¿Verdad?"],
    # Nothing to cut
    ["no mark at all"],
    ["。"],
    [". . ."],
]


@pytest.mark.parametrize("sentences", CASES, ids=lambda case: "|".join(case))
def test_sentences_come_apart_where_they_were_joined(sentences: list[str]) -> None:
    starts = np.cumsum([0, *map(len, sentences)])[:-1]
    assert find_sentence_starts("".join(sentences)).tolist() == starts.tolist()


def test_empty_text_and_leading_space() -> None:
    assert find_sentence_starts("").tolist() == [0]
    assert find_sentence_starts("   \n\n  One. Two.").tolist() == [0, 12]
    assert find_sentence_starts("\n\n\n").tolist() == [0]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='aA1.!?…。！？ \n\t\u3000"”)]（(-_', max_size=60))
def test_positions_rise_from_zero_and_stand_at_visible_characters(text: str) -> None:
    sentence_starts = find_sentence_starts(text)
    assert sentence_starts[0] == 0
    assert (np.diff(sentence_starts) > 0).all()
    assert all(position < len(text) and not text[position].isspace() for position in sentence_starts[1:])


@pytest.mark.parametrize(
    "text",
    [
        "." * 400_000,
        "…" * 400_000 + "a",
        ". " * 200_000,
        "\n \n" * 100_000 + "x",
        "." + " " * 400_000,
        "!" + '"' * 400_000,
        "? " + "(" * 400_000,
        "\n" + " " * 400_000,
    ],
)
def test_hostile_runs_cost_one_pass(text: str) -> None:
    start = time.process_time()
    find_sentence_starts(text)
    assert time.process_time() - start < 2  # a square would take minutes
