"""Shared fixtures of the interop tests: no network, varied lines of text, and a check for warnings."""

from __future__ import annotations

import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from transformers.utils import logging as their_logging

sys.path.append(str(Path(__file__).parent))  # transformers_models.py beside the tests can be imported

ENGLISH = ["the", "old", "gardener", "planted", "apple", "trees", "beside", "Harbour", "couldn't", "it's", "watching"]
SIMPLIFIED = "老园丁种下了苹果树妹妹记得冬天的收成我们找不到十七条船汉语"
TRADITIONAL = "老園丁種下了蘋果樹妹妹記得冬天的收穫我們找不到十七條船漢語龍龜"
RIGHT_TO_LEFT = ["שלום", "עולם", "مرحبا", "بالعالم", "كتاب", "ספר"]
ACCENTED = ["café", "naïve", "Ångström", "İstanbul", "ΣΑΣ", "straße", "Łódź", "e\u0301te\u0301", "a\u0308\u0323"]
EMOJI = ["😀", "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽", "❤\ufe0f", "🏳\ufe0f\u200d🌈", "✨"]
HIDDEN = ["\x00", "\x07", "\x1b", "\x7f", "\x85", "\u200b", "\u200e", "\ufeff", "\u2028", "\u00ad", "\ufffd", "\u2060"]
SPACES = ["\t", "  ", "   ", "\u00a0", "\u3000", "\u2003", "\r\n", "\n", "\n\n"]
CODE = ["def f(x):", "return x+1;", "a[i] += b[j]", "{'k': 1}", "x!=y", "#include", "foo_bar", "\\n", "0xFF", "//--//"]
SIGNS = ["①②", "½", "ﷺ", "ﬁ", "…", "—", "「」", "！", "，", "$3.50", "10%", "@you", "§", "°C", "'s", "``", "''", "'"]


def _line(rng: random.Random) -> str:
    """A line of a few words of any of these, put together with spaces, strange spaces, or nothing."""
    words = [
        lambda: rng.choice(ENGLISH),
        lambda: rng.choice(ENGLISH).capitalize(),
        lambda: "".join(rng.choices(SIMPLIFIED, k=rng.randint(1, 6))),
        lambda: "".join(rng.choices(TRADITIONAL, k=rng.randint(1, 6))),
        lambda: rng.choice(RIGHT_TO_LEFT),
        lambda: rng.choice(ACCENTED),
        lambda: rng.choice(EMOJI),
        lambda: str(rng.randint(0, 10 ** rng.randint(1, 12))),
        lambda: f"{rng.random():.3f}",
        lambda: rng.choice(CODE),
        lambda: rng.choice(SIGNS),
        lambda: rng.choice(HIDDEN),
        lambda: chr(rng.randint(*rng.choice([(0x21, 0x2FFF), (0x3041, 0xD7FF), (0x1F300, 0x1FAFF)]))),
    ]
    out = []
    for _ in range(rng.randint(1, 14)):
        kind = rng.choice(words) if rng.random() < 0.6 else words[0]
        out += [kind(), rng.choice([" ", " ", " ", "", rng.choice(SPACES)])]
    return "".join(out)


@pytest.fixture(scope="session")
def varied_lines() -> list[str]:
    """2,000 lines that no two careless tokenizers would cut alike; written special tokens are not among them."""
    rng = random.Random(4)
    return ["", " ", "x" * 300, *(_line(rng) for _ in range(1997))]


@contextmanager
def _silence() -> Iterator[None]:
    warning_messages: list[str] = []
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: warning_messages.append(record.getMessage())  # type: ignore[method-assign]
    their_logging.warning_once.cache_clear()  # what was said once before is to be heard again
    sources = [logging.getLogger(name) for name in ("transformers", "huggingface_hub", "torch")]
    for source in sources:
        source.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
    finally:
        for source in sources:
            source.removeHandler(listener)
    loud = [str(warning.message) for warning in warned if not issubclass(warning.category, DeprecationWarning)]
    assert warning_messages + loud == []


@pytest.fixture
def no_warnings() -> Callable[[], AbstractContextManager[None]]:
    """Fails where transformers warns of anything while it is open."""
    return _silence
