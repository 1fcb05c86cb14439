"""Phone numbers: international, North American, British, German and other European, Chinese.

Dates, prices, ISBNs, versions and years have other patterns; ungrouped digits count only after a word such as "phone"
or "电话".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Not within something longer: a word, a price, a decimal, a path.
NUMBER_START = r"(?<![0-9A-Za-z_$€£¥#+\-–/=])(?<!\d[.,:])"
NUMBER_END = r"(?![0-9A-Za-z_%€£°@]|[.,:\-–/]\d)"
DIGIT_GAP = r"[ .\-–/\u00a0]"

INTERNATIONAL = re.compile(
    rf"{NUMBER_START}\(?(?:\+|＋|00(?=[ \-]?[1-9]))(?:[ .\-–/()\u00a0]{{0,3}}\d){{7,16}}{NUMBER_END}"
)
AMERICAN = re.compile(
    rf"{NUMBER_START}(?:1[ .\-])?(?:\([2-9]\d\d\)[ \-]{{0,2}}|[2-9]\d\d[ .\-–])[2-9]\d\d[ .\-–]?\d{{4}}"
    rf"(?: ?(?:x|ext\.?) ?\d{{1,5}})?{NUMBER_END}"
)
EUROPEAN = re.compile(
    rf"{NUMBER_START}(?:\(0 ?[1-9]\d{{1,4}}\)[ /\-–]{{0,3}}|0[1-9]\d{{1,4}}[ /\-–]{{1,3}})"
    rf"\d{{2,8}}(?:[ \-–/]\d{{2,8}}){{0,4}}{NUMBER_END}"
)
FRENCH = re.compile(rf"{NUMBER_START}0[1-9](?:[ .\-]\d\d){{4}}{NUMBER_END}")
MOBILE = re.compile(rf"{NUMBER_START}(?:07\d{{9}}|01[5-7]\d{{8,9}}){NUMBER_END}")
CHINESE = re.compile(
    rf"{NUMBER_START}(?:(?:86[ \-]?)?1[3-9]\d(?:[ \-]?\d{{4}}){{2}}|[48]00[ \-]\d{{3}}[ \-]\d{{4}}"
    rf"|(?:[(（]0\d{{2,3}}[)）] ?|0(?:10|2\d|[3-9]\d\d)[ \-–])\d{{3,4}}[ \-]?\d{{4}}(?:-\d{{1,6}})?){NUMBER_END}"
)

AFTER_PHONE_WORD = re.compile(
    r"(?:(?<![<\w])(?:tele(?:ph|f)on[eo]?|téléphone|teléfono|tel|phone|ph|fax|mobile|mobil|mob|cell|handy|whatsapp"
    r"|hotline|call(?: (?:me|us|him|her))?(?: at| on)?|ring|text|dial)|电话|電話|手机|手機|传真|热线|联系方式)"
    r"(?:[ .]{0,2}(?:number|nummer|no|nr|号码|号|is on|is))?[ .:：=()（\-]{0,4}"
    rf"(?P<number>(?<![0-9A-Za-z_])\d(?:{DIGIT_GAP}{{0,2}}[()]?\d){{6,14}}){NUMBER_END}",
    re.IGNORECASE,
)
PHONE_WORD_LETTER = re.compile(r"[tpfmchwrdTPFMCHWRD电電手传热联]")
"""First letters of those words: text without any of them need not be searched."""
DATE = re.compile(r"(?:\d{1,2}[./\- ]\d{1,2}[./\- ]\d{4}|\d{4}[./\- ]\d{1,2}[./\- ]\d{1,2})(?!\d)")


def find_phone_numbers(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Spans of phone numbers in a range of a text, recognised by their pattern or the word before them."""
    for pattern, min_digits, max_digits in (
        (INTERNATIONAL, 8, 16),
        (AMERICAN, 10, 16),
        (EUROPEAN, 10, 12),
        (FRENCH, 10, 10),
        (MOBILE, 11, 12),
        (CHINESE, 10, 18),
    ):
        for match in pattern.finditer(text, start, stop):
            if min_digits <= _count_digits(match[0]) <= max_digits and not _is_bare_zeros(match[0]):
                yield match.span()
    for match in AFTER_PHONE_WORD.finditer(text, start, stop) if PHONE_WORD_LETTER.search(text, start, stop) else ():
        if not DATE.match(match["number"]):
            yield match.span("number")


def _count_digits(candidate: str) -> int:
    return sum(map(str.isdigit, candidate))


def _is_bare_zeros(candidate: str) -> bool:
    """A number such as 00451234567 may as well be an order number: it needs a separator to count as a phone number."""
    return candidate.startswith("00") and candidate.isdigit()
