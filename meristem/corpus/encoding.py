"""From bytes to text: which encoding a file has, decided once on its first MiB, and its text in chunks."""

from __future__ import annotations

import codecs
import io
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from meristem.corpus.account import Account
from meristem.corpus.opening import Stream, Unreadable, refuse_binary
from meristem.corpus.source_kinds import File

BYTE_ORDER_MARKS = (  # the longer first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROLS = bytes([*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])
FEW_CONTROLS, MOST_CONTROLS = 16, 0.05
"""A file with more control bytes than these, in number and in share, is no text; of random bytes 0.11 are controls."""

FEWEST_PAIRS, MOST_ZEROS, FEW_ZEROS = 8, 0.5, 0.01
"""Of text in UTF-16 without a mark: how many pairs of bytes tell, and the zeros among first and second bytes."""

FOREIGN = re.compile(r"[^\x00-\x7f]+")
WINDOWS = "cp1252"
"""Windows' Western European encoding: Latin-1 with quotes and dashes where Latin-1 has control characters."""
ALONE = frozenset("àÀáÁåÅèÈéÉêíìóòÓÒôöÖøØùúÚýÝ")
"""Accented letters that are words of their own in a language written with Windows-1252."""
SIGN_IN_A_WORD = re.compile(r"(?<=[^\W\d_])[¿³²¹¼½¾¥¤¦¨¬¯±´¶¸×÷](?=[^\W\d_])")
"""Signs that never stand between two letters."""
LONGEST_RUN = 2
"""Accented letters that follow one another in a word (créée, jäätelö); runs in other scripts are longer."""
SURE = 0.9
"""Share of the characters outside ASCII that must look Western European."""


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
    if (unmarked := _unmarked_utf16(head)) is not None:
        return Encoding(unmarked, "file in UTF-16 without a mark")
    if len(head) - len(head.translate(None, CONTROLS)) > max(FEW_CONTROLS, MOST_CONTROLS * len(head)):
        raise Unreadable(f"ends in {ending}, but holds binary data" if ending else "holds binary data")
    if _decodes(head, "utf-8", whole) is not None:
        return Encoding("utf-8")
    if not _damaged_utf8(head, whole):
        western = _decodes(head, WINDOWS, whole)
        if western is not None and _looks_western(western):
            return Encoding(WINDOWS, "file in Windows-1252")
        chinese = _decodes(head, "gb18030", whole)
        if chinese is not None and _plausible(chinese):
            return Encoding("gb18030", "file in GB18030")
    return Encoding("utf-8")


def encoding_of(file: File, head: bytes, whole: bool) -> Encoding:
    """The encoding that the settings name, or the one that a file which begins so has."""
    if file.encoding:
        refuse_binary(head, file.ending)
        return Encoding(file.encoding)
    return recognise(head, file.ending, whole)


def decoded(stream: Stream, account: Account, encoding: Encoding | None = None) -> Iterator[str]:
    """The text of a stream in chunks, all newlines as \\n; bytes that mean nothing become U+FFFD and are counted."""
    encoding = encoding or encoding_of(stream.file, stream.head, stream.whole)
    if encoding.repair:
        account.mend(encoding.repair, stream.file.name)
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding.codec)(COUNTING), translate=True)
    damaged = 0
    try:
        for chunk in stream.chunks():
            text, bad = _counted(decoder, chunk)
            damaged += bad
            yield text
        text, bad = _counted(decoder, b"", final=True)
        damaged += bad
        yield text
    finally:
        if damaged:
            name = NAMES.get(encoding.codec, encoding.codec.upper())
            account.damage(f"places that are no {name}", stream.file.name, damaged)


class _Replaced(threading.local):
    """How often this thread put U+FFFD in place of bytes that could not be decoded."""

    times = 0


_replaced = _Replaced()
COUNTING = "meristem.counted"
NAMES = {"utf-8-sig": "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", WINDOWS: "Windows-1252"}


def _count(error: UnicodeError) -> tuple[str, int]:
    """As the error handler "replace"; the text itself cannot tell, since a file may hold U+FFFD of its own."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    _replaced.times += 1
    return "\ufffd", error.end


codecs.register_error(COUNTING, _count)


def _counted(decoder: io.IncrementalNewlineDecoder, chunk: bytes, *, final: bool = False) -> tuple[str, int]:
    """The text of a chunk, and how many places of it could not be decoded."""
    before = _replaced.times
    text = decoder.decode(chunk, final=final)
    return text, _replaced.times - before


def _decodes(head: bytes, codec: str, whole: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(codec)().decode(head, final=whole)
    except UnicodeDecodeError:
        return None


def _unmarked_utf16(head: bytes) -> str | None:
    """The codec of UTF-16 without a byte order mark: ASCII letters there are every other byte, and zeros the rest."""
    first, second = head[: len(head) // 2 * 2 : 2], head[1::2]
    zeros = [side.count(0) / max(1, len(side)) for side in (first, second)]
    if len(first) < FEWEST_PAIRS or max(zeros) < MOST_ZEROS or min(zeros) > FEW_ZEROS:
        return None
    codec = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    found = _decodes(head, codec, whole=False)
    return codec if found is not None and sum(map(str.isprintable, found)) > 0.8 * len(found) else None


def _damaged_utf8(head: bytes, whole: bool) -> bool:
    """Whether most of what is not ASCII is well-formed UTF-8: then it is UTF-8 with broken places."""
    before = _replaced.times
    text = codecs.getincrementaldecoder("utf-8")(COUNTING).decode(head, final=whole)
    bad = _replaced.times - before
    return sum(map(len, FOREIGN.findall(text))) - bad > bad


def _looks_western(text: str) -> bool:
    """Whether accented letters stand in words of ASCII letters, and signs between words, as in Western European text.

    charset-normalizer 3.5 was tried here: it took four of six such texts for Windows-1250, the Central European one.
    """
    foreign, strange = 0, len(SIGN_IN_A_WORD.findall(text))
    for run in FOREIGN.finditer(text):
        before, after = text[max(run.start() - 1, 0) : run.start()], text[run.end() : run.end() + 1]
        letters = sum(map(str.isalpha, run[0]))
        foreign += len(run[0])
        if run[0] not in ALONE and (letters > LONGEST_RUN or not (before.isalpha() or after.isalpha())):
            strange += letters
    return strange <= (1 - SURE) * foreign


def _plausible(text: str) -> bool:
    """Whether most of what is not ASCII lies in GB2312, the Chinese in daily use: chance pairs of bytes do not."""
    foreign = "".join(FOREIGN.findall(text))
    return len(foreign.encode("gb2312", "ignore")) >= len(foreign)  # two bytes each, so half of them are in it
