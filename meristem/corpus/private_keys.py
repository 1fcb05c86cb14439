"""Keys and secrets: strings of known shape, private key blocks, and what a name such as api_key is set to."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

# A prefix that cannot be anything else, and the fewest characters that may follow it.
SHAPES = {
    "AKIA": r"[A-Z0-9]{16}",
    "ASIA": r"[A-Z0-9]{16}",
    "AROA": r"[A-Z0-9]{16}",
    "AIDA": r"[A-Z0-9]{16}",
    "ghp_": r"\w{36,255}",
    "gho_": r"\w{36,255}",
    "ghu_": r"\w{36,255}",
    "ghs_": r"\w{36,255}",
    "ghr_": r"\w{36,255}",
    "github_pat_": r"\w{40,255}",
    "glpat-": r"[\w\-]{20,64}",
    "xoxb-": r"[\w\-]{20,250}",
    "xoxp-": r"[\w\-]{20,250}",
    "xoxa-": r"[\w\-]{20,250}",
    "xoxs-": r"[\w\-]{20,250}",
    "AIza": r"[\w\-]{35}",
    "sk_live_": r"\w{16,250}",
    "sk_test_": r"\w{16,250}",
    "rk_live_": r"\w{16,250}",
    "pk_live_": r"\w{16,250}",
    "sk-": r"[\w\-]{32,250}",
    "hf_": r"[A-Za-z0-9]{30,64}",
    "npm_": r"[A-Za-z0-9]{36}",
    "SG.": r"[\w\-]{16,32}\.[\w\-]{32,64}",
    "ya29.": r"[\w\-]{30,250}",
    "dop_v1_": r"[0-9a-f]{64}",
    "eyJ": r"[\w\-]{10,2000}\.eyJ[\w\-]{10,4000}\.[\w\-]{10,2000}",
}
SHAPED = {
    prefix: re.compile(rf"{re.escape(prefix)}(?<![\w\-.]{re.escape(prefix)}){rest}(?![\w\-])", re.ASCII)
    for prefix, rest in SHAPES.items()
}

BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")

VALUE = re.compile(r"""[=:>][ \t]{0,3}["'`]?(?P<value>[^\s"'`<>,;(){}\[\]]{8,400})""")
NAME = re.compile(
    r"""(?:(?:api|access|secret|account|private|encryption|signing|auth)[_\- ]?key(?:[_\- ]?id)?|secret|token"""
    r"""|password|passwort|passwd|pwd|credential|密码|密钥)s?["'`]?[ \t]{0,3}[:=]?$""",
    re.IGNORECASE,
)
BEARER = re.compile(r"(?:Bearer|bearer|BEARER) {1,2}([\w.~+/\-]{16,400}=*)", re.ASCII)
LONGEST_NAME = 28
LOGIN = re.compile(r"://[^\s/:@]{1,64}:([^\s/:@<]{3,128})@", re.IGNORECASE | re.ASCII)


def keys(text: str) -> Iterator[tuple[int, int]]:
    """Keys of known shape, private key blocks, named secrets and passwords in addresses."""
    for prefix, shape in SHAPED.items():
        if prefix in text:
            for match in shape.finditer(text):
                yield match.span()
    if "PRIVATE KEY" in text:
        yield from _blocks(text)
    for match in VALUE.finditer(text):
        before = text[max(0, match.start() - LONGEST_NAME) : match.start()]
        if looks_random(match["value"]) and NAME.search(before):
            yield match.span("value")
    for pattern in (BEARER, LOGIN):
        for match in pattern.finditer(text):
            if pattern is LOGIN or looks_random(match[1]):
                yield match.span(1)


def looks_random(value: str) -> bool:
    """Whether a string was drawn rather than written: digits among letters, and nearly every character another one."""
    bare = value.rstrip(".:!?=")
    kinds = (any(map(str.isdigit, bare)), any(map(str.islower, bare)), any(map(str.isupper, bare)))
    if sum(kinds) < 2 or len(bare) < 8 or "://" in bare:
        return False
    if len(bare) < 16:
        return sum(kinds) == 3 or not bare.isalnum()
    return kinds[0] and entropy(bare) >= min(3.0, 0.75 * math.log2(len(bare)))


def entropy(value: str) -> float:
    """Bits a character, as its own counts have it."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """From each first line of a key to the next last line; without one, nothing further can be a block."""
    at = 0
    while (begin := BEGIN.search(text, at)) and (end := END.search(text, begin.end())):
        yield begin.start(), end.end()
        at = end.end()
