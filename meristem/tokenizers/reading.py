"""Tokenizer files: tokenizer.json, BERT's vocab.txt, vocab.json and merges.txt of GPT, GPT-2 and RoBERTa."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from meristem import bounded
from meristem.errors import MeristemError
from meristem.tokenizers import soundness
from meristem.tokenizers.beside import Beside, beside, parsed, text
from meristem.tokenizers.roles import ANGLED, BRACKETED, ENDOFTEXT, framing_ids, roles, told, with_roles
from meristem.tokenizers.spelling import SUFFIX

FRAMING = {"TemplateProcessing", "BertProcessing", "RobertaProcessing", "Sequence"}
SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "spm.model")


def read(path: Path, lowercase: bool | None) -> tuple[str, str, Mapping[str, str]]:
    """The tokenizer.json text of whatever is there, the place to name in errors, and which token has which role."""
    found = _locate(path)
    said = beside(found.parent)
    if found.suffix == ".txt" and found.name != "merges.txt":
        return _vocabulary(found, lowercase, said), str(found), said.roles
    if found.name in {"vocab.json", "merges.txt"}:
        return _pair(found.parent, said), str(found.parent / "vocab.json"), said.roles
    return text(found), str(found), said.roles


def _locate(path: Path) -> Path:
    if not path.is_dir():
        if not path.is_file():
            raise MeristemError(f"{path}: no tokenizer there; tokenizer.path takes tokenizer.json, a folder with it, "
                                "vocab.txt, or vocab.json beside merges.txt")
        return path
    for name in ("tokenizer.json", "vocab.txt", "vocab.json"):
        if (path / name).is_file():
            return path / name
    if other := next((name for name in SENTENCEPIECE if (path / name).is_file()), None):
        raise MeristemError(
            f"{path}: {other} is read through tokenizer.json, which is not beside it; transformers writes it: "
            f"AutoTokenizer.from_pretrained({str(path)!r}).save_pretrained({str(path)!r})"
        )
    raise MeristemError(f"{path}: the folder holds no tokenizer.json, vocab.txt or vocab.json")


def library(content: str, place: str) -> tokenizers.Tokenizer:
    """The library's tokenizer of a tokenizer.json; the library tells of a bad one by errors and by panics."""
    try:
        return tokenizers.Tokenizer.from_str(content)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic is no Exception
        raise MeristemError(f"{place}: not a tokenizer the `tokenizers` library can read ({error})") from None


@contextmanager
def cutting(place: str) -> Iterator[None]:
    """While the library cuts texts: its errors and panics, such as a pattern without end, told to a person."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        if type(error) is not Exception:  # the library raises no other
            raise
        raise MeristemError(f"{place}: the tokenizer cannot cut this text ({error})") from None
    except BaseException as error:  # a panic
        raise MeristemError(f"{place}: the tokenizer cannot cut this text ({error})") from None


def canonical(content: str, place: str, named: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """One text per tokenizer, without truncation, padding or chance; what it puts around a text is kept.

    `named` says which token has which role; where the usual names would not find it, the text itself tells.
    """
    description = parsed(content, place)
    if not isinstance(description, dict) or not isinstance(description.get("model"), dict):
        raise MeristemError(f"{place}: not a tokenizer.json: it describes no model")
    soundness.check(description, place)
    after = description.get("post_processor")
    frames = isinstance(after, dict) and after.get("type") in FRAMING
    description |= {"truncation": None, "padding": None, "post_processor": after if frames else None}
    if "dropout" in description["model"]:
        description["model"]["dropout"] = None
    read = library(json.dumps(description), place)
    soundness.check_speed(description, read, place)
    plain: dict[str, Any] = json.loads(read.to_str())
    soundness.check_unknown(plain, place)
    if plain["model"]["type"] == "Unigram":
        _hide_specials(plain)
    if strange := [number for number in framing_ids(plain["post_processor"]) if read.id_to_token(number) is None]:
        raise MeristemError(f"{place}: puts token {strange[0]} around a text, which its vocabulary does not hold")
    usual = roles(read.token_to_id, told(plain["post_processor"]))
    ids = {role: number for role, token in named.items() if (number := read.token_to_id(token)) is not None}
    if unusual := {role: number for role, number in ids.items() if getattr(usual, role) != number}:
        tokens = {role: (number, named[role]) for role, number in unusual.items()}
        plain["post_processor"] = with_roles(plain["post_processor"], tokens)
    return bounded.to_json(plain, indent=1) + "\n", plain


def _hide_specials(description: dict[str, Any]) -> None:
    """A unigram model would find a special token's name in a text by its score: give it one that never wins."""
    special = {token["content"] for token in description["added_tokens"] if token["special"]}
    vocabulary = description["model"]["vocab"]
    description["model"]["vocab"] = [[piece, -1e4 if piece in special else score] for piece, score in vocabulary]


def only_special(content: str, number: int, name: str, *, lstrip: bool) -> tokenizers.Tokenizer:
    """The tokenizer with a single token that is recognised inside texts."""
    description = json.loads(content)
    description["added_tokens"] = [{"id": number, "content": name, "single_word": False, "lstrip": lstrip,
                                    "rstrip": False, "normalized": False, "special": True}]
    return library(json.dumps(description), name)


def _vocabulary(path: Path, lowercase: bool | None, said: Beside) -> str:
    """BERT's: one token per line, its number the id; without a word on case, a vocabulary without capitals is lower."""
    tokens = text(path).removesuffix("\n").split("\n")
    tokens = [token.removesuffix("\r") for token in tokens]
    seen: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if not token:
            raise MeristemError(f"{path}:{number + 1}: an empty line; vocab.txt holds one token on each line")
        if token in seen:
            raise MeristemError(f"{path}:{number + 1}: {token!r} stands on line {seen[token] + 1} already")
        seen[token] = number
    unknown = said.roles.get("unknown", "[UNK]")
    if unknown not in seen:
        raise MeristemError(f"{path}: holds no {unknown}; BERT's vocab.txt needs one for what it does not know")
    if lowercase is None:
        lowercase = said.flag("do_lower_case")
    if lowercase is None:
        lowercase = all(token == token.lower() for token in tokens if not token.startswith("["))
    out = tokenizers.Tokenizer(models.WordPiece(seen, unk_token=unknown, max_input_chars_per_word=100))
    out.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase,
        strip_accents=said.flag("strip_accents"),
        handle_chinese_chars=said.flag("tokenize_chinese_chars") is not False,
    )
    out.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    out.decoder = decoders.WordPiece()
    return _with_added(out, [*BRACKETED, *said.tokens], said, path)


def _pair(folder: Path, said: Beside) -> str:
    """A vocabulary and its merges in order: by bytes as GPT-2's and RoBERTa's, or by letters as the first GPT's."""
    path, second = folder / "vocab.json", folder / "merges.txt"
    vocabulary = parsed(_half(path), str(path))
    if not isinstance(vocabulary, dict) or not all(isinstance(number, int) for number in vocabulary.values()):
        raise MeristemError(f"{path}: expected tokens with their numbers")
    soundness.check({"model": {"vocab": vocabulary}}, str(path))
    by_letters = not any("Ġ" in token for token in vocabulary) and any(token.endswith(SUFFIX) for token in vocabulary)
    unknown = said.roles.get("unknown", "<unk>")
    more = {"end_of_word_suffix": SUFFIX, "unk_token": unknown} if by_letters else {}
    try:
        out = tokenizers.Tokenizer(models.BPE(vocabulary, _merges(second), **more))
    except (KeyboardInterrupt, SystemExit, MeristemError):
        raise
    except BaseException as error:
        raise MeristemError(f"{second}: does not fit vocab.json ({error})") from None
    if by_letters:
        out.normalizer = normalizers.BertNormalizer(lowercase=True)
        out.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        out.decoder = decoders.BPEDecoder(suffix=SUFFIX)
    else:
        out.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=said.flag("add_prefix_space") is True)
        out.decoder = decoders.ByteLevel()
    return _with_added(out, [*ANGLED, ENDOFTEXT, *said.tokens], said, path)


def _half(path: Path) -> str:
    if not path.is_file():
        raise MeristemError(f"{path}: missing; GPT-2's tokenizer needs vocab.json and merges.txt side by side")
    return text(path)


def _merges(path: Path) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for number, line in enumerate(_half(path).split("\n"), 1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        match line.removesuffix("\r").split(" "):
            case [left, right]:
                out.append((left, right))
            case _:
                raise MeristemError(f"{path}:{number}: expected two tokens and a space, got {line!r}")
    return out


def _with_added(out: tokenizers.Tokenizer, special: list[str], said: Beside, path: Path) -> str:
    """The special tokens that a vocabulary holds marked as such, and what was added to it later put behind it."""
    known = out.get_vocab()
    out.add_special_tokens([name for name in dict.fromkeys(special) if name in known])
    for number, token in sorted(said.added.items()):
        if out.token_to_id(token.content) is None:
            out.add_tokens([token])
        if (found := out.token_to_id(token.content)) != number:
            raise MeristemError(
                f"{path.parent}: {token.content!r} is said to be token {number:,}, and the vocabulary puts it at "
                f"{found:,}: the files are not of one tokenizer"
            )
    return out.to_str()
