"""Fixtures: a small bilingual corpus, and a trained tokenizer of each kind."""

import itertools

import pytest

from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

KINDS = ["wordpiece", "bpe", "unigram", "characters", "words"]

_who = ["The old gardener", "A careful sailor", "My youngest sister", "Nobody else", "The café owner"]
_what = ["planted", "watered", "remembered", "couldn't find", "was painting", "sold"]
_object = ["the apple tree", "seventeen boats", "a small garden", "her sister's letters", "the winter harvest"]
_谁 = ["老园丁", "水手", "我的妹妹", "没有人"]
_做 = ["种下了", "记得", "找不到", "正在画"]
_物 = ["苹果树", "十七条船", "一座小花园", "冬天的收成"]

ENGLISH = [f"{subject} {verb} {thing}. " for subject, verb, thing in itertools.product(_who, _what, _object)]
CHINESE = [f"{谁}{做}{物}。" for 谁, 做, 物 in itertools.product(_谁, _做, _物)]
CORPUS = ["".join(ENGLISH[start : start + 10]) for start in range(0, len(ENGLISH), 10)] + [
    "".join(CHINESE[start : start + 8]) for start in range(0, len(CHINESE), 8)
]

ODD = [
    "",
    " ",
    "\n\n",
    "  two  spaces ",
    "line\r\nbreak\ttab",
    "a\x1cb \x1c  c\x1f!\x1c",
    "\x00nul\x00 \x07bell",
    "ideographic\u3000space\x85next\xa0no-break\u2003 wide",
    "e\u0301 \u0301 combining é",
    "😀 👩‍👩‍👧 🇩🇪",
    "x" * 3000,
    "老园丁planted苹果树, 17 boats！",
    "don't 'tis sister's 's",
    "①② ½ ¨a ﷺ",
    "İstanbul ΣΑΣ",
    "[SEP][MASK] <s></s> <|endoftext|>",
]


@pytest.fixture(scope="session")
def trained() -> dict[str, Tokenizer]:
    """One tokenizer of each kind."""
    return {
        kind: train_tokenizer(TokenizerSettings.model_validate({"kind": kind, "vocab_size": 400}), CORPUS)
        for kind in KINDS
    }


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, trained: dict[str, Tokenizer]) -> Tokenizer:
    """Each kind in turn."""
    return trained[request.param]


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    """What they were trained on."""
    return CORPUS


@pytest.fixture(scope="session")
def unusual_texts() -> list[str]:
    """Texts that break careless code."""
    return ODD
