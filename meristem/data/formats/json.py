"""JSON files: a list of objects, SQuAD articles (version 1.1 and 2.0), or JSON lines with a .json ending."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from meristem.data.byte_stream import ByteStream, UnreadableFileError
from meristem.data.encoding import decode_stream
from meristem.data.formats.jsonl import JsonlFormat
from meristem.data.read_counts import ReadCounts
from meristem.data.records import BadRecord, FileFormat, ReadOptions, Record
from meristem.data.sources import FileSource
from meristem.utils import untrusted_files

MAX_CHARACTERS = 1 << 30
"""Longest file, in characters, that is read into memory at once because it is a single JSON value."""
QUESTION_COLUMNS = ("question", "passage", "answers", "id")


class JsonFormat(FileFormat):
    """A list of objects, alone or as the only list of an object; the questions of SQuAD articles."""

    suffixes: ClassVar[tuple[str, ...]] = (".json",)
    only_named = True
    articles_only = False
    """Whether a file without SQuAD articles is refused."""

    def __init__(self, file: FileSource, options: ReadOptions, counts: ReadCounts) -> None:
        super().__init__(file, options, counts)
        content = self._read_text()
        self._lines: JsonlFormat | None = None
        self._values: list[Any] = []
        try:
            self._values = _find_list(untrusted_files.parse_json_line(content))
        except ValueError as error:
            lines = content.lstrip().split("\n", 1)
            if len(lines) < 2 or not _is_object(lines[0]):
                raise UnreadableFileError(f"broken JSON ({error})", getattr(error, "lineno", 1)) from None
            self._lines = JsonlFormat(file, options, ReadCounts())  # its bytes are counted already
        self._has_articles = any(isinstance(value, dict) and "paragraphs" in value for value in self._values)
        if self._has_articles:
            self.columns, self.text_columns = QUESTION_COLUMNS, QUESTION_COLUMNS[:2]
        elif self.articles_only:
            raise UnreadableFileError("no articles with paragraphs, as SQuAD files have; try data.format=table")

    @property
    def layout(self) -> str:
        """squad for articles, else json."""
        return "squad" if self._has_articles else super().layout

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The values of the list, or the questions of the articles."""
        if self._lines is not None:
            return self._lines.records(columns)
        if self._has_articles:
            return _iter_questions(self._values, self.name)
        if self.options.annotations:
            from meristem.data.annotations import convert_annotations  # annotations imports this module

            return (convert_annotations(value, f"{self.name}#{number}") for number, value in enumerate(self._values, 1))
        return (Record(value, f"{self.name}#{number}") for number, value in enumerate(self._values, 1))

    def _read_text(self) -> str:
        chunks, characters = [], 0
        for chunk in decode_stream(ByteStream(self.file, self.counts), self.counts):
            characters += len(chunk)
            if characters > MAX_CHARACTERS:
                raise UnreadableFileError(
                    f"more than {MAX_CHARACTERS:,} characters in one JSON value; convert it to JSON lines"
                )
            chunks.append(chunk)
        return "".join(chunks)


def _find_list(value: Any) -> list[Any]:
    """The list itself, the one under "data", or the only one of an object."""
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list)]
        value = value["data"] if isinstance(value.get("data"), list) else lists[0] if len(lists) == 1 else value
    if not isinstance(value, list):
        raise UnreadableFileError("expected a list of objects or SQuAD articles, not a single object")
    return value


def _is_object(line: str) -> bool:
    try:
        return isinstance(untrusted_files.parse_json_line(line), dict)
    except ValueError:
        return False


def _iter_questions(articles: list[Any], name: str) -> Iterator[Record | BadRecord]:
    """Every question with its passage; answers are None if a version 1.1 file has none."""
    paragraphs = [
        paragraph
        for article in articles
        if isinstance(article, dict)
        for paragraph in _as_list(article.get("paragraphs"))
        if isinstance(paragraph, dict)
    ]
    all_questions = (question for item in paragraphs for question in _as_list(item.get("qas")))
    is_version_2 = any("is_impossible" in question for question in all_questions if isinstance(question, dict))
    for number, paragraph in enumerate(paragraphs, 1):
        passage = paragraph.get("context")
        if not isinstance(passage, str):
            yield BadRecord("no context", f"{name}#{number}", f"paragraph {number} has no context")
            continue
        for question in _as_list(paragraph.get("qas")):
            yield _parse_question(question, passage, is_version_2, name)


def _parse_question(question: Any, passage: str, is_version_2: bool, name: str) -> Record | BadRecord:
    if not isinstance(question, dict):
        return BadRecord("broken question", name, f"a question is an object, not a {type(question).__name__}")
    location = f"{name}#{question.get('id', '?')!s:.80}"
    answers = _as_list(question.get("answers"))
    if question.get("is_impossible") and answers:
        detail = "marked as impossible to answer, but has answers; fix one or the other"
        return BadRecord("contradictory question", location, detail)
    if is_version_2 and not answers and not question.get("is_impossible"):
        detail = "no answers, and not marked as impossible to answer (is_impossible)"
        return BadRecord("no answers", location, detail)
    values = {
        "question": question.get("question"),
        "passage": passage,
        "answers": [] if question.get("is_impossible") else list(answers) or None,
        "id": str(question.get("id", "")),
    }
    return Record(values, location)


def _as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []
