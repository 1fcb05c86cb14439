"""tokenizer_config.json, special_tokens_map.json and added_tokens.json: case, special tokens, added tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from meristem.config.errors import MeristemError
from meristem.utils import untrusted_files

MAX_BYTES = untrusted_files.TOKENIZER_LIMITS.max_bytes
CONFIG_FILE, SPECIAL_TOKENS_FILE = "tokenizer_config.json", "special_tokens_map.json"
ADDED_TOKENS_FILE = "added_tokens.json"
ROLE_KEYS = {
    "pad": ("pad_token",),
    "unknown": ("unk_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}
"""Role → the keys that may name its token, the first present wins: XLNet and RoBERTa have both of each pair."""


@dataclass(frozen=True)
class TokenizerConfig:
    """The content of tokenizer_config.json, special_tokens_map.json and added_tokens.json."""

    roles: Mapping[str, str] = field(default_factory=dict)
    """Role → its token."""
    added_tokens: Mapping[int, AddedToken] = field(default_factory=dict)
    """Tokens that are not in the vocabulary file, by id."""
    config: Mapping[str, Any] = field(default_factory=dict)

    def flag(self, name: str) -> bool | None:
        """A boolean of tokenizer_config.json; None if it is missing."""
        value = self.config.get(name)
        return value if isinstance(value, bool) else None

    @property
    def role_tokens(self) -> list[str]:
        """The tokens that have a role."""
        return list(dict.fromkeys(self.roles.values()))


def read_tokenizer_config(folder: Path) -> TokenizerConfig:
    """The configuration of a folder; empty if it has none of the three files."""
    config = _read_mapping(folder / CONFIG_FILE)
    entries = {**config, **_read_mapping(folder / SPECIAL_TOKENS_FILE)}
    roles = {role: token for role, keys in ROLE_KEYS.items() for token in [_first_token(entries, keys)] if token}
    if roles.get("unknown") in (roles.get("start"), roles.get("end")):
        roles.pop("unknown", None)  # GPT-2 gives its one special token this role too, but has no unknown token
    added_ids = _read_mapping(folder / ADDED_TOKENS_FILE)
    added_tokens = {
        token_id: AddedToken(token, special=False) for token, token_id in added_ids.items() if isinstance(token_id, int)
    }
    decoder = config.get("added_tokens_decoder")
    for token_id, entry in decoder.items() if isinstance(decoder, dict) else ():
        if str(token_id).isdecimal() and isinstance(entry, dict) and isinstance(entry.get("content"), str):
            added_tokens[int(token_id)] = _added_token(entry)
    return TokenizerConfig(roles=roles, added_tokens=added_tokens, config=config)


def _first_token(entries: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The token under the first key that has one, as a string or as an AddedToken object."""
    for key in keys:
        value = entries.get(key)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str) and value:
            return value
    return None


def _added_token(entry: Mapping[str, Any]) -> AddedToken:
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(entry["content"], **{flag: entry[flag] for flag in flags if isinstance(entry.get(flag), bool)})


def _read_mapping(path: Path) -> dict[str, Any]:
    content = parse_json(read_text(path), str(path)) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def read_text(path: Path) -> str:
    """A UTF-8 text file; raises if it is too large for a tokenizer."""
    return untrusted_files.read_text(path, MAX_BYTES)


def parse_json(content: str, source: str) -> Any:
    """Parsed JSON; raises MeristemError with the position of a syntax error."""
    try:
        return untrusted_files.parse_json(content, source, untrusted_files.TOKENIZER_LIMITS)
    except MeristemError as error:
        raise MeristemError(f"{error}; the tokenizer file is incomplete or damaged") from None
