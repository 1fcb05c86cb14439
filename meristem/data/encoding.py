"""Character encodings: detected once from a file's first MiB; the decoded text in chunks."""

from __future__ import annotations

import codecs
import io
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meristem.data.byte_stream import ByteStream, UnreadableFileError, check_not_binary
from meristem.data.read_counts import ReadCounts

if TYPE_CHECKING:
    from meristem.data.sources import FileSource

BYTE_ORDER_MARKS = (  # longer ones first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROL_BYTES = bytes([*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])
MIN_CONTROL_COUNT, MAX_CONTROL_SHARE = 16, 0.05
"""A file with more control bytes than this, in number and in share, is binary; random bytes have a share of 0.11."""

MIN_BYTE_PAIRS, MIN_ZERO_SHARE, MAX_ZERO_SHARE = 8, 0.5, 0.01
"""For UTF-16 without a byte order mark: minimum byte pairs, and the shares of zeros in its two bytes."""

NON_ASCII = re.compile(r"[^\x00-\x7f]+")
WINDOWS_1252 = "cp1252"
"""Windows' Western European encoding: Latin-1 with quotes and dashes where Latin-1 has control characters."""
SINGLE_LETTER_WORDS = frozenset("àÀáÁåÅèÈéÉêíìóòÓÒôöÖøØùúÚýÝ")
"""Accented letters that are words by themselves in a language written in Windows-1252."""
SIGN_IN_A_WORD = re.compile(r"(?<=[^\W\d_])[¿³²¹¼½¾¥¤¦¨¬¯±´¶¸×÷](?=[^\W\d_])")
"""Symbols that never occur between two letters."""
MAX_ACCENT_RUN = 2
"""Longest run of accented letters in a word (créée, jäätelö); other scripts have longer ones."""
MIN_WESTERN_SHARE = 0.9
"""Minimum share of non-ASCII characters that must look Western European."""


@dataclass(frozen=True)
class TextEncoding:
    """A codec's name, and the repair that using it amounts to, if any."""

    codec: str
    repair: str = ""


def detect_encoding(head: bytes, extension: str, is_complete: bool) -> TextEncoding:
    """The encoding of a file, given its head; raises UnreadableFileError for a binary file."""
    check_not_binary(head, extension)
    for bom, codec in BYTE_ORDER_MARKS:
        if head.startswith(bom):
            return TextEncoding(codec)
    if (utf16_codec := _unmarked_utf16(head)) is not None:
        return TextEncoding(utf16_codec, "file in UTF-16 without a mark")
    if len(head) - len(head.translate(None, CONTROL_BYTES)) > max(MIN_CONTROL_COUNT, MAX_CONTROL_SHARE * len(head)):
        raise UnreadableFileError(f"ends in {extension}, but holds binary data" if extension else "holds binary data")
    if _try_decode(head, "utf-8", is_complete) is not None:
        return TextEncoding("utf-8")
    if not _is_damaged_utf8(head, is_complete):
        western = _try_decode(head, WINDOWS_1252, is_complete)
        if western is not None and _looks_western(western):
            return TextEncoding(WINDOWS_1252, "file in Windows-1252")
        chinese = _try_decode(head, "gb18030", is_complete)
        if chinese is not None and _looks_chinese(chinese):
            return TextEncoding("gb18030", "file in GB18030")
    return TextEncoding("utf-8")


def file_encoding(file: FileSource, head: bytes, is_complete: bool) -> TextEncoding:
    """The encoding set in a setting, or the one detected from the file's head."""
    if file.encoding:
        check_not_binary(head, file.extension)
        return TextEncoding(file.encoding)
    return detect_encoding(head, file.extension, is_complete)


def decode_stream(stream: ByteStream, counts: ReadCounts, encoding: TextEncoding | None = None) -> Iterator[str]:
    """The text of a stream in chunks, newlines as \\n; undecodable bytes become U+FFFD and are counted."""
    encoding = encoding or file_encoding(stream.file, stream.head, stream.head_is_all)
    if encoding.repair:
        counts.add_repaired_file(encoding.repair, stream.file.name)
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder(encoding.codec)(COUNTING_ERRORS), translate=True
    )
    damaged = 0
    try:
        for chunk in stream.chunks():
            text, bad_places = _decode_counted(decoder, chunk)
            damaged += bad_places
            yield text
        text, bad_places = _decode_counted(decoder, b"", final=True)
        damaged += bad_places
        yield text
    finally:
        if damaged:
            name = CODEC_NAMES.get(encoding.codec, encoding.codec.upper())
            counts.add_damaged_places(f"places that are no {name}", stream.file.name, damaged)


class _ReplacementCounter(threading.local):
    """Counts, per thread, how often undecodable bytes were replaced by U+FFFD."""

    count = 0


_replacements = _ReplacementCounter()
COUNTING_ERRORS = "meristem.counted"
CODEC_NAMES = {"utf-8-sig": "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", WINDOWS_1252: "Windows-1252"}


def _count_replacement(error: UnicodeError) -> tuple[str, int]:
    """The error handler "replace" with a count; the text itself cannot tell, since a file may contain U+FFFD."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    _replacements.count += 1
    return "\ufffd", error.end


codecs.register_error(COUNTING_ERRORS, _count_replacement)


def _decode_counted(decoder: io.IncrementalNewlineDecoder, chunk: bytes, *, final: bool = False) -> tuple[str, int]:
    """The text of a chunk, and the number of undecodable places in it."""
    before = _replacements.count
    text = decoder.decode(chunk, final=final)
    return text, _replacements.count - before


def _try_decode(head: bytes, codec: str, is_complete: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(codec)().decode(head, final=is_complete)
    except UnicodeDecodeError:
        return None


def _unmarked_utf16(head: bytes) -> str | None:
    """The codec of UTF-16 without a byte order mark: every other byte of ASCII text is zero."""
    first, second = head[: len(head) // 2 * 2 : 2], head[1::2]
    zeros = [half.count(0) / max(1, len(half)) for half in (first, second)]
    if len(first) < MIN_BYTE_PAIRS or max(zeros) < MIN_ZERO_SHARE or min(zeros) > MAX_ZERO_SHARE:
        return None
    codec = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    text = _try_decode(head, codec, is_complete=False)
    return codec if text is not None and sum(map(str.isprintable, text)) > 0.8 * len(text) else None


def _is_damaged_utf8(head: bytes, is_complete: bool) -> bool:
    """Whether most of the non-ASCII bytes are valid UTF-8: then it is UTF-8 with damaged places."""
    before = _replacements.count
    text = codecs.getincrementaldecoder("utf-8")(COUNTING_ERRORS).decode(head, final=is_complete)
    bad_places = _replacements.count - before
    return sum(map(len, NON_ASCII.findall(text))) - bad_places > bad_places


def _looks_western(text: str) -> bool:
    """Whether accented letters occur within ASCII words, and symbols between words, as in Western European text.

    charset-normalizer 3.5 was tried here: it took four of six such texts for Windows-1250, the Central European one.
    """
    num_non_ascii, num_strange = 0, len(SIGN_IN_A_WORD.findall(text))
    for run in NON_ASCII.finditer(text):
        before, after = text[max(run.start() - 1, 0) : run.start()], text[run.end() : run.end() + 1]
        letters = sum(map(str.isalpha, run[0]))
        num_non_ascii += len(run[0])
        if run[0] not in SINGLE_LETTER_WORDS and (
            letters > MAX_ACCENT_RUN or not (before.isalpha() or after.isalpha())
        ):
            num_strange += letters
    return num_strange <= (1 - MIN_WESTERN_SHARE) * num_non_ascii


def _looks_chinese(text: str) -> bool:
    """Whether most non-ASCII characters are in GB2312, the common Chinese characters: random byte pairs are not."""
    non_ascii = "".join(NON_ASCII.findall(text))
    return len(non_ascii.encode("gb2312", "ignore")) >= len(non_ascii)  # two bytes each: at least half in GB2312
