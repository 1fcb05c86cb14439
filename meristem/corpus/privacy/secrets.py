"""API keys and secrets: strings with known prefixes, private key blocks, and values of names such as api_key."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

# Unambiguous prefixes, and the minimum number of characters after each.
KEY_SHAPES = {
    **dict.fromkeys(("AKIA", "ASIA", "AROA", "AIDA"), r"[A-Z0-9]{16}"),
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\w{36,255}"),
    "github_pat_": r"\w{40,255}",
    "glpat-": r"[\w\-]{20,64}",
    **dict.fromkeys(("xoxb-", "xoxp-", "xoxa-", "xoxs-"), r"[\w\-]{20,250}"),
    "AIza": r"[\w\-]{35}",
    **dict.fromkeys(("sk_live_", "sk_test_", "rk_live_", "pk_live_"), r"\w{16,250}"),
    "sk-": r"[\w\-]{32,250}",
    "hf_": r"[A-Za-z0-9]{30,64}",
    "npm_": r"[A-Za-z0-9]{36}",
    "SG.": r"[\w\-]{16,32}\.[\w\-]{32,64}",
    "ya29.": r"[\w\-]{30,250}",
    "dop_v1_": r"[0-9a-f]{64}",
    "eyJ": r"[\w\-]{10,2000}\.eyJ[\w\-]{10,4000}\.[\w\-]{10,2000}",
}
KEY_PATTERNS = {
    prefix: re.compile(rf"{re.escape(prefix)}(?<![\w\-.]{re.escape(prefix)}){rest}(?![\w\-])", re.ASCII)
    for prefix, rest in KEY_SHAPES.items()
}

KEY_BLOCK_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
KEY_BLOCK_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")

ASSIGNED_VALUE = re.compile(r"""[=:>][ \t]{0,3}["'`]?(?P<value>[^\s"'`<>,;(){}\[\]]{8,400})""")
SECRET_NAME = re.compile(
    r"""(?:(?:api|access|secret|account|private|encryption|signing|auth)[_\- ]?key(?:[_\- ]?id)?|secret|token"""
    r"""|password|passwort|passwd|pwd|credential|密码|密钥)s?["'`]?[ \t]{0,3}[:=]?$""",
    re.IGNORECASE,
)
BEARER_TOKEN = re.compile(r"(?:Bearer|bearer|BEARER) {1,2}([\w.~+/\-]{16,400}=*)", re.ASCII)
MAX_SECRET_NAME = 28
URL_PASSWORD = re.compile(r"://[^\s/:@]{1,64}:([^\s/:@<]{3,128})@", re.IGNORECASE | re.ASCII)


def find_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Spans of known key formats, private key blocks, named secrets, and passwords in URLs."""
    for prefix, key_pattern in KEY_PATTERNS.items():
        if prefix in text:
            for match in key_pattern.finditer(text):
                yield match.span()
    if "PRIVATE KEY" in text:
        yield from _find_key_blocks(text)
    for match in ASSIGNED_VALUE.finditer(text):
        before = text[max(0, match.start() - MAX_SECRET_NAME) : match.start()]
        if looks_random(match["value"]) and SECRET_NAME.search(before):
            yield match.span("value")
    for pattern in (BEARER_TOKEN, URL_PASSWORD):
        for match in pattern.finditer(text):
            if pattern is URL_PASSWORD or looks_random(match[1]):
                yield match.span(1)


def looks_random(value: str) -> bool:
    """Whether a string looks random: digits among letters, and nearly all characters different."""
    stripped = value.rstrip(".:!?=")
    kinds = (any(map(str.isdigit, stripped)), any(map(str.islower, stripped)), any(map(str.isupper, stripped)))
    if sum(kinds) < 2 or len(stripped) < 8 or "://" in stripped:
        return False
    if len(stripped) < 16:
        return sum(kinds) == 3 or not stripped.isalnum()
    return kinds[0] and character_entropy(stripped) >= min(3.0, 0.75 * math.log2(len(stripped)))


def character_entropy(value: str) -> float:
    """Entropy in bits per character, from the string's own character counts."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())


def _find_key_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Spans from each BEGIN line of a key to the next END line; without one, no further block is possible."""
    position = 0
    while (begin := KEY_BLOCK_BEGIN.search(text, position)) and (end := KEY_BLOCK_END.search(text, begin.end())):
        yield begin.start(), end.end()
        position = end.end()
