"""HTML pages: the main text under its title, without menus, notices and footers, by trafilatura (extra `clean`)."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence

from meristem.data.byte_stream import ByteStream, UnreadableFileError
from meristem.data.encoding import BYTE_ORDER_MARKS, TextEncoding, decode_stream, file_encoding
from meristem.data.records import BadRecord, FileFormat, Record
from meristem.utils.optional_packages import require_module

MAX_PAGE_BYTES, MAX_PAGE_TAGS = 4 << 20, 300_000
"""Largest page; a tag takes about 800 bytes of memory, however short it is."""
DECLARED_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{2,40})""", re.IGNORECASE)
CHARSET_BYTES = 4096
"""Bytes in which a page declares its encoding."""
BROWSER_CODECS = {"gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252", "ascii": "cp1252", "big5": "big5hkscs"}
"""Declared encodings that browsers read as a larger one."""


class HtmlFormat(FileFormat):
    """One page per file: one record with its title and its text."""

    suffixes = (".html", ".htm", ".xhtml")
    columns = ("text", "title")
    text_columns = ("text",)

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The page; one without a main text is a bad record."""
        trafilatura = require_module("trafilatura", "reading .html", "clean")
        page = self._read_page()
        document = trafilatura.bare_extraction(page, include_comments=False, with_metadata=True)
        text = (document.text or "").strip() if document else ""
        if not text:
            yield BadRecord("no main text", self.name, "a page without a main text; add it or remove the page")
            return
        title = " ".join((document.title or "").split())
        first_line, _, rest = text.partition("\n")
        body = rest.lstrip() if first_line == title else text
        yield Record({"text": f"{title}\n\n{body}".strip(), "title": title}, f"{self.name}:1")

    def _read_page(self) -> str:
        stream = ByteStream(self.file, self.counts)
        encoding = None if self.file.encoding else _declared_encoding(stream.head)
        chunks, size, tags = [], 0, 0
        encoding = encoding or file_encoding(self.file, stream.head, stream.head_is_all)
        for chunk in decode_stream(stream, self.counts, encoding):
            size, tags = size + len(chunk), tags + chunk.count("<")
            if size > MAX_PAGE_BYTES or tags > MAX_PAGE_TAGS:
                raise UnreadableFileError(
                    f"a page of more than {MAX_PAGE_BYTES >> 20} MiB or {MAX_PAGE_TAGS:,} tags; is this a page?"
                )
            chunks.append(chunk)
        return "".join(chunks)


def _declared_encoding(head: bytes) -> TextEncoding | None:
    """The encoding that a page declares, if there is such a codec and no byte order mark says otherwise."""
    match = DECLARED_CHARSET.search(head[:CHARSET_BYTES])
    if match is None or head.startswith(tuple(mark for mark, _ in BYTE_ORDER_MARKS)):
        return None
    try:
        info = codecs.lookup(match[1].decode("ascii", "replace"))
    except LookupError:
        return None
    codec = BROWSER_CODECS.get(info.name, info.name)
    if not info._is_text_encoding or codec.startswith(("utf-16", "utf-32")):  # it could not have been read as ASCII
        return None
    return TextEncoding(codec)
