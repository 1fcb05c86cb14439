"""Character maps of SentencePiece, as llama.cpp normalizes the text of Unigram tokenizers: NFKC and single spaces."""

from __future__ import annotations

import sys
import tempfile
import unicodedata
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from meristem.config.errors import MeristemError

SURROGATES = range(0xD800, 0xE000)
SAMPLE = "a b c d e f g h i j"


@cache
def build_charsmap(*, lowercase: bool) -> bytes:
    """The compiled map of every character, and every pair with a combining mark, that NFKC or lower case changes."""
    sentencepiece = _sentencepiece()
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.tsv")
        rules.write_text(_rules(lowercase=lowercase), encoding="utf-8")
        prefix = str(Path(folder, "model"))
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([SAMPLE] * 4),
            model_prefix=prefix,
            vocab_size=16,
            hard_vocab_limit=False,
            normalization_rule_tsv=str(rules),
            minloglevel=3,
        )
        messages = import_module("sentencepiece.sentencepiece_model_pb2")
        model = messages.ModelProto()
        model.ParseFromString(Path(f"{prefix}.model").read_bytes())
        return bytes(model.normalizer_spec.precompiled_charsmap)


def _rules(*, lowercase: bool) -> str:
    """SentencePiece's rule file: the code points of a text and of its replacement, in hexadecimal."""
    rules: dict[str, str] = {}
    for code in range(1, sys.maxunicode + 1):
        if code in SURROGATES:
            continue
        character = chr(code)
        for source in (character, unicodedata.normalize("NFD", character)):
            target = unicodedata.normalize("NFKC", source)
            target = target.lower() if lowercase else target
            target = " " if source.isspace() and len(source) == 1 else target
            if target != source:
                rules[source] = target
    return "".join(f"{_hex(source)}\t{_hex(target)}\n" for source, target in sorted(rules.items()))


def _hex(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise MeristemError(
            'a Unigram tokenizer in GGUF needs sentencepiece: pip install "meristem-lm[export]"'
        ) from None
    return sentencepiece
