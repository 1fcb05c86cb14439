"""SQuAD articles, and nothing else: JSON files whose format is set to squad."""

from __future__ import annotations

from meristem.data.formats.json import JsonFormat


class SquadFormat(JsonFormat):
    """Paragraphs with questions and answers; a JSON file without them is refused."""

    suffixes = ()
    articles_only = True
