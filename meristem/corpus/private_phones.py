"""Telephone numbers: international, North American, British, German and other European, Chinese.

Dates, prices, book numbers, versions and years have other shapes; a bare row of digits counts only behind a word
such as "phone" or "电话".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Nothing that makes the digits part of something longer: a word, a price, a decimal, a path.
LEFT = r"(?<![0-9A-Za-z_$€£¥#+\-–/=])(?<!\d[.,:])"
RIGHT = r"(?![0-9A-Za-z_%€£°@]|[.,:\-–/]\d)"
GAP = r"[ .\-–/\u00a0]"

INTERNATIONAL = re.compile(rf"{LEFT}\(?(?:\+|＋|00(?=[ \-]?[1-9]))(?:[ .\-–/()\u00a0]{{0,3}}\d){{7,16}}{RIGHT}")
AMERICAN = re.compile(
    rf"{LEFT}(?:1[ .\-])?(?:\([2-9]\d\d\)[ \-]{{0,2}}|[2-9]\d\d[ .\-–])[2-9]\d\d[ .\-–]?\d{{4}}"
    rf"(?: ?(?:x|ext\.?) ?\d{{1,5}})?{RIGHT}"
)
EUROPEAN = re.compile(
    rf"{LEFT}(?:\(0 ?[1-9]\d{{1,4}}\)[ /\-–]{{0,3}}|0[1-9]\d{{1,4}}[ /\-–]{{1,3}})"
    rf"\d{{2,8}}(?:[ \-–/]\d{{2,8}}){{0,4}}{RIGHT}"
)
PAIRS = re.compile(rf"{LEFT}0[1-9](?:[ .\-]\d\d){{4}}{RIGHT}")
MOBILE = re.compile(rf"{LEFT}(?:07\d{{9}}|01[5-7]\d{{8,9}}){RIGHT}")
CHINESE = re.compile(
    rf"{LEFT}(?:(?:86[ \-]?)?1[3-9]\d(?:[ \-]?\d{{4}}){{2}}|[48]00[ \-]\d{{3}}[ \-]\d{{4}}"
    rf"|(?:[(（]0\d{{2,3}}[)）] ?|0(?:10|2\d|[3-9]\d\d)[ \-–])\d{{3,4}}[ \-]?\d{{4}}(?:-\d{{1,6}})?){RIGHT}"
)

CUED = re.compile(
    r"(?:(?<![<\w])(?:tele(?:ph|f)on[eo]?|téléphone|teléfono|tel|phone|ph|fax|mobile|mobil|mob|cell|handy|whatsapp"
    r"|hotline|call(?: (?:me|us|him|her))?(?: at| on)?|ring|text|dial)|电话|電話|手机|手機|传真|热线|联系方式)"
    r"(?:[ .]{0,2}(?:number|nummer|no|nr|号码|号|is on|is))?[ .:：=()（\-]{0,4}"
    rf"(?P<number>(?<![0-9A-Za-z_])\d(?:{GAP}{{0,2}}[()]?\d){{6,14}}){RIGHT}",
    re.IGNORECASE,
)
HINT = re.compile(r"[tpfmchwrdTPFMCHWRD电電手传热联]")
"""Letters every such word begins with: what has none of them need not be looked through."""
DATE = re.compile(r"(?:\d{1,2}[./\- ]\d{1,2}[./\- ]\d{4}|\d{4}[./\- ]\d{1,2}[./\- ]\d{1,2})(?!\d)")


def phones(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Telephone numbers in a stretch of a text, as far as their shape or the word before them tells."""
    for pattern, fewest, most in (
        (INTERNATIONAL, 8, 16),
        (AMERICAN, 10, 16),
        (EUROPEAN, 10, 12),
        (PAIRS, 10, 10),
        (MOBILE, 11, 12),
        (CHINESE, 10, 18),
    ):
        for match in pattern.finditer(text, start, stop):
            if fewest <= _digits(match[0]) <= most and not _is_bare_zeros(match[0]):
                yield match.span()
    for match in CUED.finditer(text, start, stop) if HINT.search(text, start, stop) else ():
        if not DATE.match(match["number"]):
            yield match.span("number")


def _digits(written: str) -> int:
    return sum(map(str.isdigit, written))


def _is_bare_zeros(written: str) -> bool:
    """A number such as 00451234567 is as likely an order's as a telephone's: it needs a gap to be taken for one."""
    return written.startswith("00") and written.isdigit()
