"""Encoding detection and decoding."""

import codecs
from pathlib import Path

import pytest

from meristem.corpus.accounting import CorpusAccount
from meristem.data.byte_stream import ByteStream, UnreadableFileError
from meristem.data.encoding import decode_stream, detect_encoding
from meristem.data.sources import FileSource

CHINESE = "白日依山尽，黄河入海流。欲穷千里目，更上一层楼。"
FRENCH = "L'été dernier, à côté de la forêt, où l'on a mangé des gâteaux très sucrés. "


def text_of(path: Path, data: bytes) -> tuple[str, CorpusAccount]:
    path.write_bytes(data)
    account = CorpusAccount()
    return "".join(decode_stream(ByteStream(FileSource(path, ".txt", "", len(data)), account), account)), account


@pytest.mark.parametrize(
    ("codec", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-32-le", codecs.BOM_UTF32_LE),
        ("gb18030", b""),
        ("gbk", b""),
        ("gb2312", b""),
    ],
)
def test_encodings_are_recognised(tmp_path, codec, mark):
    text, account = text_of(tmp_path / "a.txt", mark + (CHINESE * 20).encode(codec))
    assert text == CHINESE * 20
    assert account.repaired == ({"file in GB18030": 1} if codec.startswith("gb") else {})


def test_long_files_of_many_bytes_per_character(tmp_path):
    long = CHINESE * 60_000  # over 4 MB: characters lie across chunks
    for codec in ("utf-8", "gb18030", "utf-16"):
        assert text_of(tmp_path / "a.txt", long.encode(codec))[0] == long


GERMAN = "Die Äpfel lagen schön im Garten, süße Früchte fielen über Nacht auf die Straße. "
QUOTED = "He said “no” – it’s a £5 café…"


@pytest.mark.parametrize(
    "text",
    [
        "café and more",
        FRENCH,
        FRENCH * 500,
        GERMAN,
        QUOTED,
        "plain words. " * 2000 + QUOTED,
        "la fée créée",
        "jäätelö",
        "El niño comió ¿qué? ¡sí!",
        "à Paris",
        "Smörgåsbord på ön",
    ],
)
def test_western_european_files_are_decoded_as_what_they_are(tmp_path, text):
    decoded, account = text_of(tmp_path / "a.txt", text.encode("cp1252"))
    assert decoded == text
    assert account.repaired == {"file in Windows-1252": 1}
    assert not account.damaged
    assert account.warnings == [f"{tmp_path / 'a.txt'}: file in Windows-1252"]


@pytest.mark.parametrize(
    ("data", "num_invalid"),
    [
        (b"ok \xff\xfe\xfd ok", 3),
        (CHINESE.encode()[:-1], 1),
        ((FRENCH * 3).encode() + b" caf\xe9 ", 1),
        ("Съешь же ещё этих мягких французских булок. ".encode("cp1251"), 36),
        ("Zażółć gęślą jaźń, pchnąć w tę łódź jeża. ".encode("cp1250"), 14),
    ],
)
def test_bytes_that_mean_nothing_are_counted_as_damage_not_as_repairs(tmp_path, data, num_invalid):
    text, account = text_of(tmp_path / "a.txt", data)
    assert text == data.decode("utf-8", "replace")
    assert text.count("\ufffd") == num_invalid
    assert not account.repaired
    assert account.damaged == {"places that are no UTF-8": num_invalid}
    warning = f"{tmp_path / 'a.txt'}: {num_invalid} places that are no UTF-8; replaced by U+FFFD"
    assert account.warnings == [warning]


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_read_and_told(tmp_path, codec):
    text, account = text_of(tmp_path / "a.txt", "Hello there, “wide” words — and 3 more.\n".encode(codec))
    assert text == "Hello there, “wide” words — and 3 more.\n"
    assert account.repaired == {"file in UTF-16 without a mark": 1}


def test_a_replacement_character_of_the_file_itself_is_no_damage(tmp_path):
    text, account = text_of(tmp_path / "a.txt", "once lost: \ufffd".encode())
    assert text == "once lost: \ufffd"
    assert not account.damaged


def test_damage_after_the_first_mebibyte_is_counted_too(tmp_path):
    text, account = text_of(tmp_path / "a.txt", b"good text\n" * 300_000 + b"\xff" + b"good text\n" * 300_000)
    assert text.count("\ufffd") == 1
    assert account.damaged == {"places that are no UTF-8": 1}


def test_every_newline_becomes_one(tmp_path):
    assert text_of(tmp_path / "a.txt", b"a\r\nb\rc\nd")[0] == "a\nb\nc\nd"
    wide = b"x" * ((1 << 20) - 1) + b"\r\n" + b"y"  # the pair lies across two chunks
    assert text_of(tmp_path / "a.txt", wide)[0].count("\n") == 1


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"\x1f\x8b\x08rest", "gzip"),
        (b"PAR1....", "parquet"),
        (b"%PDF-1.7", "PDF"),
        (b"PK\x03\x04", "zip"),
        (bytes(range(256)) * 40, "binary"),
        (b"abc" + bytes(1000), "binary"),
    ],
)
def test_what_is_no_text_is_refused(head, message):
    with pytest.raises(UnreadableFileError, match=message):
        detect_encoding(head, ".txt", is_complete=True)


def test_a_few_nul_bytes_are_no_reason_to_refuse():
    assert (
        detect_encoding(b"some text with\0 a few\0 of them in it, as happens now and then", ".txt", True).codec
        == "utf-8"
    )
