"""Boilerplate removal: menus, cookie and copyright notices, share buttons, footers and repeated lines.

Three rules: a line that consists of a known phrase is removed anywhere; a line of menu words, links or separators only
at the top and bottom; a repeated line only if it is one that prose would not repeat.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from meristem.corpus.document import Document
from meristem.utils.word_tables import read_groups

MAX_NOTICE_CHARS = 300
"""Longest line, in characters, that can be a notice."""

MIN_REPEATS = 3
"""A line that occurs this often in one document is suspicious."""

MIN_REPEATED_LINE_BYTES = 80
"""Size in bytes from which no verse or heading repeats; a Chinese character has three."""

STRIP_CHARS = " \t\u00a0\u3000.!:：>»›→▶▼▲↑↓←«‹…|•·*-–—[]()（）【】#+✕×"

_TABLES = read_groups(Path(__file__).with_name("boilerplate.txt"))
KNOWN_PHRASES = frozenset("|".join(_TABLES["known lines"]).split("|"))
"""Whole lines that are boilerplate anywhere, without surrounding symbols, in lower case."""

MENU_VOCABULARY = frozenset(" ".join(_TABLES["menu words"]).split())
"""A line with no other words, at the top or bottom of a document, is a menu."""
NEVER_TITLES = frozenset("|".join(_TABLES["never titles"]).split("|"))
"""Menu words that are never a title, even alone."""

JAVASCRIPT_NOTICE = (
    r"(?:enable|activate|turn on|switch on) (?:your )?javascript|(?:requires|needs) javascript (?:to|in order|enabled)"
    r"|javascript (?:is|seems to be|appears to be|must be|needs to be)(?: currently)?"
    r" (?:disabled|enabled|turned off|required|blocked|not supported|not enabled)"
    r"|browser (?:does not|doesn't) support javascript|javascript aktivieren|aktivieren sie javascript"
    r"|acti(?:ver|vez|var|ve) (?:le |el )?javascript|(?:启用|开启) ?javascript"
)
"""A notice that a page needs JavaScript, in lower case."""

NOTICE_PATTERNS = {
    "cookie": re.compile(
        r"(?:we|this (?:web)?site|our (?:web)?site|the site)(?: and our partners)? uses? cookies\b.*"
        r"|by (?:continuing|using|browsing|clicking)\b.*\bcookies?\b.*|.*\bour use of cookies\b.*"
        r"|.*\byou (?:agree|consent|accept)\b.*\bcookies\b.*|diese (?:web)?s(?:e)?ite (?:verwendet|nutzt) cookies.*"
        r"|(?:ce site|nous) (?:utilise|utilisons) des cookies.*|(?:este sitio|esta web|utilizamos)\b.*\bcookies\b.*"
    ),
    "javascript": re.compile(f".{{0,80}}(?:{JAVASCRIPT_NOTICE}).{{0,80}}"),
    "©": re.compile(r"(?:copyright )?©.{0,160}|.{0,60}© ?(?:19|20)\d\d.{0,100}"),
    "copyright": re.compile(r"copyright (?:\(c\)|©|(?:19|20)\d\d).{0,160}"),
    "rights reserved": re.compile(r".{0,160}all rights reserved\W*.{0,40}"),
    "newsletter": re.compile(r"(?:subscribe to|sign up (?:for|to)|join|get) (?:our|the|my)\b.{0,60}newsletter.{0,60}"),
    "comment": re.compile(r"\d+ comments?|(?:log|sign) in to (?:leave a |post a )?(?:comment|reply)s?.{0,20}"),
    "post": re.compile(r"posted (?:by|on|in|at)\b.{0,80}\d{4}.{0,40}"),
    "filed under": re.compile(r"filed under:?.{0,120}"),
    "page ": re.compile(r"page \d+(?: of \d+)?"),
    "share": re.compile(r"(?:click to )?share (?:this )?(?:on|via|with) \w+(?: \(opens in new window\))?"),
    "icp": re.compile(r".{0,40}[京沪粤浙苏鲁川渝津冀闽鄂湘豫皖陕]icp[备证].{0,60}"),
    "版权所有": re.compile(r".{0,60}版权所有.{0,60}"),
    "转载": re.compile(r".{0,30}(?:未经许可|未经授权|转载请注明).{0,60}"),
}
LINKS_ONLY = re.compile(r"(?:(?:https?://|www\.)\S+[\s|,•·]*)+")
ITEM_SEPARATOR = re.compile(r"\s*[|»›·•▪]\s*|\s+/\s+|\s{3,}|\t")
WIDGET_LINE = re.compile(
    r"(?:reply|report|share|quote|like|permalink|download|tweet|print|follow|subscribe"
    r"|flag|edit|delete|embed|log ?in|sign in)"
    r"(?: (?:to )?(?:this|the|post|abuse|comment|message|now|link|page|article|story|thread|us|author)){0,3}"
    r"|view (?:details|profile|all|post|cart|more)|(?:buy|shop|order) now|add to \w+|(?:click|tap) (?:here|to)\b.{0,20}"
    r"|\d+ (?:votes?|likes?|shares?|views?|comments?|replies|points?)"
    r"|(?:posted )?\d+ (?:minute|hour|day|week|month|year)s? ago"
    r"|advertis\w+|回复|举报|点赞|收藏|分享|下载|登录|查看|删除|引用"
)
WORD = re.compile(r"[^\W\d_]+")
EXTRA_BLANK_LINES = re.compile(r"\n{3,}")


def remove_boilerplate(document: Document) -> Document:
    """The document without boilerplate lines; order and paragraphs are preserved."""
    lines = document.text.split("\n")
    removed = boilerplate_lines(lines)
    if not removed:
        return document
    text = "\n".join(line for number, line in enumerate(lines) if number not in removed)
    notes = (*document.notes, ("boilerplate lines", len(removed)))
    return replace(document, text=EXTRA_BLANK_LINES.sub("\n\n", text).strip(), notes=notes)


def boilerplate_lines(lines: list[str]) -> set[int]:
    """The indices of the boilerplate lines."""
    lowered = [line.strip().lower() for line in lines]
    short_lines = "\n".join(line for line in lowered if len(line) <= MAX_NOTICE_CHARS)
    notices = [pattern for keyword, pattern in NOTICE_PATTERNS.items() if keyword in short_lines]
    removed = {number for number, line in enumerate(lowered) if line and _is_notice(line, notices)}
    removed |= _repeated_lines(lowered, removed)
    for numbers in (range(len(lines)), range(len(lines) - 1, -1, -1)):
        remaining = (number for number in numbers if lowered[number] and number not in removed)
        edge_lines = list(takewhile(lambda number: _is_menu(lowered[number]), remaining))
        if len(edge_lines) > 1 or (edge_lines and not _is_title(lowered[edge_lines[0]])):
            removed.update(edge_lines)
    return removed


def _is_notice(line: str, notices: list[re.Pattern[str]]) -> bool:
    """Whether a line, in lower case, is a notice, wherever it occurs."""
    if len(line) > MAX_NOTICE_CHARS:
        return False
    return line.strip(STRIP_CHARS) in KNOWN_PHRASES or any(pattern.fullmatch(line) for pattern in notices)


def _is_menu(line: str) -> bool:
    """Whether a line consists of menu words, of links, or of short items between separators."""
    if len(line) > MAX_NOTICE_CHARS:
        return False
    if LINKS_ONLY.fullmatch(line):
        return True
    words = WORD.findall(line)
    if words and all(word in MENU_VOCABULARY for word in words):
        return True
    items = [item for item in ITEM_SEPARATOR.split(line.strip(STRIP_CHARS)) if item]
    known = sum(all(word in MENU_VOCABULARY for word in item.split()) for item in items)
    return len(items) >= 3 and known >= 2 and all(len(item) <= 30 for item in items)


def _is_title(line: str) -> bool:
    """Whether a menu word on a line of its own may be the title of the text."""
    stripped = line.strip(STRIP_CHARS)
    return (
        stripped not in NEVER_TITLES
        and len(WORD.findall(stripped)) < 3
        and not ITEM_SEPARATOR.search(stripped)
        and not LINKS_ONLY.fullmatch(line)
    )


def _repeated_lines(lowered: list[str], removed: set[int]) -> set[int]:
    """Repeated buttons, all of them; repeated long lines, except the first."""
    counts = Counter(line for number, line in enumerate(lowered) if line and number not in removed)
    if not counts or counts.most_common(1)[0][1] < MIN_REPEATS:
        return set()
    frequent = {line for line, count in counts.items() if count >= MIN_REPEATS}
    buttons = {line for line in frequent if WIDGET_LINE.fullmatch(line.strip(STRIP_CHARS))}
    long_lines = {
        line for line in frequent - buttons if len(line.encode("utf-8", "surrogatepass")) >= MIN_REPEATED_LINE_BYTES
    }
    repeated, seen = set(), set[str]()
    for number, line in enumerate(lowered):
        if line in buttons or (line in long_lines and line in seen):
            repeated.add(number)
        seen.add(line)
    return repeated - removed
