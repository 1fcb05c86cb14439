"""tokenizer.json beside ONNX graphs: encodes a text with the special tokens of training."""

from __future__ import annotations

import json
from typing import Any

from meristem.dataset.encode_documents import separator_id
from meristem.dataset.rows import boundary_tokens
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils import untrusted_files


def tokenizer_json(tokenizer: Tokenizer, kind: str) -> str:
    """tokenizer.json with the special tokens of training, unless it has its own template."""
    description = json.loads(tokenizer.json_text)
    if tokenizer.single_template is None:
        before, after = special_ids_around(tokenizer, kind)
        description["post_processor"] = _template_processor(tokenizer, before, after)
    return untrusted_files.to_json(description, indent=1)


def special_ids_around(tokenizer: Tokenizer, kind: str) -> tuple[list[int], list[int]]:
    """Special tokens before and after a text: a causal one begins after the end token, a source ends with it."""
    if kind == "causal":
        return [separator_id(tokenizer)], []
    if kind == "encoder-decoder":
        return [], [separator_id(tokenizer)]
    before, after = boundary_tokens(tokenizer)
    return before.tolist(), after.tolist()


def _template_processor(tokenizer: Tokenizer, before: list[int], after: list[int]) -> dict[str, Any] | None:
    """A TemplateProcessing post-processor of tokenizers; the second text of a pair is another segment."""
    if not before and not after:
        return None

    def specials(ids: list[int], segment: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": tokenizer.id_to_token(token_id), "type_id": segment}} for token_id in ids]

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [*specials(before, 0), text("A", 0), *specials(after, 0)]
    token_by_id = {token_id: tokenizer.id_to_token(token_id) for token_id in (*before, *after)}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), *specials(after, 1)],
        "special_tokens": {
            name: {"id": name, "ids": [token_id], "tokens": [name]} for token_id, name in token_by_id.items()
        },
    }
