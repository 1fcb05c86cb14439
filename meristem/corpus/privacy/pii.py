"""PII: replaces e-mail addresses, phone, card, identity and account numbers, IP addresses and secrets by placeholders.

Every rule takes time linear in the text: patterns never backtrack over the same characters (`*+`, bounded repeats).
"""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator

from meristem.corpus.document import CleaningStep, Document
from meristem.corpus.privacy.id_numbers import find_cards, find_ibans, find_identity_numbers
from meristem.corpus.privacy.phone_numbers import find_phone_numbers
from meristem.corpus.privacy.secrets import find_secrets

PIIKind = Literal["e-mail", "phone", "card", "identity", "account", "ip", "key"]

PLACEHOLDERS: dict[PIIKind, str] = {
    "key": "<key>",
    "e-mail": "<email>",
    "account": "<account>",
    "card": "<card>",
    "identity": "<identity>",
    "ip": "<ip>",
    "phone": "<phone>",
}
"""The placeholder of each kind; if matches of two kinds overlap, the first in this list wins."""

MAX_ROUNDS = 8
"""Maximum number of passes over a text: a replacement may reveal a match beside it."""


def _expand_kinds(value: Any) -> Any:
    """`true` means every kind, `false` none, a string one kind."""
    if value is None or isinstance(value, bool):
        return tuple(PLACEHOLDERS) if value else ()
    return (value,) if isinstance(value, str) else value


PIIKinds = Annotated[
    tuple[PIIKind, ...], BeforeValidator(_expand_kinds, json_schema_input_type=tuple[PIIKind, ...] | PIIKind | bool)
]

EMAIL_CHARS = "0-9A-Za-zÀ-ɏ_"  # not \w: an address may follow an ideograph without a space
EMAIL_END = rf"(?![{EMAIL_CHARS}@]|-[{EMAIL_CHARS}])"
# Each pattern begins with a rare character, which makes the search ten times as fast.
EMAIL_DOMAIN = re.compile(rf"@(?:[{EMAIL_CHARS}\-]{{1,63}}\.){{1,8}}([A-Za-z]{{2,24}}){EMAIL_END}")
EMAIL_DOT = r"(?:\.| ?[\[({] ?(?:dot|DOT|punkt|Punkt) ?[\])}] ?)"
SPELLED_OUT_EMAIL = re.compile(
    rf"[\[({{] ?(?:at|AT|ät|@) ?[\])}}] ?(?:[{EMAIL_CHARS}\-]{{1,63}}{EMAIL_DOT}){{1,8}}([A-Za-z]{{2,24}}){EMAIL_END}"
)
MAX_EMAIL_NAME = 64
EMAIL_NAME = re.compile(rf"[{EMAIL_CHARS}.%+\-]{{1,{MAX_EMAIL_NAME + 1}}}")
FILE_EXTENSIONS = frozenset(("png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "css", "js", "ts", "mp4", "pdf"))

IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?![\w\-]|\.\d)", re.ASCII)
IPV6 = re.compile(r"[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2,34}(?![\w:])", re.ASCII)
VERSION_PREFIX = re.compile(r"(?:\bv|version|ver\.|release|build|firmware|chapter|section|§)\.? ?$", re.IGNORECASE)
MAX_VERSION_NUMBER = 32
"""Four numbers below this are a version or a section; a random IP address has a probability of 1 in 4,000 for that."""

DIGIT_RUN = re.compile(r"\d(?:[^\d\n]{0,3}\d){5,}+")
"""Six or more digits close together: no card, identity, account or phone number has fewer."""
CONTEXT_BEFORE, CONTEXT_AFTER = 40, 8
"""Characters around them that may belong to the number or determine its kind."""


class PIIMatch(NamedTuple):
    """A span of personal data and its kind."""

    kind: PIIKind
    start: int
    stop: int


def find_pii(text: str, kinds: Sequence[PIIKind] = tuple(PLACEHOLDERS)) -> list[PIIMatch]:
    """The personal data of a text, in order, without overlaps."""
    text_finders = {"key": find_secrets, "e-mail": find_emails, "ip": find_ip_addresses}
    number_finders = {
        "account": find_ibans,
        "card": find_cards,
        "identity": find_identity_numbers,
        "phone": find_phone_numbers,
    }
    number_kinds = number_finders.keys() & set(kinds)
    digit_spans = list(_digit_spans(text)) if number_kinds else []
    accepted: list[PIIMatch] = []
    for kind in PLACEHOLDERS:
        if kind not in kinds:
            continue
        if kind in text_finders:
            spans = list(text_finders[kind](text))
        else:
            spans = [span for start, stop in digit_spans for span in number_finders[kind](text, start, stop)]
        accepted = _merge_matches(accepted, [PIIMatch(kind, *span) for span in spans]) if spans else accepted
    return accepted


def _digit_spans(text: str) -> Iterator[tuple[int, int]]:
    """The spans of a text with many digits, with some context, without overlaps."""
    begin = end = 0
    for match in DIGIT_RUN.finditer(text):
        start, stop = max(0, match.start() - CONTEXT_BEFORE), match.end() + CONTEXT_AFTER
        if start > end:
            if end:
                yield begin, end
            begin = start
        end = stop
    if end:
        yield begin, end


def _merge_matches(accepted: list[PIIMatch], candidates: list[PIIMatch]) -> list[PIIMatch]:
    """Both lists merged in order; candidates that overlap an accepted or an earlier one are left out."""
    starts = [match.start for match in accepted]
    added: list[PIIMatch] = []
    for match in sorted(candidates, key=lambda match: (match.start, -match.stop)):
        index = bisect(starts, match.start)
        starts_after_others = (index == 0 or accepted[index - 1].stop <= match.start) and (
            not added or added[-1].stop <= match.start
        )
        if starts_after_others and (index == len(accepted) or match.stop <= accepted[index].start):
            added.append(match)
    return sorted(accepted + added, key=lambda match: match.start)


def pii_step(kinds: Sequence[PIIKind]) -> CleaningStep:
    """A step that replaces personal data of these kinds by placeholders."""

    def replace_private(document: Document) -> Document:
        text, counts = document.text, Counter[str]()
        for _ in range(MAX_ROUNDS):
            matches = find_pii(text, kinds)
            if not matches:
                break
            counts.update(match.kind for match in matches)
            text = _replace_matches(text, matches)
        if not counts:
            return document
        return replace(document, text=text, notes=(*document.notes, *sorted(counts.items())))

    return replace_private


def _replace_matches(text: str, matches: Sequence[PIIMatch]) -> str:
    parts: list[str] = []
    position = 0
    for kind, start, stop in matches:
        parts += (text[position:start], PLACEHOLDERS[kind])
        position = stop
    return "".join((*parts, text[position:]))


def find_emails(text: str) -> Iterator[tuple[int, int]]:
    """Spans of e-mail addresses, also spelled-out ones: ada (at) example (dot) org."""
    for match in (*EMAIL_DOMAIN.finditer(text), *SPELLED_OUT_EMAIL.finditer(text)):
        name_end = match.start() - (text[match.start()] != "@" and text[match.start() - 1 : match.start()] == " ")
        name = EMAIL_NAME.match(text[max(0, name_end - MAX_EMAIL_NAME - 1) : name_end][::-1])
        is_command = name is not None and name[0] == "tig" and text[match.end() : match.end() + 1] == ":"
        if name and len(name[0]) <= MAX_EMAIL_NAME and match[1].lower() not in FILE_EXTENSIONS and not is_command:
            yield name_end - len(name[0]), match.end()


def find_ip_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Spans of public IP addresses; not private or documentation ranges, versions and section numbers."""
    for match in IPV4.finditer(text):
        before = text[max(0, match.start() - 12) : match.start()]
        if _is_public(match[0]) and not _continues_word(before) and not VERSION_PREFIX.search(before):
            yield match.span()
    for match in IPV6.finditer(text) if ":" in text else ():
        address_text = match[0].rstrip(":")
        if _is_public(address_text) and not _continues_word(text[max(0, match.start() - 1) : match.start()]):
            yield match.start(), match.start() + len(address_text)


def _continues_word(before: str) -> bool:
    """Whether what follows these characters continues a word or a number."""
    return before[-1:].isascii() and (before[-1:].isalnum() or before[-1:] in ("_", ".", "-"))


def _is_public(address_text: str) -> bool:
    try:
        address = ipaddress.ip_address(address_text)
    except ValueError:
        return False
    is_version = address.version == 4 and all(int(part) < MAX_VERSION_NUMBER for part in address_text.split("."))
    return address.is_global and not address.is_multicast and not is_version
