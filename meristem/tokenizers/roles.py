"""Which tokens are special, and what each is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

BRACKETED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # BERT's names, ids 0 to 4
ANGLED = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # RoBERTa's names and order, ids 0 to 4
ENDOFTEXT = "<|endoftext|>"  # GPT-2 begins and ends a text with the same token
SENTINEL = "<extra_id_{}>"  # T5's names for what stands in place of a span
MASK = "[MASK]"  # what a person writes, whatever the tokenizer calls it
TOLD = "role:"  # begins the name under which a tokenizer.json keeps an unusual token of a role


@dataclass(frozen=True)
class Roles:
    """The ids of the special tokens by what they are for; None where a tokenizer has no such token."""

    pad: int | None
    unknown: int | None
    start: int | None
    end: int | None
    mask: int | None


def roles(find: Callable[[str], int | None], told: Mapping[str, int]) -> Roles:
    """Each role as the tokenizer.json tells it, else under its usual names."""

    def first(role: str, *names: str) -> int | None:
        return told.get(role, next((found for name in names if (found := find(name)) is not None), None))

    return Roles(
        pad=first("pad", "[PAD]", "<pad>"),
        unknown=first("unknown", "[UNK]", "<unk>"),
        start=first("start", "[CLS]", "<cls>", "<s>", ENDOFTEXT),
        end=first("end", "[SEP]", "<sep>", "</s>", ENDOFTEXT),
        mask=first("mask", "[MASK]", "<mask>"),
    )


def told(processor: dict[str, Any] | None) -> dict[str, int]:
    """Roles → ids that the template of a tokenizer.json names."""
    return {
        name.removeprefix(TOLD): token["ids"][0]
        for template in _templates(processor)
        for name, token in template["special_tokens"].items()
        if name.startswith(TOLD) and token["ids"]
    }


def framing_ids(processor: dict[str, Any] | None) -> list[int]:
    """Every id that stands in what a tokenizer.json puts around texts."""
    tokens = [token for template in _templates(processor) for token in template["special_tokens"].values()]
    pairs = [part[side][1] for part in _parts(processor) for side in ("sep", "cls") if side in part]
    return [*pairs, *(number for token in tokens for number in token["ids"])]


def with_roles(processor: dict[str, Any] | None, tokens: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """A template that names these roles too: the one place in tokenizer.json that takes names of our own."""
    names = {
        f"{TOLD}{role}": {"id": f"{TOLD}{role}", "ids": [number], "tokens": [token]}
        for role, (number, token) in sorted(tokens.items())
    }
    for template in _templates(processor):
        template["special_tokens"] = dict(sorted({**template["special_tokens"], **names}.items()))
        return processor or template
    alone = processor is None  # then the library counts segments, and the template must go on doing so
    first, second = ({"Sequence": {"id": side, "type_id": int(alone and side == "B")}} for side in "AB")
    bare = {"type": "TemplateProcessing", "single": [first], "pair": [first, second], "special_tokens": names}
    return bare if processor is None else {"type": "Sequence", "processors": [processor, bare]}


def _templates(processor: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    return (part for part in _parts(processor) if part["type"] == "TemplateProcessing")


def _parts(processor: dict[str, Any] | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (processor or {}).get("processors", [processor] if processor else [])
    return found
