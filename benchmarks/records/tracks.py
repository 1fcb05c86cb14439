"""Tracks of the record table: training text with its document boundaries, tokenizer size, and minimal pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCUMENT_CHARACTERS = 4000
"""Characters of one document where the source has no document boundaries: consecutive lines are joined up to it."""


@dataclass(frozen=True)
class Track:
    """Fixed training text, settings that every recipe of the track gets, and minimal pairs by suite."""

    name: str
    text: str
    """Folder or file below the data folder."""
    document: str
    """`lines`: consecutive lines joined; `block`: paragraphs between blank lines; `article`: wikitext headings."""
    settings: dict[str, object]
    pairs: dict[str, str]
    """Suite of minimal pairs → its file or folder below the data folder."""


TRACKS = {
    track.name: track
    for track in (
        Track(
            "baby10m",
            "baby10m",
            "lines",
            {"tokenizer.vocab_size": 8192},
            {"blimp": "blimp/BLiMP.zip", "supplement": "blimp_supplement"},
        ),
        Track("zhwiki", "zhwiki/wiki.txt", "block", {"tokenizer.vocab_size": 8192}, {"zhoblimp": "zhoblimp"}),
        Track("wikitext-2", "wikitext-2/train.txt", "article", {"tokenizer.vocab_size": 8192}, {}),
    )
}


def documents(track: Track, data: Path) -> Iterator[str]:
    """The documents of a track, file by file in the order of their names."""
    path = data / track.text
    for file in sorted(path.glob("*.txt")) if path.is_dir() else [path]:
        yield from _split_documents(file.read_text(encoding="utf-8").splitlines(), track.document)


def _split_documents(lines: list[str], document: str) -> Iterator[str]:
    current: list[str] = []
    characters = 0
    for line in (line.strip() for line in lines):
        starts_document = (
            (document == "lines" and characters >= DOCUMENT_CHARACTERS)
            or (document == "block" and not line)
            or (document == "article" and line.startswith("= ") and not line.startswith("= ="))
        )
        if starts_document and current:
            yield "\n".join(current)
            current, characters = [], 0
        if line:
            current.append(line)
            characters += len(line)
    if current:
        yield "\n".join(current)


def write_source(track: Track, data: Path, work: Path) -> Path:
    """The track's documents as a .jsonl file in the work folder; written once."""
    out = work / f"{track.name}.jsonl"
    if not out.is_file():
        work.mkdir(parents=True, exist_ok=True)
        unfinished = out.with_suffix(".part")
        with unfinished.open("w", encoding="utf-8") as file:
            for text in documents(track, data):
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        unfinished.rename(out)
    return out


def pairs_path(data: Path, name: str) -> Path:
    """The file or folder of a suite; the only archive in a folder counts as the suite."""
    path = data / name
    archives = sorted([*path.glob("*.zip"), *path.glob("*.tar.gz")]) if path.is_dir() else []
    return archives[0] if len(archives) == 1 and not any(path.glob("*.jsonl")) else path
