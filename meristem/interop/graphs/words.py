"""The tokenizer beside a graph: what it gives for a text is what the model was trained to read."""

from __future__ import annotations

import json
from typing import Any

from meristem import bounded
from meristem.store.encode import separator_of
from meristem.store.rows import frame_of
from meristem.tokenizers.tokenizer import Tokenizer


def framed(tokenizer: Tokenizer, kind: str) -> str:
    """tokenizer.json with the frame of training around a text, unless it came with one of its own."""
    description = json.loads(tokenizer.text)
    if tokenizer.frame is None:
        before, after = frame(tokenizer, kind)
        description["post_processor"] = _template(tokenizer, before, after)
    return bounded.to_json(description, indent=1)


def frame(tokenizer: Tokenizer, kind: str) -> tuple[list[int], list[int]]:
    """Tokens before and after a text: a causal one begins after a document's end, and a source ends with it."""
    if kind == "causal":
        return [separator_of(tokenizer)], []
    if kind == "encoder-decoder":
        return [], [separator_of(tokenizer)]
    before, after = frame_of(tokenizer)
    return before.tolist(), after.tolist()


def _template(tokenizer: Tokenizer, before: list[int], after: list[int]) -> dict[str, Any] | None:
    """As the tokenizers library tells it; the second of two texts is another segment."""
    if not before and not after:
        return None

    def specials(ids: list[int], segment: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": tokenizer.token(number), "type_id": segment}} for number in ids]

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [*specials(before, 0), text("A", 0), *specials(after, 0)]
    named = {number: tokenizer.token(number) for number in (*before, *after)}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), *specials(after, 1)],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]} for number, name in named.items()},
    }
