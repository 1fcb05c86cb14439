"""WikiText: plain text in which `= Title =` begins an article; each article is a record."""

from __future__ import annotations

import re

from meristem.data.formats.text import TextFormat

ARTICLE_TITLE = r" ?= (?![= ])[^\n]*(?<![= ]) = ?{end}\n[ \t]*{end}\n"
"""A line that begins an article, `= Title =`, and the blank line after it; headings have more signs."""
ARTICLE_BREAK = re.compile(r"(?:\A|\n)[ \t]*\n(?=" + ARTICLE_TITLE.format(end="") + ")")


class WikitextFormat(TextFormat):
    """Text cut into articles, or like plain text if it has none."""

    suffixes = (".tokens",)
    separators = {**TextFormat.separators, "article": ARTICLE_BREAK}
    byte_separators = {
        **TextFormat.byte_separators,
        "article": re.compile(rb"\n[ \t\r]*\n(?=" + ARTICLE_TITLE.format(end="\\r?").encode() + b")"),
    }

    @classmethod
    def choose_unit(cls, head: str, size: int, requested: str) -> str:
        """Articles where the head has one."""
        if requested == "auto" and ARTICLE_BREAK.search(head):
            return "article"
        return super().choose_unit(head, size, requested)
