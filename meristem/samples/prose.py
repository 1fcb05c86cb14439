"""What of a docstring is prose: paragraphs of sentences, free of markup, code and tables."""

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
TICKS = re.compile(r"(`+)([^`]+)\1_{0,2}")
STRONG = re.compile(r"(?<![\w*])(\*{1,2})(\w(?:[^*\n]*\w)?)\1(?![\w*])")
NOTE_MARK = re.compile(r"\s*\[[#\w]*\]_")
ADDRESS = re.compile(r"\s*[(<]?https?://[^\s>)]+[)>]?")
SPACE = re.compile(r"\s+")

END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]?[A-Z0-9])")
WORD = re.compile(r"^[\"'(]*[A-Za-z][a-z]*(?:['’-][a-z]+)*[.,;:!?\"')]*$")
PLAIN = frozenset(
    {"the", "a", "an", "of", "to", "in", "is", "are", "be", "for", "and", "or", "that", "this", "with", "from", "by",
     "on", "as", "it", "if", "not", "can", "will", "was", "which", "when", "has", "have", "its", "at", "all", "any"}
)


def paragraphs(docstring: str) -> Iterator[str]:
    """The prose of one docstring, a paragraph at a time."""
    for block in _blocks(docstring):
        text = sentences(plain(" ".join(block)))
        if text:
            yield text


def _blocks(docstring: str) -> Iterator[list[str]]:
    """Runs of lines at one depth that may be prose: titles, tables and dropped directives are left out."""
    block: list[str] = []
    depth = 0
    hidden = -1  # lines deeper than this belong to a dropped directive
    for line in [*docstring.expandtabs().splitlines(), ""]:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text and indent <= hidden:
            hidden = -1
        directive = DIRECTIVE.match(text) if text.startswith("..") else None
        bullet = BULLET.match(line)
        if UNDERLINE.match(text):
            block = []  # what stood above it was a title
            continue
        if block and (not text or directive or bullet or indent != depth):
            yield block
            block = []
        if directive:
            kept = directive[1] in KEPT_DIRECTIVES
            hidden = hidden if kept or hidden >= 0 else indent
            block = [directive[2]] if kept and directive[2] and hidden < 0 else []
            depth = len(line) - len(directive[2])
        elif text and hidden < 0:
            block.append(line[bullet.end():] if bullet else line)
            depth = bullet.end() if bullet else indent


def plain(text: str) -> str:
    """The words without their reStructuredText or Markdown dress."""
    text = ROLE.sub(lambda found: _named(found[1]), text)
    text = LINK.sub(r"\1", text)
    text = TICKS.sub(r"\2", text)
    text = STRONG.sub(r"\2", text)
    text = ADDRESS.sub("", NOTE_MARK.sub("", text))
    return SPACE.sub(" ", text).strip()


def _named(target: str) -> str:
    """What a role shows: its title, or the last part of a name marked with a tilde."""
    title = target.split("<")[0].strip()
    if title.startswith("~"):
        title = title.rpartition(".")[2]
    return title.lstrip("~!.")


def sentences(text: str) -> str:
    """The sentences of a paragraph that are natural language, joined again, or nothing."""
    if FIELD.match(text):
        return ""
    return " ".join(sentence for sentence in END.split(text) if natural(sentence))


def natural(sentence: str) -> bool:
    """Whether a sentence reads as English: it begins and ends as one and is made of words."""
    if not sentence or not (sentence[0].isupper() or sentence[0] in "\"'(") or sentence[-1] not in ".!?\"')":
        return False
    if CODE.search(sentence) or sentence.endswith(("...", "..")):
        return False
    tokens = sentence.split()
    if not 4 <= len(tokens) <= 80:
        return False
    words = sum(1 for token in tokens if WORD.match(token))
    return words >= 0.75 * len(tokens) and any(token.lower() in PLAIN for token in tokens[1:])
