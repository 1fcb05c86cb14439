"""What a folder says about its tokenizer beside the vocabulary: case, special tokens, tokens that were added later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from meristem import bounded
from meristem.errors import MeristemError

LARGEST = bounded.WORDS.size
CONFIG, NAMES, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
KEYS = {
    "pad": ("pad_token",),
    "unknown": ("unk_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}
"""A role → the keys that name its token, the first that is there deciding: XLNet and RoBERTa name both pairs."""


@dataclass(frozen=True)
class Beside:
    """What stands in tokenizer_config.json, special_tokens_map.json and added_tokens.json."""

    roles: Mapping[str, str] = field(default_factory=dict)
    """A role → the token that has it here."""
    added: Mapping[int, AddedToken] = field(default_factory=dict)
    """Tokens beyond the vocabulary file, by id."""
    config: Mapping[str, Any] = field(default_factory=dict)

    def flag(self, name: str) -> bool | None:
        """A yes or no of tokenizer_config.json; none where it says neither."""
        said = self.config.get(name)
        return said if isinstance(said, bool) else None

    @property
    def tokens(self) -> list[str]:
        """The tokens that have a role."""
        return list(dict.fromkeys(self.roles.values()))


def beside(folder: Path) -> Beside:
    """What a folder says; nothing where it holds none of the three files."""
    config = _mapping(folder / CONFIG)
    named = {**config, **_mapping(folder / NAMES)}
    roles = {role: token for role, keys in KEYS.items() for token in [_first(named, keys)] if token}
    if roles.get("unknown") in (roles.get("start"), roles.get("end")):
        roles.pop("unknown", None)  # GPT-2 names its one special token for this too, and has nothing unknown
    later = _mapping(folder / ADDED)
    added = {number: AddedToken(token, special=False) for token, number in later.items() if isinstance(number, int)}
    decoder = config.get("added_tokens_decoder")
    for number, told in decoder.items() if isinstance(decoder, dict) else ():
        if str(number).isdecimal() and isinstance(told, dict) and isinstance(told.get("content"), str):
            added[int(number)] = _token(told)
    return Beside(roles=roles, added=added, config=config)


def _first(named: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The token under the first key that holds one: written plainly, or with how it is found in a text."""
    for key in keys:
        value = named.get(key)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str) and value:
            return value
    return None


def _token(told: Mapping[str, Any]) -> AddedToken:
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(told["content"], **{flag: told[flag] for flag in flags if isinstance(told.get(flag), bool)})


def _mapping(path: Path) -> dict[str, Any]:
    found = parsed(text(path), str(path)) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def text(path: Path) -> str:
    """A file of UTF-8 text, unless it is too large to be part of a tokenizer."""
    return bounded.text(path, LARGEST)


def parsed(content: str, place: str) -> Any:
    """JSON, or a word about where it is none."""
    try:
        return bounded.json_in(content, place, bounded.WORDS)
    except MeristemError as error:
        raise MeristemError(f"{error}; give a whole, undamaged tokenizer file") from None
