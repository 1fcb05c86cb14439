"""From bytes to text: which encoding a file has, decided once on its first MiB, and its text in chunks."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from meristem.corpus.account import Account
from meristem.corpus.opening import Stream, Unreadable, refuse_binary

BYTE_ORDER_MARKS = (  # the longer first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROLS = bytes([*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])
FEW_CONTROLS, MOST_CONTROLS = 16, 0.05
"""A file with more control bytes than these, in number and in share, is no text; of random bytes 0.11 are controls."""

FOREIGN = re.compile(r"[^\x00-\x7f]+")


@dataclass(frozen=True)
class Encoding:
    """A codec's name, and what had to be mended to use it."""

    codec: str
    repair: str = ""


def recognise(head: bytes, ending: str, whole: bool) -> Encoding:
    """The encoding of a file that begins so; a file that is no text is refused."""
    refuse_binary(head, ending)
    for mark, codec in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return Encoding(codec)
    if len(head) - len(head.translate(None, CONTROLS)) > max(FEW_CONTROLS, MOST_CONTROLS * len(head)):
        raise Unreadable(f"ends in {ending}, but holds binary data")
    if _decodes(head, "utf-8", whole) is not None:
        return Encoding("utf-8")
    chinese = _decodes(head, "gb18030", whole)
    if chinese is not None and _plausible(chinese):
        return Encoding("gb18030", "file in GB18030")
    return Encoding("utf-8", "file with invalid UTF-8")


def decoded(stream: Stream, account: Account, encoding: Encoding | None = None) -> Iterator[str]:
    """The text of a stream in chunks, all newlines as \\n; bytes that mean nothing become U+FFFD and are reported."""
    encoding = encoding or recognise(stream.head, stream.file.ending, stream.whole)
    repaired = bool(encoding.repair)
    if repaired:
        account.mend(encoding.repair, stream.file.name)
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding.codec)("replace"), translate=True)
    for chunk in stream.chunks():
        text = decoder.decode(chunk)
        if not repaired and "\ufffd" in text:
            repaired = True
            account.mend(f"file with invalid {encoding.codec.upper()}", stream.file.name)
        yield text
    yield decoder.decode(b"", final=True)


def _decodes(head: bytes, codec: str, whole: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(codec)().decode(head, final=whole)
    except UnicodeDecodeError:
        return None


def _plausible(text: str) -> bool:
    """Whether most of what is not ASCII lies in GB2312, the Chinese in daily use: chance pairs of bytes do not."""
    foreign = "".join(FOREIGN.findall(text))
    return len(foreign.encode("gb2312", "ignore")) >= len(foreign)  # two bytes each, so half of them are in it
