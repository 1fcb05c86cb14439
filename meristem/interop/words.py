"""Tokenizers and labels, in and out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.errors import MeristemError
from meristem.interop.published import Published
from meristem.tokenizers.roles import told, with_roles
from meristem.tokenizers.spelling import spelling_of
from meristem.tokenizers.tokenizer import Tokenizer

MOST_LABELS = 1 << 20
KINDS = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram", "WordLevel": "words"}


def read(folder: Path, table: type[Published], config: Mapping[str, Any]) -> Tokenizer:
    """The folder's tokenizer; files that cannot say what stands around a text get what this type puts there."""
    tokenizer = _ending(Tokenizer.load(folder), folder)
    if tokenizer.frame is not None or (folder / "tokenizer.json").is_file():
        return tokenizer
    description = json.loads(tokenizer.text)
    own = description["post_processor"]
    description["post_processor"] = _framed(own, tokenizer, table, table.frame, table.pair)
    return Tokenizer(json.dumps(description), str(folder))


def _ending(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    """A tokenizer that ends no text, as the first GPT's, ends it with its unknown token, which it hardly ever needs."""
    if tokenizer.end is not None or tokenizer.unknown is None:
        return tokenizer
    description = json.loads(tokenizer.text)
    ends = {"end": (tokenizer.unknown, tokenizer.token(tokenizer.unknown))}
    description["post_processor"] = with_roles(description["post_processor"], ends)
    return Tokenizer(json.dumps(description), str(folder))


def kind(tokenizer: Tokenizer) -> str:
    """Which kind of ours a tokenizer is."""
    description = json.loads(tokenizer.text)
    split = description["pre_tokenizer"] or {}
    if description["model"]["type"] == "WordLevel" and split.get("type") == "Split":
        return "characters"
    return KINDS[description["model"]["type"]]


def labels(config: Mapping[str, Any]) -> list[str]:
    """The names of a head's scores, in order; transformers means two where it is silent."""
    named = config.get("id2label")
    if isinstance(named, dict) and named:
        if not all(str(key).isdecimal() for key in named):
            raise MeristemError(f"config.json: id2label numbers labels, and not all of these: {', '.join(named)}")
        return [str(named[key]) for key in sorted(named, key=int)]
    count = config.get("num_labels") or 2
    if type(count) is not int or not 0 < count < MOST_LABELS:
        raise MeristemError(f"config.json: num_labels={count!r} is no number of labels")
    return [f"LABEL_{number}" for number in range(count)]


def files(
    tokenizer: Tokenizer,
    table: type[Published],
    length: int,
    *,
    frame: tuple[str, str] | None = None,
    pad: int | None = None,
    side: str | None = None,
) -> dict[str, str]:
    """tokenizer.json and tokenizer_config.json as AutoTokenizer reads them.

    `frame` is what stood around one text and around two where the tokenizer does not say it itself, `pad` pads where
    it has no token for that, on the `side` of the type unless told.
    """
    description = json.loads(tokenizer.text)
    if tokenizer.frame is None:
        sides = frame or _trained(table)
        description["post_processor"] = _framed(description["post_processor"], tokenizer, table, *sides)
    carries_space = spelling_of(description, "tokenizer.json").carries_space
    for token in description["added_tokens"]:
        if token["id"] == tokenizer.mask:  # "a <mask>" has one space, which goes with the word that is hidden
            token["lstrip"] = token["lstrip"] or carries_space
    settings = _settings(tokenizer, table, length, pad) | ({"padding_side": side} if side else {})
    return {
        "tokenizer.json": bounded.to_json(description, indent=1) + "\n",
        "tokenizer_config.json": bounded.to_json(settings, indent=2) + "\n",
    }


def _settings(tokenizer: Tokenizer, table: type[Published], length: int, pad: int | None) -> dict[str, Any]:
    """tokenizer_config.json: tokenizer.json is to be taken as it is, and these are the names of its special tokens."""
    roles = {"pad_token": "pad", "unk_token": "unknown", "mask_token": "mask", **table.marks}
    ids = {key: number for key, role in roles.items() if (number := getattr(tokenizer, role)) is not None}
    if tokenizer.end == tokenizer.unknown:  # it only stands in
        ids = {key: number for key, number in ids.items() if roles[key] != "end"}
    if pad is not None:
        ids.setdefault("pad_token", pad)
    others = [number for number in tokenizer.specials.nonzero()[0].tolist() if number not in ids.values()]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "model_input_names": list(table.inputs),
        "padding_side": table.side,
        "clean_up_tokenization_spaces": False,
        **{key: tokenizer.token(number) for key, number in ids.items()},
        **({"additional_special_tokens": [tokenizer.token(number) for number in others]} if others else {}),
    }


def _trained(table: type[Published]) -> tuple[str, str]:
    """What stood around texts in a run that was trained here, whose tokenizer says nothing of it.

    A text that is gone on with begins with itself, a source has its end, and whatever only reads stands between start
    and end.
    """
    if table.writes:
        return table.frame.replace("start", "").strip(), table.pair.replace("start", "").strip()
    return (table.frame, table.pair) if table.frame == Published.frame else (Published.frame, Published.pair)


def _framed(
    processor: dict[str, Any] | None, tokenizer: Tokenizer, table: type[Published], frame: str, pair: str
) -> dict[str, Any] | None:
    """The frame around one text and around two as the tokenizers library tells it; a role without a token is left out.

    A word may end in the number of its segment (`start:2`); the others are of the second from `B` on.
    """
    used: dict[str, Any] = {}
    sides = [_pieces(line, tokenizer, "token_type_ids" in table.inputs, used) for line in (frame, pair)]
    if not used:
        return processor
    out = {"type": "TemplateProcessing", "single": sides[0], "pair": sides[1], "special_tokens": used}
    return with_roles(out, {role: (number, tokenizer.token(number)) for role, number in told(processor).items()})


def _pieces(line: str, tokenizer: Tokenizer, segments: bool, used: dict[str, Any]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    second = False
    for word in line.split():
        name, _, segment = word.partition(":")
        second = second or name == "B"
        kind = int(segment or second) if segments else 0
        if name in ("A", "B"):
            out.append({"Sequence": {"id": name, "type_id": kind}})
        elif (number := getattr(tokenizer, name)) is not None:
            token = tokenizer.token(number)
            used[token] = {"id": token, "ids": [number], "tokens": [token]}
            out.append({"SpecialToken": {"id": token, "type_id": kind}})
    return out
