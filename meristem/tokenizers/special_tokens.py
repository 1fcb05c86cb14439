"""Special tokens and their roles: padding, unknown, start, end, mask, sentinels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # BERT's names, ids 0 to 4
ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # RoBERTa's names and order, ids 0 to 4
ENDOFTEXT = "<|endoftext|>"  # GPT-2 starts and ends a text with the same token
SENTINEL = "<extra_id_{}>"  # T5's sentinel tokens, which replace spans
MASK = "[MASK]"  # the mask in user input, whatever the tokenizer's own name for it
ROLE_PREFIX = "role:"  # prefix of the names under which a tokenizer.json stores unusual tokens of a role


@dataclass(frozen=True)
class SpecialTokenIds:
    """The ids of the special tokens by role; None where a tokenizer has no such token."""

    pad: int | None
    unknown: int | None
    start: int | None
    end: int | None
    mask: int | None


def find_special_ids(token_to_id: Callable[[str], int | None], role_ids: Mapping[str, int]) -> SpecialTokenIds:
    """The id of each role: as stored in the tokenizer.json, else by the usual names."""

    def first_id(role: str, *names: str) -> int | None:
        usual_ids = (token_id for name in names if (token_id := token_to_id(name)) is not None)
        return role_ids.get(role, next(usual_ids, None))

    return SpecialTokenIds(
        pad=first_id("pad", "[PAD]", "<pad>"),
        unknown=first_id("unknown", "[UNK]", "<unk>"),
        start=first_id("start", "[CLS]", "<cls>", "<s>", ENDOFTEXT),
        end=first_id("end", "[SEP]", "<sep>", "</s>", ENDOFTEXT),
        mask=first_id("mask", "[MASK]", "<mask>"),
    )


def read_role_ids(processor: dict[str, Any] | None) -> dict[str, int]:
    """Role → id, as stored in the template of a tokenizer.json."""
    return {
        name.removeprefix(ROLE_PREFIX): token["ids"][0]
        for template in _templates(processor)
        for name, token in template["special_tokens"].items()
        if name.startswith(ROLE_PREFIX) and token["ids"]
    }


def template_token_ids(processor: dict[str, Any] | None) -> list[int]:
    """Every special token id in the templates of a tokenizer.json."""
    tokens = [token for template in _templates(processor) for token in template["special_tokens"].values()]
    pairs = [step[side][1] for step in _processors(processor) for side in ("sep", "cls") if side in step]
    return [*pairs, *(token_id for token in tokens for token_id in token["ids"])]


def add_role_tokens(processor: dict[str, Any] | None, tokens: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """The post-processor with these roles stored in its template, the one part of tokenizer.json with free names."""
    names = {
        f"{ROLE_PREFIX}{role}": {"id": f"{ROLE_PREFIX}{role}", "ids": [token_id], "tokens": [token]}
        for role, (token_id, token) in sorted(tokens.items())
    }
    for template in _templates(processor):
        template["special_tokens"] = dict(sorted({**template["special_tokens"], **names}.items()))
        return processor or template
    is_only = processor is None  # then the library numbers segments, and the template must do the same
    first, second = ({"Sequence": {"id": side, "type_id": int(is_only and side == "B")}} for side in "AB")
    bare_template = {"type": "TemplateProcessing", "single": [first], "pair": [first, second], "special_tokens": names}
    return bare_template if processor is None else {"type": "Sequence", "processors": [processor, bare_template]}


def _templates(processor: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    return (step for step in _processors(processor) if step["type"] == "TemplateProcessing")


def _processors(processor: dict[str, Any] | None) -> list[dict[str, Any]]:
    processors: list[dict[str, Any]] = (processor or {}).get("processors", [processor] if processor else [])
    return processors
