"""Random mutations of a tokenizer.json: structure, vocabulary, merges, added tokens, and every step of the pipeline."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hostile.json_mutations import pick, replace_value

TOKENS = ("", " ", "a", "[PAD]", "[UNK]", "[MASK]", "<extra_id_0>", "##", "▁", "Ġ", "</w>", "\u0000", "\ufffd", "é",
          "x" * 3000, "中文", "[SEP] [CLS]", "\x1b[2J", "<script>", "../..", "\n")  # fmt: skip
NUMBERS: tuple[Any, ...] = (-1, 0, 1, 5, 10**6, 2**24, 2**31, 2**32, 2**63, 10**30, 0.5, 1e308, True, None, "1", [])
PATTERNS = ("", " ", "(a+)+$", "(a|aa)+$", ".*.*.*=", "((", "[", "\\", "a{1000000}", "(?<=a)b", "(?:a|b|)*", "\\p{L}+",
            "(?R)", "\\X", "^", "$", ".", "(?=a)", "\\b", "[^\\s]+|\\s+", "(a?){30}a{30}",
            "\\G", "(?s:.*)x")  # fmt: skip
NORMALIZERS: tuple[dict[str, Any], ...] = (
    {"type": "NFC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"}, {"type": "Nmt"},
    {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Prepend", "prepend": "▁"},
    {"type": "Prepend", "prepend": "x" * 100}, {"type": "Replace", "pattern": {"String": "a"}, "content": ""},
    {"type": "Replace", "pattern": {"Regex": "."}, "content": ""}, {"type": "ByteLevel"},
    {"type": "Replace", "pattern": {"Regex": ""}, "content": "ab"}, {"type": "Precompiled", "precompiled_charsmap": ""},
    {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"}, {"type": "Sequence", "normalizers": []},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
     "lowercase": True},
)  # fmt: skip
PRE_TOKENIZERS: tuple[dict[str, Any], ...] = (
    {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"}, {"type": "UnicodeScripts"},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": False},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    {"type": "Metaspace", "replacement": "ab", "prepend_scheme": "never", "split": False},
    {"type": "Punctuation", "behavior": "Removed"}, {"type": "Digits", "individual_digits": True},
    {"type": "CharDelimiterSplit", "delimiter": "a"}, {"type": "Sequence", "pretokenizers": []},
    {"type": "FixedLength", "length": 0}, {"type": "FixedLength", "length": 5},
)  # fmt: skip
DECODERS: tuple[dict[str, Any], ...] = (
    {"type": "ByteLevel"}, {"type": "WordPiece", "prefix": "", "cleanup": True}, {"type": "Fuse"},
    {"type": "WordPiece", "prefix": "##", "cleanup": False}, {"type": "BPEDecoder", "suffix": ""},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, {"type": "ByteFallback"},
    {"type": "CTC", "pad_token": "a", "word_delimiter_token": "", "cleanup": True},
    {"type": "Strip", "content": "a", "start": 10**9, "stop": 10**9}, {"type": "Sequence", "decoders": []},
    {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"},
    {"type": "Replace", "pattern": {"String": ""}, "content": "x" * 1000},
)  # fmt: skip
TEMPLATE: dict[str, Any] = {
    "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "B", "type_id": 1}}, {"Sequence": {"id": "A", "type_id": 7}}], "special_tokens": {},
}  # fmt: skip
POST_PROCESSORS: tuple[dict[str, Any], ...] = (
    TEMPLATE, {**TEMPLATE, "single": []}, {**TEMPLATE, "pair": []},
    {**TEMPLATE, "single": [{"Sequence": {"id": "A", "type_id": 4_000_000_000}}]},
    {**TEMPLATE, "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2},
    {**TEMPLATE, "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
     "special_tokens": {"x": {"id": "x", "ids": [0, 1, 2] * 50, "tokens": ["a", "b", "c"] * 50}}},
    {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 10**6]},
    {"type": "RobertaProcessing", "sep": ["x", 0], "cls": ["y", 0], "trim_offsets": True, "add_prefix_space": False},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    {"type": "Sequence", "processors": []},
)  # fmt: skip
MODEL_OPTIONS: dict[str, tuple[Any, ...]] = {
    "type": ("BPE", "WordPiece", "WordLevel", "Unigram", None, "Code"),
    "unk_token": (None, "", "nope", "[PAD]", 3), "unk_id": (None, 0, 3, -1, 10**6),
    "continuing_subword_prefix": (None, "", "##", "x" * 100), "end_of_word_suffix": (None, "", "</w>"),
    "max_input_chars_per_word": (0, 1, -1, 10**9, 1.5), "byte_fallback": (True, False), "fuse_unk": (True, False),
    "ignore_merges": (True, False), "dropout": (0.5, 1.0, -1, 2),
}  # fmt: skip


def mutate_tokenizer(content: dict[str, Any], rng: random.Random) -> str:
    """Change one thing of a parsed tokenizer.json; what was changed, in words."""
    kinds: list[Callable[[dict[str, Any], random.Random], str]] = [
        _structure, _vocabulary, _merges, _normalizer, _pre_tokenizer, _decoder, _post_processor, _added_token,
        _model_option,
    ]  # fmt: skip
    return pick(kinds, rng)(content, rng)


def _structure(content: dict[str, Any], rng: random.Random) -> str:
    if rng.random() < 0.3:
        key = pick(sorted(content), rng)
        del content[key]
        return f"{key} is gone"
    return replace_value(content, rng)


def _vocabulary(content: dict[str, Any], rng: random.Random) -> str:
    """A token of another name or number, one that is gone, or one more."""
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, list):
        return _pieces(vocabulary, rng)
    token, other = pick(sorted(vocabulary), rng), pick(TOKENS, rng)
    number = vocabulary[token]
    match pick(("renamed", "numbered", "gone", "new", "swapped"), rng):
        case "renamed":
            del vocabulary[token]
            vocabulary[other] = number
            return f"vocabulary: {token!r} renamed to {other!r:.40}"
        case "numbered":
            vocabulary[token] = pick(NUMBERS, rng)
            return f"vocabulary: {token!r} = {vocabulary[token]!r}"
        case "gone":
            del vocabulary[token]
            return f"vocabulary: {token!r} is gone"
        case "new":
            vocabulary[other] = pick((len(vocabulary), *NUMBERS), rng)
            return f"vocabulary: {other!r:.40} = {vocabulary[other]!r} is new"
        case _:
            second = pick(sorted(vocabulary), rng)
            vocabulary[token], vocabulary[second] = vocabulary[second], number
            return f"vocabulary: {token!r} and {second!r} swapped"


def _pieces(vocabulary: list[Any], rng: random.Random) -> str:
    """Of a unigram model: a list of pieces with their scores."""
    number = int(rng.random() * len(vocabulary))
    match pick(("renamed", "scored", "gone", "new", "malformed"), rng):
        case "renamed":
            vocabulary[number] = [pick(TOKENS, rng), vocabulary[number][1]]
        case "scored":
            vocabulary[number] = [vocabulary[number][0], pick(NUMBERS, rng)]
        case "gone":
            del vocabulary[number]
            return f"vocabulary: piece {number} is gone"
        case "new":
            vocabulary.append([pick(TOKENS, rng), -1.0])
            return f"vocabulary: {vocabulary[-1]!r:.60} is new"
        case _:
            vocabulary[number] = pick((None, [], ["a"], ["a", 1.0, 2], "a", {"a": 1}), rng)
    return f"vocabulary: piece {number} = {vocabulary[number]!r:.60}"


def _merges(content: dict[str, Any], rng: random.Random) -> str:
    merges = content["model"].get("merges")
    if not merges:
        return _vocabulary(content, rng)
    number = int(rng.random() * len(merges))
    match pick(("gone", "replaced", "repeated", "shuffled", "all gone"), rng):
        case "gone":
            del merges[number]
            return f"merges: {number} is gone"
        case "replaced":
            merges[number] = pick((["zz", "qq"], "a b", "ab", [], ["a"], ["a", "b", "c"], None, ["", ""], 3), rng)
            return f"merges: {number} = {merges[number]!r}"
        case "repeated":
            merges.append(merges[number])
            return f"merges: {number} repeated at the end"
        case "shuffled":
            rng.shuffle(merges)
            return "merges: shuffled"
        case _:
            merges.clear()
            return "merges: all gone"


def _step(
    content: dict[str, Any], part: str, inside: str, steps: tuple[dict[str, Any], ...], rng: random.Random
) -> str:
    """Another step in the place of a part of the pipeline, or after it."""
    step = dict(pick(steps, rng))
    old = content.get(part)
    content[part] = {"type": "Sequence", inside: [old, step]} if old and rng.random() < 0.5 else step
    return f"{part} = {content[part]!r:.120}"


def _normalizer(content: dict[str, Any], rng: random.Random) -> str:
    pattern = {"type": "Replace", "pattern": {"Regex": pick(PATTERNS, rng)}, "content": "x"}
    return _step(content, "normalizer", "normalizers", (*NORMALIZERS, pattern, pattern, pattern), rng)


def _pre_tokenizer(content: dict[str, Any], rng: random.Random) -> str:
    behavior = pick(("Isolated", "Removed", "MergedWithPrevious", "Contiguous", "Other"), rng)
    split = {"type": "Split", "pattern": {"Regex": pick(PATTERNS, rng)}, "behavior": behavior,
             "invert": rng.random() < 0.5}  # fmt: skip
    return _step(content, "pre_tokenizer", "pretokenizers", (*PRE_TOKENIZERS, split, split, split, split), rng)


def _decoder(content: dict[str, Any], rng: random.Random) -> str:
    return _step(content, "decoder", "decoders", DECODERS, rng)


def _post_processor(content: dict[str, Any], rng: random.Random) -> str:
    if isinstance(content.get("post_processor"), dict) and rng.random() < 0.5:
        return f"post_processor: {replace_value(content['post_processor'], rng)}"
    return _step(content, "post_processor", "processors", POST_PROCESSORS, rng)


def _added_token(content: dict[str, Any], rng: random.Random) -> str:
    """A special token that is gone, twice there, of another name or number, or with other flags."""
    added = content["added_tokens"]
    if not added:
        return _structure(content, rng)
    number = int(rng.random() * len(added))
    match pick(("gone", "repeated", "content", "id", "flag", "malformed"), rng):
        case "gone":
            return f"added_tokens: {added.pop(number)['content']!r} is gone"
        case "repeated":
            added.append({**added[number], "id": pick((added[number]["id"], len(added) + 500, *NUMBERS), rng)})
            return f"added_tokens: {added[-1]!r:.100} is new"
        case "content":
            added[number]["content"] = pick(TOKENS, rng)
        case "id":
            added[number]["id"] = pick(NUMBERS, rng)
        case "flag":
            flag = pick(("single_word", "lstrip", "rstrip", "normalized", "special"), rng)
            added[number][flag] = pick((not added[number][flag], None, 3), rng)
        case _:
            added[number] = pick((None, [], {}, "x", {"id": 3}), rng)
    return f"added_tokens: {number} = {added[number]!r:.160}"


def _model_option(content: dict[str, Any], rng: random.Random) -> str:
    name = pick(sorted(MODEL_OPTIONS), rng)
    content["model"][name] = pick(MODEL_OPTIONS[name], rng)
    return f"model.{name} = {content['model'][name]!r:.60}"
