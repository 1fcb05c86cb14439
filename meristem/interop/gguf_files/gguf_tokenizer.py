"""Tokenizers in GGUF metadata: byte-level BPE, WordPiece and Unigram as llama.cpp computes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from meristem.config.errors import MeristemError
from meristem.interop.gguf_files.charsmap import build_charsmap
from meristem.utils import untrusted_files

NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5
"""llama.cpp's token types."""
SPACE = "\u2581"
HIDDEN_SCORE = -1e4
PREFIX = "tokenizer.ggml"
JSON_KEY = "tokenizer.huggingface.json"
"""The key of the whole tokenizer.json, which llama.cpp ignores and an import reads."""
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
SPECIAL_ROLES = {"bos": "bos_token_id", "eos": "eos_token_id", "padding": "pad_token_id"}


def tokenizer_metadata(description: Mapping[str, Any], num_rows: int, config: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of a tokenizer.json for an embedding of this many rows; what llama.cpp cannot compute is an error."""
    kind = description["model"]["type"]
    build = {"BPE": _bpe, "WordPiece": _wordpiece, "Unigram": _unigram}.get(kind)
    if build is None:
        raise MeristemError(f"--gguf: llama.cpp has no {kind} tokenizer; it has byte-level BPE, WordPiece and Unigram")
    values = build(description)
    tokens, types = values["tokens"], values["token_type"]
    tokens += [f"[PAD{number}]" for number in range(len(tokens), num_rows)]
    types += [UNUSED] * (num_rows - len(types))
    if "scores" in values:
        values["scores"] += [HIDDEN_SCORE] * (num_rows - len(values["scores"]))
    return {
        **{f"{PREFIX}.{key}": value for key, value in values.items()},
        **({f"{PREFIX}.token_type_count": segments} if (segments := config.get("type_vocab_size")) else {}),
        **_special_tokens(description, config),
        JSON_KEY: untrusted_files.to_json(dict(description)),
    }


def _special_tokens(description: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Ids of special tokens, and which of them llama.cpp puts around a text: those of the template."""
    before, after = template_ids(description)
    ids = {name: config.get(key) for name, key in SPECIAL_ROLES.items()}
    ids |= {"bos": before[0]} if before else {}
    ids |= {"eos": after[-1], "seperator": after[-1]} if after else {}  # GGUF spells the key so
    names = {token["content"]: token["id"] for token in description["added_tokens"]}
    ids["unknown"] = next((names[name] for name in ("[UNK]", "<unk>") if name in names), None)
    ids["mask"] = next((names[name] for name in ("[MASK]", "<mask>") if name in names), None)
    if len(before) > 1 or len(after) > 1:
        raise MeristemError(
            f"--gguf: this tokenizer puts {len(before)} tokens before a text and {len(after)} after it; "
            "llama.cpp puts at most one on each side"
        )
    is_wordpiece = description["model"]["type"] == "WordPiece"
    if is_wordpiece and (len(before), len(after)) != (1, 1):
        raise MeristemError(
            "--gguf: llama.cpp's WordPiece always puts one token before a text and one after it, as BERT does, and "
            f"this run has {len(before)} and {len(after)}; tokenizer.kind=bpe has no such limit"
        )
    return {
        **{f"{PREFIX}.{name}_token_id": int(token_id) for name, token_id in ids.items() if isinstance(token_id, int)},
        f"{PREFIX}.add_bos_token": bool(before),
        f"{PREFIX}.add_eos_token": bool(after) and not is_wordpiece,
        f"{PREFIX}.add_sep_token": bool(after) and is_wordpiece,
    }


def template_ids(description: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """The special token ids that the template of a tokenizer.json puts before and after a text."""
    processor = description["post_processor"] or {}
    templates = [step for step in processor.get("processors", [processor]) if step.get("type") == "TemplateProcessing"]
    if not templates:
        return [], []
    sides: tuple[list[int], list[int]] = ([], [])
    side = 0
    for piece in templates[0]["single"]:
        if "Sequence" in piece:
            side = 1
        else:
            sides[side].extend(templates[0]["special_tokens"][piece["SpecialToken"]["id"]]["ids"])
    return sides


def _tokens(description: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """The tokens by id and their types; ids that the vocabulary skips are unused."""
    vocabulary = description["model"]["vocab"]
    pairs = enumerate(piece for piece, _ in vocabulary) if isinstance(vocabulary, list) else None
    by_id: dict[int, str] = dict(pairs) if pairs else {number: token for token, number in vocabulary.items()}
    special = {token["id"]: token for token in description["added_tokens"]}
    by_id |= {number: token["content"] for number, token in special.items()}
    count = max(by_id) + 1
    types = [
        CONTROL if number in special and special[number]["special"] else NORMAL if number in by_id else UNUSED
        for number in range(count)
    ]
    return [by_id.get(number, f"[PAD{number}]") for number in range(count)], types


def _bpe(description: Mapping[str, Any]) -> dict[str, Any]:
    """Byte-level BPE with GPT-2's pattern; llama.cpp knows other patterns by name only, and none with a normalizer."""
    pre_tokenizer = description["pre_tokenizer"] or {}
    differences = [
        f"{key}={pre_tokenizer.get(key)!r}" for key, value in BYTE_LEVEL.items() if pre_tokenizer.get(key) != value
    ]
    if description["normalizer"] is not None:
        differences.append(f"the normalizer {description['normalizer'].get('type')} (tokenizer.lowercase)")
    if differences:
        raise MeristemError(
            f"--gguf: llama.cpp has no BPE pre-tokenizer with {', '.join(differences)}; it has GPT-2's, which "
            "tokenizer.kind=bpe trains"
        )
    tokens, types = _tokens(description)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in description["model"]["merges"]]
    return {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": types, "merges": merges}


def _wordpiece(description: Mapping[str, Any]) -> dict[str, Any]:
    """BERT's WordPiece: llama.cpp marks the beginning of a word, where BERT marks its continuation."""
    normalizer, prefix = description["normalizer"] or {}, description["model"]["continuing_subword_prefix"]
    pre_tokenizer = (description["pre_tokenizer"] or {}).get("type")
    if normalizer.get("type") != "BertNormalizer" or pre_tokenizer != "BertPreTokenizer" or prefix != "##":
        raise MeristemError("--gguf: llama.cpp has WordPiece with BERT's normalizer and pre-tokenizer only")
    lowercase, strip_accents = normalizer["lowercase"], normalizer["strip_accents"]
    if not normalizer["handle_chinese_chars"] or not normalizer["clean_text"]:
        raise MeristemError("--gguf: llama.cpp's WordPiece always cleans text and separates ideographs")
    tokens, types = _tokens(description)
    return {
        "model": "bert",
        "pre": "default",
        "tokens": [
            token if kind != NORMAL else token[2:] if token.startswith("##") and len(token) > 2 else SPACE + token
            for token, kind in zip(tokens, types, strict=True)
        ],
        "token_type": types,
        "normalizer.lowercase": bool(lowercase),
        "normalizer.strip_accents": bool(lowercase if strip_accents is None else strip_accents),
    }


def _unigram(description: Mapping[str, Any]) -> dict[str, Any]:
    """Unigram as trained here; its normalizer becomes a character map."""
    steps = (description["normalizer"] or {}).get("normalizers", [])
    kinds = [step["type"] for step in steps]
    pre_tokenizers = [step["type"] for step in (description["pre_tokenizer"] or {}).get("pretokenizers", [])]
    lowercase = "Lowercase" in kinds
    if kinds != ["NFKC", *["Lowercase"] * lowercase, "Replace"] or pre_tokenizers != ["Metaspace", "Split"]:
        raise MeristemError(
            f"--gguf: llama.cpp's Unigram has no normalizer {', '.join(kinds)} with {', '.join(pre_tokenizers)}; it "
            "has that of tokenizer.kind=unigram"
        )
    tokens, types = _tokens(description)
    scores = [float(score) for _, score in description["model"]["vocab"]]
    scores += [HIDDEN_SCORE] * (len(tokens) - len(scores))
    types[description["model"]["unk_id"]] = UNKNOWN
    return {
        "model": "t5",
        "pre": "default",
        "tokens": tokens,
        "scores": scores,
        "token_type": types,
        "add_space_prefix": True,
        "remove_extra_whitespaces": True,
        "precompiled_charsmap": build_charsmap(lowercase=lowercase),
    }


def read_tokenizer_json(metadata: Mapping[str, Any]) -> str:
    """The tokenizer.json of a GGUF file: the one it holds, or one of the same tokens."""
    if isinstance(whole := metadata.get(JSON_KEY), str):
        return whole
    kind = metadata.get(f"{PREFIX}.model")
    build = {"gpt2": _bpe_json, "bert": _wordpiece_json, "t5": _unigram_json}.get(str(kind))
    if build is None:
        raise MeristemError(
            f"its tokenizer is {kind!r} ({'SentencePiece BPE' if kind == 'llama' else 'unknown here'}), which needs "
            "the model's tokenizer.json: name it with --tokenizer"
        )
    return json.dumps(build(metadata), allow_nan=False)


def _required(metadata: Mapping[str, Any], key: str) -> Any:
    if (value := metadata.get(f"{PREFIX}.{key}")) is None:
        raise MeristemError(f"its metadata have no {PREFIX}.{key}")
    return value


def _library_json(metadata: Mapping[str, Any], tokenizer: Any, names: Mapping[int, str]) -> dict[str, Any]:
    """tokenizer.json of a library tokenizer with GGUF's control tokens as special ones and its template."""
    types = metadata.get(f"{PREFIX}.token_type") or []
    tokenizer.add_special_tokens([names[number] for number, kind in enumerate(types) if kind in (CONTROL, UNKNOWN)])
    description: dict[str, Any] = json.loads(tokenizer.to_str())
    sides = {
        "A": (("bos", "add_bos_token"),),
        "B": (("eos", "add_eos_token"), ("seperator", "add_sep_token")),
    }
    is_bert = metadata.get(f"{PREFIX}.model") == "bert"
    special_ids = {
        side: [
            int(metadata[f"{PREFIX}.{name}_token_id"])
            for name, flag in pairs
            if metadata.get(f"{PREFIX}.{flag}", is_bert and name != "eos") and f"{PREFIX}.{name}_token_id" in metadata
        ][:1]
        for side, pairs in sides.items()
    }
    if special_ids["A"] or special_ids["B"]:
        pieces = [{"SpecialToken": {"id": names[number], "type_id": 0}} for number in special_ids["A"]]
        after = [{"SpecialToken": {"id": names[number], "type_id": 0}} for number in special_ids["B"]]
        text, second = ({"Sequence": {"id": side, "type_id": int(side == "B")}} for side in "AB")
        description["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [*pieces, text, *after],
            "pair": [*pieces, text, *after, second, *after],
            "special_tokens": {
                names[number]: {"id": names[number], "ids": [number], "tokens": [names[number]]}
                for number in (*special_ids["A"], *special_ids["B"])
            },
        }
    return description


def _bpe_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    if (pattern := metadata.get(f"{PREFIX}.pre")) not in ("gpt-2", "default"):
        raise MeristemError(
            f"its BPE splits words by the pattern {pattern!r}, which is known by name only: name the model's "
            "tokenizer.json with --tokenizer"
        )
    tokens = _required(metadata, "tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in _required(metadata, "merges")]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _library_json(metadata, tokenizer, dict(enumerate(tokens)))


def _wordpiece_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    types = _required(metadata, "token_type")
    names = {
        number: token if kind != NORMAL else token[1:] if token.startswith(SPACE) else f"##{token}"
        for number, (token, kind) in enumerate(zip(_required(metadata, "tokens"), types, strict=True))
    }
    unknown = names[int(_required(metadata, "unknown_token_id"))]
    tokenizer = Tokenizer(models.WordPiece({token: number for number, token in names.items()}, unk_token=unknown))
    lowercase = bool(metadata.get(f"{PREFIX}.normalizer.lowercase", True))
    strip_accents = bool(metadata.get(f"{PREFIX}.normalizer.strip_accents", True))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _library_json(metadata, tokenizer, names)


def _unigram_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokens, scores = _required(metadata, "tokens"), _required(metadata, "scores")
    pieces = list(zip(tokens, map(float, scores), strict=True))
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=int(_required(metadata, "unknown_token_id"))))
    charsmap = bytes(value & 0xFF for value in metadata.get(f"{PREFIX}.precompiled_charsmap") or ())
    if charsmap:
        tokenizer.normalizer = normalizers.Precompiled(charsmap)
    # llama.cpp merges spaces and puts one before the text; words between white space are the same
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return _library_json(metadata, tokenizer, dict(enumerate(tokens)))
