"""Private strings: e-mail addresses, telephone, card and identity numbers, accounts, addresses and keys are replaced.

Every rule runs in time linear in the text: patterns never try the same characters twice (`*+`, bounded repeats).
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

from meristem.corpus.document import Document, Step
from meristem.corpus.private_keys import keys
from meristem.corpus.private_numbers import accounts, cards, identities
from meristem.corpus.private_phones import phones

Kind = Literal["e-mail", "phone", "card", "identity", "account", "ip", "key"]

MARKS: dict[Kind, str] = {
    "key": "<key>",
    "e-mail": "<email>",
    "account": "<account>",
    "card": "<card>",
    "identity": "<identity>",
    "ip": "<ip>",
    "phone": "<phone>",
}
"""What stands in place of each kind; where two kinds claim the same characters, the first of this list has them."""

ROUNDS = 8
"""How often a text is looked through while something is found: a replacement may lay bare what stood beside it."""


def _kinds(value: Any) -> Any:
    """`true` stands for every kind, `false` for none, a word for itself."""
    if value is None or isinstance(value, bool):
        return tuple(MARKS) if value else ()
    return (value,) if isinstance(value, str) else value


Kinds = Annotated[tuple[Kind, ...], BeforeValidator(_kinds, json_schema_input_type=tuple[Kind, ...] | Kind | bool)]

LETTER = "0-9A-Za-zÀ-ɏ_"  # not \w: an address may follow an ideograph without a space
ENDS = rf"(?![{LETTER}@]|-[{LETTER}])"
# Each pattern begins with a rare character, which is looked for ten times as fast as anything else.
DOMAIN = re.compile(rf"@(?:[{LETTER}\-]{{1,63}}\.){{1,8}}([A-Za-z]{{2,24}}){ENDS}")
DOT = r"(?:\.| ?[\[({] ?(?:dot|DOT|punkt|Punkt) ?[\])}] ?)"
WRITTEN = re.compile(rf"[\[({{] ?(?:at|AT|ät|@) ?[\])}}] ?(?:[{LETTER}\-]{{1,63}}{DOT}){{1,8}}([A-Za-z]{{2,24}}){ENDS}")
LONGEST_NAME = 64
NAME = re.compile(rf"[{LETTER}.%+\-]{{1,{LONGEST_NAME + 1}}}")
FILES = frozenset(("png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "css", "js", "ts", "mp4", "pdf"))

IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?![\w\-]|\.\d)", re.ASCII)
IPV6 = re.compile(r"[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2,34}(?![\w:])", re.ASCII)
VERSION = re.compile(r"(?:\bv|version|ver\.|release|build|firmware|chapter|section|§)\.? ?$", re.IGNORECASE)
SMALL = 32
"""Four numbers that are all smaller are a version or a section: a random address has odds of 1 in 4,000 for that."""

NUMBERS = re.compile(r"\d(?:[^\d\n]{0,3}\d){5,}+")
"""Six digits or more, close together: no card, identity, account or telephone number has fewer."""
BEFORE, AFTER = 40, 8
"""Characters around them that may belong to the number or tell what it is."""


class Match(NamedTuple):
    """A private string, by kind and place."""

    kind: Kind
    start: int
    stop: int


def find(text: str, kinds: Sequence[Kind] = tuple(MARKS)) -> list[Match]:
    """The private strings of a text, in order, none overlapping another."""
    anywhere = {"key": keys, "e-mail": emails, "ip": addresses}
    in_numbers = {"account": accounts, "card": cards, "identity": identities, "phone": phones}
    wanted = in_numbers.keys() & set(kinds)
    stretches = list(_numbers(text)) if wanted else []
    taken: list[Match] = []
    for kind in MARKS:
        if kind not in kinds:
            continue
        if kind in anywhere:
            spans = list(anywhere[kind](text))
        else:
            spans = [span for start, stop in stretches for span in in_numbers[kind](text, start, stop)]
        taken = _merged(taken, [Match(kind, *span) for span in spans]) if spans else taken
    return taken


def _numbers(text: str) -> Iterator[tuple[int, int]]:
    """The stretches of a text that hold many digits, with a little around them, none overlapping another."""
    begin = end = 0
    for match in NUMBERS.finditer(text):
        start, stop = max(0, match.start() - BEFORE), match.end() + AFTER
        if start > end:
            if end:
                yield begin, end
            begin = start
        end = stop
    if end:
        yield begin, end


def _merged(taken: list[Match], found: list[Match]) -> list[Match]:
    """Both in order; what overlaps something already taken is left out, as is what overlaps the one before it."""
    starts = [match.start for match in taken]
    free: list[Match] = []
    for match in sorted(found, key=lambda match: (match.start, -match.stop)):
        at = bisect(starts, match.start)
        after_others = (at == 0 or taken[at - 1].stop <= match.start) and (not free or free[-1].stop <= match.start)
        if after_others and (at == len(taken) or match.stop <= taken[at].start):
            free.append(match)
    return sorted(taken + free, key=lambda match: match.start)


def replacing(kinds: Sequence[Kind]) -> Step:
    """The step that puts a mark in place of each private string of these kinds."""

    def replace_private(document: Document) -> Document:
        text, counts = document.text, Counter[str]()
        for _ in range(ROUNDS):
            found = find(text, kinds)
            if not found:
                break
            counts.update(match.kind for match in found)
            text = _marked(text, found)
        if not counts:
            return document
        return replace(document, text=text, notes=(*document.notes, *sorted(counts.items())))

    return replace_private


def _marked(text: str, found: Sequence[Match]) -> str:
    parts: list[str] = []
    at = 0
    for kind, start, stop in found:
        parts += (text[at:start], MARKS[kind])
        at = stop
    return "".join((*parts, text[at:]))


def emails(text: str) -> Iterator[tuple[int, int]]:
    """E-mail addresses, also where the sign is written out: ada (at) example (dot) org."""
    for match in (*DOMAIN.finditer(text), *WRITTEN.finditer(text)):
        at = match.start() - (text[match.start()] != "@" and text[match.start() - 1 : match.start()] == " ")
        name = NAME.match(text[max(0, at - LONGEST_NAME - 1) : at][::-1])
        is_command = name is not None and name[0] == "tig" and text[match.end() : match.end() + 1] == ":"
        if name and len(name[0]) <= LONGEST_NAME and match[1].lower() not in FILES and not is_command:
            yield at - len(name[0]), match.end()


def addresses(text: str) -> Iterator[tuple[int, int]]:
    """Public internet addresses; not private or documented ranges, versions and section numbers."""
    for match in IPV4.finditer(text):
        before = text[max(0, match.start() - 12) : match.start()]
        if _is_public(match[0]) and not _is_inside(before) and not VERSION.search(before):
            yield match.span()
    for match in IPV6.finditer(text) if ":" in text else ():
        written = match[0].rstrip(":")
        if _is_public(written) and not _is_inside(text[max(0, match.start() - 1) : match.start()]):
            yield match.start(), match.start() + len(written)


def _is_inside(before: str) -> bool:
    """Whether what follows these characters goes on with a word or a number."""
    return before[-1:].isascii() and (before[-1:].isalnum() or before[-1:] in ("_", ".", "-"))


def _is_public(written: str) -> bool:
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return False
    is_version = address.version == 4 and all(int(part) < SMALL for part in written.split("."))
    return address.is_global and not address.is_multicast and not is_version
