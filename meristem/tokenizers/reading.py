"""Tokenizer files: tokenizer.json, BERT's vocab.txt, GPT-2's vocab.json and merges.txt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from meristem.settings import MeristemError
from meristem.tokenizers.roles import ANGLED, BRACKETED, ENDOFTEXT

HIGHEST = 1 << 24  # id; the library walks through every number up to the highest
FRAMING = {"TemplateProcessing", "BertProcessing", "RobertaProcessing", "Sequence"}
LARGEST = 200_000_000  # bytes; the largest published vocabularies stay under 40 MB


def read(path: Path, lowercase: bool | None) -> tuple[str, str]:
    """The tokenizer.json text of whatever is there, and the place to name in errors."""
    found = _locate(path)
    if found.suffix == ".txt" and found.name != "merges.txt":
        return _vocabulary(found, lowercase), str(found)
    if found.name in {"vocab.json", "merges.txt"}:
        return _pair(found.parent), str(found.parent / "vocab.json")
    return _text(found), str(found)


def _locate(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise MeristemError(f"{path}: no tokenizer there; tokenizer.path takes tokenizer.json, a folder with it, "
                                "vocab.txt, or vocab.json beside merges.txt")
        return path
    for name in ("tokenizer.json", "vocab.txt", "vocab.json"):
        if (path / name).is_file():
            return path / name
    raise MeristemError(f"{path}: the folder holds no tokenizer.json, vocab.txt or vocab.json")


def _text(path: Path) -> str:
    if not path.is_file():
        raise MeristemError(f"{path}: missing; GPT-2's tokenizer needs vocab.json and merges.txt side by side")
    if path.stat().st_size > LARGEST:
        raise MeristemError(f"{path}: {path.stat().st_size / 1e6:.0f} MB is too large for a tokenizer "
                            f"(limit {LARGEST // 1_000_000} MB)")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise MeristemError(f"{path}: not UTF-8 text at byte {error.start}") from None


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise MeristemError(f"{place}{where}: not JSON ({error}); give a whole, undamaged tokenizer file") from None


def library(text: str, place: str) -> tokenizers.Tokenizer:
    """The library's tokenizer of a tokenizer.json; the library tells of a bad one by errors and by panics."""
    try:
        return tokenizers.Tokenizer.from_str(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic is no Exception
        raise MeristemError(f"{place}: not a tokenizer the `tokenizers` library can read ({error})") from None


def canonical(text: str, place: str) -> tuple[str, dict[str, Any]]:
    """One text per tokenizer, without truncation, padding or chance; what it puts around a text is kept."""
    description = _json(text, place)
    if not isinstance(description, dict) or not isinstance(description.get("model"), dict):
        raise MeristemError(f"{place}: not a tokenizer.json: it describes no model")
    _refuse_huge_ids(description, place)
    after = description.get("post_processor")
    frames = isinstance(after, dict) and after.get("type") in FRAMING
    description |= {"truncation": None, "padding": None, "post_processor": after if frames else None}
    if "dropout" in description["model"]:
        description["model"]["dropout"] = None
    plain: dict[str, Any] = json.loads(library(json.dumps(description), place).to_str())
    if plain["model"]["type"] == "Unigram":
        _hide_specials(plain)
    return json.dumps(plain, ensure_ascii=False, indent=1) + "\n", plain


def _refuse_huge_ids(description: dict[str, Any], place: str) -> None:
    vocabulary, added = description["model"].get("vocab"), description.get("added_tokens")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids += [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    highest = max((number for number in ids if isinstance(number, int)), default=0)
    if highest > HIGHEST:
        raise MeristemError(f"{place}: its ids reach {highest}; a tokenizer's ids end at {HIGHEST}")


def _hide_specials(description: dict[str, Any]) -> None:
    """A unigram model would find a special token's name in a text by its score: give it one that never wins."""
    special = {token["content"] for token in description["added_tokens"] if token["special"]}
    vocabulary = description["model"]["vocab"]
    description["model"]["vocab"] = [[piece, -1e4 if piece in special else score] for piece, score in vocabulary]


def only_special(text: str, number: int, name: str, *, lstrip: bool) -> tokenizers.Tokenizer:
    """The tokenizer with a single token that is recognised inside texts."""
    description = json.loads(text)
    description["added_tokens"] = [{"id": number, "content": name, "single_word": False, "lstrip": lstrip,
                                    "rstrip": False, "normalized": False, "special": True}]
    return library(json.dumps(description), name)


def _vocabulary(path: Path, lowercase: bool | None) -> str:
    """BERT's: one token per line, its number the id; without a word on case, a vocabulary without capitals is lower."""
    tokens = _text(path).removesuffix("\n").split("\n")
    tokens = [token.removesuffix("\r") for token in tokens]
    seen: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if not token:
            raise MeristemError(f"{path}:{number + 1}: an empty line; vocab.txt holds one token on each line")
        if token in seen:
            raise MeristemError(f"{path}:{number + 1}: {token!r} stands on line {seen[token] + 1} already")
        seen[token] = number
    if "[UNK]" not in seen:
        raise MeristemError(f"{path}: holds no [UNK]; BERT's vocab.txt needs one for what it does not know")
    if lowercase is None:
        lowercase = _configured(path.parent)
    if lowercase is None:
        lowercase = all(token == token.lower() for token in tokens if not token.startswith("["))
    out = tokenizers.Tokenizer(models.WordPiece(seen, unk_token="[UNK]", max_input_chars_per_word=100))
    out.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    out.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    out.decoder = decoders.WordPiece()
    out.add_special_tokens([name for name in BRACKETED if name in seen])
    return out.to_str()


def _configured(folder: Path) -> bool | None:
    """What tokenizer_config.json beside a vocabulary says about case."""
    path = folder / "tokenizer_config.json"
    described = _json(_text(path), str(path)) if path.is_file() else {}
    said = described.get("do_lower_case") if isinstance(described, dict) else None
    return said if isinstance(said, bool) else None


def _pair(folder: Path) -> str:
    """GPT-2's and RoBERTa's: the vocabulary, and the merges in order."""
    vocabulary = _json(_text(folder / "vocab.json"), str(folder / "vocab.json"))
    if not isinstance(vocabulary, dict) or not all(isinstance(number, int) for number in vocabulary.values()):
        raise MeristemError(f"{folder / 'vocab.json'}: expected tokens with their numbers")
    _refuse_huge_ids({"model": {"vocab": vocabulary}}, str(folder / "vocab.json"))
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(_text(folder / "merges.txt").split("\n"), 1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        match line.removesuffix("\r").split(" "):
            case [left, right]:
                merges.append((left, right))
            case _:
                raise MeristemError(f"{folder / 'merges.txt'}:{number}: expected two tokens and a space, got {line!r}")
    try:
        out = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise MeristemError(f"{folder / 'merges.txt'}: does not fit vocab.json ({error})") from None
    out.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens([name for name in (*ANGLED, ENDOFTEXT) if name in vocabulary])
    return out.to_str()
