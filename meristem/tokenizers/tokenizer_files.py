"""Reading tokenizer files: tokenizer.json, vocab.txt (BERT), vocab.json with merges.txt (GPT, GPT-2, RoBERTa)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from meristem.config.errors import MeristemError
from meristem.tokenizers import untrusted_tokenizer
from meristem.tokenizers.special_tokens import (
    BERT_SPECIALS,
    ENDOFTEXT,
    ROBERTA_SPECIALS,
    add_role_tokens,
    find_special_ids,
    read_role_ids,
    template_token_ids,
)
from meristem.tokenizers.token_bytes import WORD_END
from meristem.tokenizers.tokenizer_config import TokenizerConfig, parse_json, read_text, read_tokenizer_config
from meristem.utils import untrusted_files

TEMPLATE_PROCESSORS = {"TemplateProcessing", "BertProcessing", "RobertaProcessing", "Sequence"}
SENTENCEPIECE_FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "spm.model")


def read_tokenizer_file(path: Path, lowercase: bool | None) -> tuple[str, str, Mapping[str, str]]:
    """The tokenizer.json text, the path for error messages, and role → token, from any of the supported files."""
    file_path = _find_file(path)
    config = read_tokenizer_config(file_path.parent)
    if file_path.suffix == ".txt" and file_path.name != "merges.txt":
        return _wordpiece_json(file_path, lowercase, config), str(file_path), config.roles
    if file_path.name in {"vocab.json", "merges.txt"}:
        return _bpe_json(file_path.parent, config), str(file_path.parent / "vocab.json"), config.roles
    return read_text(file_path), str(file_path), config.roles


def _find_file(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise MeristemError(
                f"{path}: no tokenizer found; tokenizer.path takes tokenizer.json, a folder with it, "
                "vocab.txt, or vocab.json with merges.txt"
            )
        return path
    for name in ("tokenizer.json", "vocab.txt", "vocab.json"):
        if (path / name).is_file():
            return path / name
    if sentencepiece_file := next((name for name in SENTENCEPIECE_FILES if (path / name).is_file()), None):
        raise MeristemError(
            f"{path}: {sentencepiece_file} cannot be read without tokenizer.json; transformers can create it: "
            f"AutoTokenizer.from_pretrained({str(path)!r}).save_pretrained({str(path)!r})"
        )
    raise MeristemError(f"{path}: the folder has no tokenizer.json, vocab.txt or vocab.json")


def parse_tokenizer(content: str, source: str) -> tokenizers.Tokenizer:
    """The library's tokenizer of a tokenizer.json; its errors and panics become MeristemError."""
    try:
        return tokenizers.Tokenizer.from_str(content)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic is not an Exception
        raise MeristemError(f"{source}: not a tokenizer the `tokenizers` library can read ({error})") from None


@contextmanager
def tokenizer_errors(source: str) -> Iterator[None]:
    """Context for encoding: errors and panics of the library (excessive backtracking) become MeristemError."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        if type(error) is not Exception:  # the library raises no other
            raise
        raise MeristemError(f"{source}: the tokenizer cannot encode this text ({error})") from None
    except BaseException as error:  # a panic
        raise MeristemError(f"{source}: the tokenizer cannot encode this text ({error})") from None


def canonicalize(content: str, source: str, role_tokens: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Canonical tokenizer.json text and its content, without truncation, padding or BPE dropout; templates are kept.

    `role_tokens` maps roles to tokens; those that the usual names would not find are stored in the template.
    """
    description = parse_json(content, source)
    if not isinstance(description, dict) or not isinstance(description.get("model"), dict):
        raise MeristemError(f"{source}: not a tokenizer.json: it has no model")
    untrusted_tokenizer.check_description(description, source)
    post_processor = description.get("post_processor")
    has_template = isinstance(post_processor, dict) and post_processor.get("type") in TEMPLATE_PROCESSORS
    description |= {"truncation": None, "padding": None, "post_processor": post_processor if has_template else None}
    if "dropout" in description["model"]:
        description["model"]["dropout"] = None
    tokenizer = parse_tokenizer(json.dumps(description), source)
    untrusted_tokenizer.check_speed(description, tokenizer, source)
    canonical_description: dict[str, Any] = json.loads(tokenizer.to_str())
    untrusted_tokenizer.check_unknown(canonical_description, source)
    if canonical_description["model"]["type"] == "Unigram":
        _hide_special_tokens(canonical_description)
    template_ids = template_token_ids(canonical_description["post_processor"])
    if unknown_ids := [token_id for token_id in template_ids if tokenizer.id_to_token(token_id) is None]:
        raise MeristemError(f"{source}: its template uses token {unknown_ids[0]}, which is not in its vocabulary")
    usual_ids = find_special_ids(tokenizer.token_to_id, read_role_ids(canonical_description["post_processor"]))
    ids = {role: tokenizer.token_to_id(token) for role, token in role_tokens.items()}
    if tokens := {
        role: (token_id, role_tokens[role])
        for role, token_id in ids.items()
        if token_id is not None and token_id != getattr(usual_ids, role)
    }:
        canonical_description["post_processor"] = add_role_tokens(canonical_description["post_processor"], tokens)
    return untrusted_files.to_json(canonical_description, indent=1) + "\n", canonical_description


def _hide_special_tokens(description: dict[str, Any]) -> None:
    """Give special tokens a score that never wins, or a unigram model would find their names in text."""
    special = {token["content"] for token in description["added_tokens"] if token["special"]}
    vocabulary = description["model"]["vocab"]
    description["model"]["vocab"] = [[piece, -1e4 if piece in special else score] for piece, score in vocabulary]


def with_single_special_token(content: str, token_id: int, name: str, *, lstrip: bool) -> tokenizers.Tokenizer:
    """The tokenizer with this token as the only added token, which it recognises in text."""
    description = json.loads(content)
    flags = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False, "special": True}
    description["added_tokens"] = [{"id": token_id, "content": name, **flags}]
    return parse_tokenizer(json.dumps(description), name)


def _wordpiece_json(path: Path, lowercase: bool | None, config: TokenizerConfig) -> str:
    """vocab.txt as tokenizer.json; if case is not configured, lowercase if the vocabulary has no capitals."""
    tokens = read_text(path).removesuffix("\n").split("\n")
    tokens = [token.removesuffix("\r") for token in tokens]
    vocabulary: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        if not token:
            raise MeristemError(f"{path}:{token_id + 1}: an empty line; vocab.txt has one token on each line")
        if token in vocabulary:
            raise MeristemError(f"{path}:{token_id + 1}: {token!r} is already on line {vocabulary[token] + 1}")
        vocabulary[token] = token_id
    unknown = config.roles.get("unknown", "[UNK]")
    if unknown not in vocabulary:
        raise MeristemError(f"{path}: has no {unknown}; BERT's vocab.txt needs an unknown token")
    if lowercase is None:
        lowercase = config.flag("do_lower_case")
    if lowercase is None:
        lowercase = all(token == token.lower() for token in tokens if not token.startswith("["))
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase,
        strip_accents=config.flag("strip_accents"),
        handle_chinese_chars=config.flag("tokenize_chinese_chars") is not False,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _add_tokens(tokenizer, [*BERT_SPECIALS, *config.role_tokens], config, path)


def _bpe_json(folder: Path, config: TokenizerConfig) -> str:
    """vocab.json and merges.txt as tokenizer.json: byte-level (GPT-2, RoBERTa), or characters (the first GPT)."""
    vocab_path, merges_path = folder / "vocab.json", folder / "merges.txt"
    vocabulary = parse_json(_read_required(vocab_path), str(vocab_path))
    if not isinstance(vocabulary, dict) or not all(isinstance(token_id, int) for token_id in vocabulary.values()):
        raise MeristemError(f"{vocab_path}: expected tokens with their ids")
    untrusted_tokenizer.check_description({"model": {"vocab": vocabulary}}, str(vocab_path))
    has_word_ends = any(token.endswith(WORD_END) for token in vocabulary)
    by_characters = has_word_ends and not any("Ġ" in token for token in vocabulary)
    unknown = config.roles.get("unknown", "<unk>")
    bpe_options = {"end_of_word_suffix": WORD_END, "unk_token": unknown} if by_characters else {}
    try:
        tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, _read_merges(merges_path), **bpe_options))
    except (KeyboardInterrupt, SystemExit, MeristemError):
        raise
    except BaseException as error:
        raise MeristemError(f"{merges_path}: does not fit vocab.json ({error})") from None
    if by_characters:
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.BPEDecoder(suffix=WORD_END)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=config.flag("add_prefix_space") is True)
        tokenizer.decoder = decoders.ByteLevel()
    return _add_tokens(tokenizer, [*ROBERTA_SPECIALS, ENDOFTEXT, *config.role_tokens], config, vocab_path)


def _read_required(path: Path) -> str:
    if not path.is_file():
        raise MeristemError(f"{path}: missing; a BPE tokenizer needs both vocab.json and merges.txt")
    return read_text(path)


def _read_merges(path: Path) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for line_number, line in enumerate(_read_required(path).split("\n"), 1):
        if not line.strip() or (line_number == 1 and line.startswith("#version")):
            continue
        match line.removesuffix("\r").split(" "):
            case [left, right]:
                merges.append((left, right))
            case _:
                raise MeristemError(f"{path}:{line_number}: expected two tokens separated by a space, got {line!r}")
    return merges


def _add_tokens(tokenizer: tokenizers.Tokenizer, special: list[str], config: TokenizerConfig, path: Path) -> str:
    """tokenizer.json with the special tokens of the vocabulary marked as special, and added tokens appended."""
    vocabulary = tokenizer.get_vocab()
    tokenizer.add_special_tokens([name for name in dict.fromkeys(special) if name in vocabulary])
    for token_id, token in sorted(config.added_tokens.items()):
        if tokenizer.token_to_id(token.content) is None:
            tokenizer.add_tokens([token])
        if (actual_id := tokenizer.token_to_id(token.content)) != token_id:
            raise MeristemError(
                f"{path.parent}: {token.content!r} should be token {token_id:,}, but its id is {actual_id:,}: "
                "the files belong to different tokenizers"
            )
    return tokenizer.to_str()
