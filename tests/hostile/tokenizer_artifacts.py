"""Tokenizers that lie: ids, patterns, steps and frames that are none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hostile.artifact_files import Artifact, file, large

ENTRY_POINTS = ("load_tokenizer",)


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
PLAIN: dict[str, Any] = {
    "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {w: n for n, w in enumerate(SPECIAL)}, "unk_token": "[UNK]"},
}  # fmt: skip
ADDED = {"content": "x", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def _split(pattern: str) -> dict[str, Any]:
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"pre_tokenizer": cut}


def _vocabulary(**extra_tokens: Any) -> dict[str, Any]:
    return {"model": {**PLAIN["model"], "vocab": {**PLAIN["model"]["vocab"], **extra_tokens}}}


def _frame(ids: list[int]) -> dict[str, Any]:
    special = {"x": {"id": "x", "ids": ids, "tokens": ["x"] * len(ids)}}
    single = [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 0}}]
    return {"post_processor": {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}}


def _normalisers(number: int) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * number}}


TOKENIZERS: dict[str, Callable[[], dict[str, Any]]] = {
    "with an id of 4 billion": lambda: _vocabulary(c=4_000_000_000),
    "with an id of 16 million": lambda: _vocabulary(c=16_000_000),
    "with a negative id": lambda: _vocabulary(c=-1),
    "with two tokens of one id": lambda: _vocabulary(c=5),
    "with added tokens of one id": lambda: {"added_tokens": [{**ADDED, "id": 7}, {**ADDED, "id": 7, "content": "y"}]},
    "whose pattern repeats a repetition": lambda: _split("(a+)+$"),
    "whose pattern repeats a choice": lambda: _split("(a|aa)+$"),
    "whose pattern is broken": lambda: _split("(("),
    "whose pattern has 100,000 letters": lambda: _split("a" * 100_000),
    "with 10,000 normalisers": lambda: _normalisers(10_000),
    "that frames with ids that are none": lambda: _frame([999]),
    "of an unknown kind": lambda: {"model": {"type": "Code", "vocab": {}}},
    "with an unknown normaliser": lambda: {"normalizer": {"type": "Exec", "command": "mkdir planted"}},
    "with a table that is broken": lambda: {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "without its unknown token": lambda: {"model": {**PLAIN["model"], "unk_token": "nope"}},
    "without a model": lambda: {"model": None},
    "of a list as a vocabulary": lambda: {"model": {**PLAIN["model"], "vocab": [1, 2]}},
}


def tokenizers() -> Iterator[Artifact]:
    """All of them."""
    for kind, changes in TOKENIZERS.items():
        content = _Late(changes)
        yield Artifact(name=f"a tokenizer.json {kind}", make=file("tokenizer.json", content), entry_points=ENTRY_POINTS,
                       message="tokenizer.json")  # fmt: skip
    for kind, text in {
        "with a token twice": "[UNK]\na\na\n",
        "with an empty line": "[UNK]\n\na\n",
        "without [UNK]": "a\nb\n",
    }.items():
        yield Artifact(
            name=f"a vocab.txt {kind}",
            make=file("vocab.txt", text.encode()),
            entry_points=ENTRY_POINTS,
            message="vocab.txt",
        )
    yield Artifact(name="a tokenizer.json with a million normalisers", make=file("tokenizer.json", _million),
                   entry_points=ENTRY_POINTS, message="tokenizer.json")  # fmt: skip
    yield Artifact(name="a vocab.txt of 200 MB", make=file("vocab.txt", lambda p: large(p, b"", b"a\n", 200 << 20)),
                   entry_points=ENTRY_POINTS, message="vocab.txt")  # fmt: skip


def _million(path: Path) -> None:
    steps = '{"type": "NFC"},' * 1_000_000
    path.write_text(json.dumps(PLAIN).replace('"normalizer": null', f'"normalizer": {{"normalizers": [{steps[:-1]}]}}'))


class _Late:
    """A tokenizer that is written only when it is wanted."""

    def __init__(self, changes: Callable[[], dict[str, Any]]) -> None:
        self.changes = changes

    def __call__(self, path: Path) -> None:
        path.write_text(json.dumps({**PLAIN, **self.changes()}))
