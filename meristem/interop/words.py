"""Tokenizers and labels, in and out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meristem.interop.published import Published
from meristem.tokenizers.tokenizer import Tokenizer

KINDS = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram", "WordLevel": "words"}


def read(folder: Path, table: type[Published], config: Mapping[str, Any]) -> Tokenizer:
    """The folder's tokenizer."""
    return Tokenizer.load(folder)


def kind(tokenizer: Tokenizer) -> str:
    """Which kind of ours a tokenizer is."""
    return KINDS[json.loads(tokenizer.text)["model"]["type"]]


def labels(config: Mapping[str, Any]) -> list[str]:
    """The names of a head's scores, in order; transformers means two where it is silent."""
    named = config.get("id2label")
    if isinstance(named, dict) and named:
        return [str(named[key]) for key in sorted(named, key=int)]
    return [f"LABEL_{number}" for number in range(int(config.get("num_labels") or 2))]


def files(tokenizer: Tokenizer, table: type[Published], length: int) -> dict[str, str]:
    """tokenizer.json and tokenizer_config.json as AutoTokenizer reads them."""
    description = json.loads(tokenizer.text)
    description["post_processor"] = _template(tokenizer, table)
    roles = {"pad_token": tokenizer.pad, "unk_token": tokenizer.unknown, "mask_token": tokenizer.mask}
    start, end = ("cls_token", "sep_token") if tokenizer.mask is not None else ("bos_token", "eos_token")
    roles |= {start: tokenizer.start, end: tokenizer.end}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
        **{role: tokenizer.token(number) for role, number in roles.items() if number is not None},
    }
    return {
        "tokenizer.json": json.dumps(description, ensure_ascii=False, indent=1) + "\n",
        "tokenizer_config.json": json.dumps(settings, ensure_ascii=False, indent=2) + "\n",
    }


def _template(tokenizer: Tokenizer, table: type[Published]) -> dict[str, Any] | None:
    """The frame around one text and around two, as the tokenizers library tells it."""
    roles = {"start": tokenizer.start, "end": tokenizer.end}
    if not table.frame.replace("A", "").strip():
        return None
    used: dict[str, Any] = {}

    def pieces(frame: str) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        for word in frame.split():
            second = any("Sequence" in piece and piece["Sequence"]["id"] == "B" for piece in out) or word == "B"
            if word in "AB":
                out.append({"Sequence": {"id": word, "type_id": int(second)}})
                continue
            number = roles[word]
            assert number is not None
            name = tokenizer.token(number)
            used[name] = {"id": name, "ids": [number], "tokens": [name]}
            out.append({"SpecialToken": {"id": name, "type_id": int(second)}})
        return out

    return {
        "type": "TemplateProcessing",
        "single": pieces(table.frame),
        "pair": pieces(table.pair),
        "special_tokens": used,
    }
