"""spaCy's .spacy files (DocBin): words with entity tags and parts of speech, and categories, without spaCy itself."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from meristem.data.byte_stream import ByteStream, UnreadableFileError
from meristem.data.compression import MAX_RATIO, RATIO_ERROR, UNCHECKED_BYTES
from meristem.data.murmur_hash import hash_text
from meristem.data.read_counts import ReadCounts
from meristem.data.records import BadRecord, FileFormat, ReadOptions, Record
from meristem.data.sources import FileSource
from meristem.data.spacy_symbols import SYMBOLS
from meristem.utils.optional_packages import require_module

ORTH, ENT_IOB, ENT_TYPE, POS, TAG = 65, 77, 78, 74, 75
"""Numbers of spaCy's attributes in a DocBin."""
INSIDE, OUTSIDE, BEGIN = 1, 2, 3
"""Values of ENT_IOB; 0 is a word without annotation."""
PARTS_OF_SPEECH = (
    *("ADJ", "ADP", "ADV", "AUX", "CONJ", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT"),
    *("SCONJ", "SYM", "VERB", "X", "EOL", "SPACE"),
)
FIRST_PART_OF_SPEECH = 84
"""spaCy's number of the first of the universal parts of speech."""
POSITIVE = 0.5


class SpacyFormat(FileFormat):
    """One record per document: its text, words, entity tags, parts of speech, and label."""

    suffixes = (".spacy",)
    is_text = False
    only_named = True

    def __init__(self, file: FileSource, options: ReadOptions, counts: ReadCounts) -> None:
        super().__init__(file, options, counts)
        content = self._unpack(file, counts)
        try:
            self._attributes = [int(number) for number in content["attrs"]]
            self._lengths = np.frombuffer(content["lengths"], np.int32)
            self._tokens = np.frombuffer(content["tokens"], np.uint64).reshape(-1, len(self._attributes))
            self._spaces = np.frombuffer(content["spaces"], bool).reshape(-1)
            self._categories = list(content.get("cats") or [])
            self._strings = SYMBOLS | {hash_text(text): text for text in map(str, content["strings"])}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UnreadableFileError("not a DocBin of spaCy 3") from None
        if self._lengths.min(initial=0) < 0 or int(self._lengths.sum(dtype=np.int64)) != len(self._tokens):
            raise UnreadableFileError("damaged: its documents are not as long as its tokens")
        if len(self._spaces) != len(self._tokens):
            raise UnreadableFileError("damaged: not a space for each token")
        if ORTH not in self._attributes:
            raise UnreadableFileError("has no words (the attribute ORTH)")
        self.columns = (
            "text",
            "words",
            "tags",
            *(("pos",) * self._has_values(POS)),
            *(("label",) * self._has_labels()),
        )
        self.text_columns = ("text",)

    def _unpack(self, file: FileSource, counts: ReadCounts) -> Mapping[str, Any]:
        msgpack = require_module("msgpack", "reading .spacy", "data")
        packed = b"".join(ByteStream(file, counts).chunks())
        limit = max(UNCHECKED_BYTES, MAX_RATIO * file.size)
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(packed, limit)
        except zlib.error:
            raise UnreadableFileError("ends in .spacy, but is not a DocBin of spaCy 3") from None
        if unpacker.unconsumed_tail:
            raise UnreadableFileError(RATIO_ERROR)
        try:
            content = msgpack.unpackb(data, raw=False, strict_map_key=False)
        except Exception:  # the library has no common class of errors
            raise UnreadableFileError("ends in .spacy, but is not a DocBin of spaCy 3") from None
        if not isinstance(content, Mapping):
            raise UnreadableFileError("not a DocBin of spaCy 3")
        return content

    def _has_values(self, attribute: int) -> bool:
        return attribute in self._attributes and bool(self._column(self._tokens, attribute).any())

    def _has_labels(self) -> bool:
        return any(self._categories)

    def _column(self, tokens: Any, attribute: int) -> Any:
        return tokens[:, self._attributes.index(attribute)]

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The documents, numbered from 1; words of white space are left out."""
        start = 0
        for number, length in enumerate(self._lengths.tolist(), 1):
            stop, location = start + length, f"{self.name}#{number}"
            try:
                yield Record(self._document(number - 1, slice(start, stop)), location)
            except KeyError as error:
                yield BadRecord("unknown word", location, f"its string store lacks the text of {error}")
            start = stop

    def _document(self, index: int, rows: slice) -> dict[str, Any]:
        tokens = self._tokens[rows]
        words = [self._strings[number] for number in self._column(tokens, ORTH).tolist()]
        spaces = self._spaces[rows].tolist()
        word_positions = [position for position, word in enumerate(words) if word.strip()]
        tags = self._entity_tags(tokens)
        values: dict[str, Any] = {
            "text": "".join(word + " " * space for word, space in zip(words, spaces, strict=True)).rstrip(),
            "words": [words[position] for position in word_positions],
            "tags": [tags[position] for position in word_positions],
        }
        if "pos" in self.columns:
            parts = self._column(tokens, POS).tolist()
            values["pos"] = [_part_of_speech(parts[position]) for position in word_positions]
        if "label" in self.columns:
            values["label"] = self._label(index)
        return values

    def _entity_tags(self, tokens: Any) -> list[str]:
        """BIO tags."""
        if ENT_IOB not in self._attributes or ENT_TYPE not in self._attributes:
            return ["O"] * len(tokens)
        marks, types = self._column(tokens, ENT_IOB).tolist(), self._column(tokens, ENT_TYPE).tolist()
        return [
            f"{'B' if mark == BEGIN else 'I'}-{self._strings[kind]}" if mark in (INSIDE, BEGIN) and kind else "O"
            for mark, kind in zip(marks, types, strict=True)
        ]

    def _label(self, index: int) -> str | list[str] | None:
        """The category of a document; several if more than one holds."""
        categories = self._categories[index] if index < len(self._categories) else None
        if not isinstance(categories, Mapping):
            return None
        names = [str(name) for name, value in categories.items() if isinstance(value, float | int) and value > POSITIVE]
        return names[0] if len(names) == 1 else names


def _part_of_speech(number: int) -> str:
    index = number - FIRST_PART_OF_SPEECH
    return PARTS_OF_SPEECH[index] if 0 <= index < len(PARTS_OF_SPEECH) else "X"
