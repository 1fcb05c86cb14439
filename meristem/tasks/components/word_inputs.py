"""Input of word-level tasks: a text or its words, with the characters of each word."""

from __future__ import annotations

from typing import Any

from meristem.data.text_units import join_words, word_spans
from meristem.interfaces.task_signature import InputField, Route

WORD_INPUTS = (
    InputField(name="text", help="One or several texts.", example="Ada walked to the old harbour."),
    InputField(
        name="words", kind="words", help="The words of a text, if it is not to be split.", required=False, served=False
    ),
)
TAG = Route(name="tag", summary="The entities of a text, or the tag of each word")


def complete_word_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """Words, text and the characters of each word; a raw text is split by `word_spans`."""
    if "words" in inputs:
        text, offsets = join_words(inputs["words"])
        return {"words": inputs["words"], "text": text, "offsets": offsets}
    text, offsets = inputs["text"], tuple(word_spans(inputs["text"]))
    return {"words": tuple(text[start:stop] for start, stop in offsets), "text": text, "offsets": offsets}
