"""Prose extraction from docstrings: paragraphs of natural sentences, without markup, code and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

KEPT_DIRECTIVES = frozenset({"note", "warning", "tip", "important", "caution", "seealso", "attention", "hint"})

DIRECTIVE = re.compile(r"^\.\.\s+([\w:-]+?)::\s*(.*)$")
UNDERLINE = re.compile(r"^([=\-~^\"'#*+`])\1{2,}$")
FIELD = re.compile(r"^\s*(:\w[^:]*:|@\w+|\*{0,2}[\w.`*/, ]{1,40}\s*(\([^)]*\))?\s*:(\s|$)|[\w.]+\s*--?\s)")
BULLET = re.compile(r"^\s*([-*+•]|\(?\d{1,2}[.)]|#\.)\s+")
CODE = re.compile(r"^\s*(>>>|\.\.\.|\$ |%|@\w|def |class |import |from \w+ import|return\b.*[=(\[])|[{};\\|]|==|->|=>")

ROLE = re.compile(r":[\w:+.-]+:`([^`]*)`")
LINK = re.compile(r"`([^`<]+?)\s*<[^>`]*>`_{0,2}")
BACKTICKS = re.compile(r"(`+)([^`]+)\1_{0,2}")
STRONG = re.compile(r"(?<![\w*])(\*{1,2})(\w(?:[^*\n]*\w)?)\1(?![\w*])")
NOTE_MARK = re.compile(r"\s*\[[#\w]*\]_")
URL = re.compile(r"\s*[(<]?https?://[^\s>)]+[)>]?")
SPACE = re.compile(r"\s+")

SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]?[A-Z0-9])")
WORD = re.compile(r"^[\"'(]*[A-Za-z][a-z]*(?:['’-][a-z]+)*[.,;:!?\"')]*$")
_COMMON_WORDS = (
    "the a an of to in is are be for and or that this with from by on as it if not can will was which when has have "
    "its at all any"
)
COMMON_WORDS = frozenset(_COMMON_WORDS.split())


def paragraphs(docstring: str) -> Iterator[str]:
    """The prose of one docstring, a paragraph at a time."""
    for block in _blocks(docstring):
        text = natural_sentences(strip_markup(" ".join(block)))
        if text:
            yield text


def _blocks(docstring: str) -> Iterator[list[str]]:
    """Runs of lines at one indentation that may be prose; titles, tables and dropped directives are left out."""
    block: list[str] = []
    depth = 0
    dropped_indent = -1  # lines deeper than this belong to a dropped directive
    for line in [*docstring.expandtabs().splitlines(), ""]:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text and indent <= dropped_indent:
            dropped_indent = -1
        directive = DIRECTIVE.match(text) if text.startswith("..") else None
        bullet = BULLET.match(line)
        if UNDERLINE.match(text):
            block = []  # the line above it was a title
            continue
        if block and (not text or directive or bullet or indent != depth):
            yield block
            block = []
        if directive:
            is_kept = directive[1] in KEPT_DIRECTIVES
            dropped_indent = dropped_indent if is_kept or dropped_indent >= 0 else indent
            block = [directive[2]] if is_kept and directive[2] and dropped_indent < 0 else []
            depth = len(line) - len(directive[2])
        elif text and dropped_indent < 0:
            block.append(line[bullet.end() :] if bullet else line)
            depth = bullet.end() if bullet else indent


def strip_markup(text: str) -> str:
    """The text without reStructuredText or Markdown markup."""
    text = ROLE.sub(lambda match: _role_title(match[1]), text)
    text = LINK.sub(r"\1", text)
    text = BACKTICKS.sub(r"\2", text)
    text = STRONG.sub(r"\2", text)
    text = URL.sub("", NOTE_MARK.sub("", text))
    return SPACE.sub(" ", text).strip()


def _role_title(target: str) -> str:
    """The visible text of a role: its title, or the last part of a name marked with a tilde."""
    title = target.split("<")[0].strip()
    if title.startswith("~"):
        title = title.rpartition(".")[2]
    return title.lstrip("~!.")


def natural_sentences(text: str) -> str:
    """The sentences of a paragraph that are natural language, joined; empty if there are none."""
    if FIELD.match(text):
        return ""
    return " ".join(sentence for sentence in SENTENCE_END.split(text) if is_natural(sentence))


def is_natural(sentence: str) -> bool:
    """Whether a sentence looks like English: it starts and ends like a sentence and consists mostly of words."""
    if not sentence or not (sentence[0].isupper() or sentence[0] in "\"'(") or sentence[-1] not in ".!?\"')":
        return False
    if CODE.search(sentence) or sentence.endswith(("...", "..")):
        return False
    tokens = sentence.split()
    if not 4 <= len(tokens) <= 80:
        return False
    num_words = sum(1 for token in tokens if WORD.match(token))
    return num_words >= 0.75 * len(tokens) and any(token.lower() in COMMON_WORDS for token in tokens[1:])
