"""Data that lie: pictures, compressed traps, tables, labelled files, vectors, pairs."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile.artifact_files import BOMB, PASSED, REFUSED, TAKEN, Artifact, Good, file, large, zipped
from PIL import Image

PICTURE = ("look_at_picture",)
CORPUS = ("read_corpus",)
VECTORS = ("read_word_vectors",)


def data() -> Iterator[Artifact]:
    """All of them."""
    yield from _pictures()
    yield from _corpora()
    yield from _labelled()
    yield from _vectors()


# ---------------------------------------------------------------- pictures


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _png(width: int, height: int, rows: int) -> bytes:
    """A PNG that says it is so large, and holds some black rows."""
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = zlib.compress(b"\0" * min((3 * width + 1) * rows, 1 << 24))
    return b"\x89PNG\r\n\x1a\n" + head + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _gif() -> bytes:
    """Of which only the first frame is looked at."""
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    return b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + b"\0" * 6 + frame * 100_000 + b";"


def _jpeg() -> bytes:
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(buffer, "JPEG")
    return buffer.getvalue()


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(mkdir planted) system\n%%EOF\n"
PICTURES: dict[str, bytes | Callable[[Path], object]] = {
    "a PNG of 10 to the 10 pixels": lambda path: path.write_bytes(_png(100_000, 100_000, 10)),
    "a PNG of 100 million pixels": lambda path: path.write_bytes(_png(10_000, 10_000, 10)),
    "a PNG of 2 to the 31 columns": lambda path: path.write_bytes(_png((1 << 31) - 1, 1, 0)),
    "a JPEG cut in half": lambda path: path.write_bytes(_jpeg()[:600]),
    "an SVG": b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>",
    "an SVG with entities": b"<!DOCTYPE s [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><svg>&a;</svg>",
    "an EPS that runs a program": EPS,
    "a pickle": BOMB,
    "a picture without a byte": b"",
    "a file of 200 MB": lambda path: large(path, b"\x89PNG\r\n\x1a\n", b"\0", 200 << 20),
}


def _pictures() -> Iterator[Artifact]:
    for kind, content in PICTURES.items():
        yield Artifact(
            name=f"{kind} as a picture", make=file("picture.png", content), entry_points=PICTURE, message="picture.png"
        )
    yield Artifact(
        name="a GIF of 100,000 frames as a picture", make=file("x.gif", _gif()), entry_points=PICTURE, outcome=TAKEN
    )
    yield Artifact(name="a captions file that names /etc/passwd", make=_captions,
                   entry_points=("read_labelled_image",),
                   message="not an image")  # fmt: skip


def _captions(folder: Path, good: Good) -> Path:
    (folder / "captions.tsv").write_text("file\tcaption\n../../../../../../../../etc/passwd\ta secret\n")
    return folder / "captions.tsv"


# ---------------------------------------------------------------- corpora


def _zstd(path: Path) -> None:
    import zstandard

    with path.open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as compressor:
        for _ in range(1024):
            compressor.write(b"word " * 209_715)


def _parquet(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"text": ["a text", "another text"]}), path)
        path.write_bytes(change(path.read_bytes()))

    return write


def _trap(path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"text": ["a" * (48 << 20)]})
    pyarrow.parquet.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)


FOOT = b"\xff\xff\xff\x7fPAR1"
LINE = b'{"text": "%b"}\n' % (b"a word " * 150)
NOISE = gzip.compress(np.random.default_rng(0).bytes(4096))[:2000]
CORPORA: dict[str, tuple[str, bytes | Callable[[Path], object], str]] = {
    "a gzip trap": ("text.txt.gz", lambda path: zipped(path, b"word ", 1 << 30), PASSED),
    "a gzip trap of lines": ("text.jsonl.gz", lambda path: zipped(path, LINE, 1 << 30), PASSED),
    "a zstd trap": ("text.txt.zst", _zstd, REFUSED),
    "a gzip file cut in half": ("text.txt.gz", NOISE, REFUSED),
    "text named as gzip": ("text.txt.gz", b"no gzip at all " * 100, REFUSED),
    "a line of 200 MB": ("text.jsonl", lambda path: large(path, b'{"text": "', b"a", 200 << 20, b'"}\n'), REFUSED),
    "a cell of 20 MB": ("text.csv", lambda path: large(path, b'text\n"', b"a b " * 4096 + b"\n", 20 << 20), PASSED),
    "JSON of depth 100,000": ("text.jsonl", b'{"text": "a good line"}\n' + b'{"text":' * 100_000, PASSED),
    "a program": ("text.txt", b"\x7fELF" + bytes(range(256)) * 20, REFUSED),
    "a zip": ("text.txt", b"PK\x03\x04" + bytes(range(256)) * 20, REFUSED),
    "parquet with a foot beyond the file": ("text.parquet", _parquet(lambda raw: raw[:-8] + FOOT), REFUSED),
    "parquet with a foot of noise": (
        "text.parquet",
        _parquet(lambda raw: raw[:20] + b"\xff" * 400 + raw[-8:]),
        REFUSED,
    ),
    "a parquet trap": ("text.parquet", _trap, REFUSED),
    "parquet cut in half": ("text.parquet", _parquet(lambda raw: raw[: len(raw) // 2]), REFUSED),
}


def _corpora() -> Iterator[Artifact]:
    for kind, (name, content, outcome) in CORPORA.items():
        yield Artifact(
            name=f"{kind} as a corpus", make=file(name, content), entry_points=CORPUS, message=name, outcome=outcome
        )


# ---------------------------------------------------------------- labelled files


def _squad(**answer: Any) -> bytes:
    question = {"id": "1", "question": "who?", "answers": [{"text": "me", "answer_start": 0, **answer}]}
    return json.dumps({"data": [{"paragraphs": [{"context": "you and me", "qas": [question]}]}]}).encode()


LABELLED: dict[str, tuple[str, str, bytes | Callable[[Path], object]]] = {
    "JSON of depth 100,000": ("text", "bad.json", b'[{"text":' * 100_000),
    "JSON lines of depth 100,000": ("text", "bad.jsonl", b'{"text":' * 100_000 + b"\n"),
    "a pickle named .json": ("text", "bad.json", BOMB),
    "a pickle named .jsonl": ("text", "bad.jsonl", BOMB),
    "a pickle named .csv": ("text", "bad.csv", BOMB),
    "a pickle named .parquet": ("text", "bad.parquet", BOMB),
    "a gzip trap": ("text", "bad.json.gz", lambda path: zipped(path, b"[[[[", 1 << 30)),
    "SQuAD with an answer at 10 to the 18": ("span", "bad.json", _squad(text="none", answer_start=10**18)),
    "SQuAD with an answer at infinity": ("span", "bad.json", _squad(answer_start=float("inf"))),
    "SQuAD with an answer before the text": ("span", "bad.json", _squad(text="none", answer_start=-(10**18))),
    "SQuAD with a list as an answer": ("span", "bad.json", _squad(text=["me"])),
    "SQuAD with a number as paragraphs": ("span", "bad.json", b'{"data": [{"paragraphs": 5}]}'),
    "SQuAD with numbers as questions": (
        "span", "bad.json", b'{"data": [{"paragraphs": [{"context": "a b", "qas": [5, null]}]}]}'),
    "CoNLL with a million columns": (
        "words", "bad.conll", b"word\tX\nother" + b"\tX" * 1_000_000 + b"\n"),
    "CoNLL with a line of 200 MB": ("words", "bad.conll", lambda path: large(path, b"word ", b"a", 200 << 20, b"\n")),
    "a table with a line of 200 MB": ("text", "bad.csv", lambda path: large(path, b"text,label\na,", b"b", 200 << 20)),
    "a table with an open quote": ("text", "bad.csv", b'text,label\n"a,b\n' + b"c,d\n" * 100),
}  # fmt: skip


def _labelled() -> Iterator[Artifact]:
    for kind, (shape, name, content) in LABELLED.items():
        yield Artifact(
            name=f"{kind}, labelled", make=file(name, content), entry_points=(f"read_labelled_{shape}",), message=name
        )


# ---------------------------------------------------------------- vectors and pairs


def _archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.jsonl", "w") as member:
        for _ in range(48):
            member.write(b"\n" * (1 << 20))


def _vectors() -> Iterator[Artifact]:
    binary = b"\x00\x00\x80\x3f"
    for kind, name, content in (
        ("that promises vectors of 10 to the 12 numbers", "v.bin", b"10 1000000000000\nword " + binary * 8),
        ("that promises 10 to the 18 words", "v.bin", b"1000000000000000000 2\nword " + binary * 2),
        ("of a word without end", "v.bin", b"3 2\n" + b"\xff" * 9000),
        ("that is not finite", "v.txt", b"word nan 1.0\n"),
        ("of texts for numbers", "v.txt", b"word one two\n"),
        ("of a line of 200 MB", "v.txt", lambda path: large(path, b"word ", b"1 ", 200 << 20)),
    ):
        yield Artifact(name=f"a file of vectors {kind}", make=file(name, content), entry_points=VECTORS, message=name)  # type: ignore[arg-type]  # bytes, or what writes them
    for kind, name, content in (
        ("of depth 100,000", "p.jsonl", b'{"a":' * 100_000),
        ("of 200 MB", "p.jsonl", lambda path: large(path, b"", b"\n", 200 << 20)),
        ("in a zip trap", "p.zip", _archive),
        ("in a zip that is a pickle", "p.zip", BOMB),
    ):
        yield Artifact(
            name=f"minimal pairs {kind}", make=file(name, content), entry_points=("read_minimal_pairs",), message=name
        )  # type: ignore[arg-type]  # the same
