"""A folder of pictures with a file that says what is on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from meristem.errors import MeristemError
from meristem.labelled.formats import Asked, jsonl, table
from meristem.labelled.found import Notes, Rows

STEMS = ("captions", "metadata", "caption", "labels", "results", "index")
SHAPES = ("picture", "picture_prompt")
"""Shapes of samples whose input is a picture."""
READERS = {".jsonl": jsonl.read, ".tsv": table.read, ".csv": table.read, ".txt": table.read}


def read(asked: Asked, notes: Notes) -> Rows:
    """The rows of the caption file; a file instead of a folder is one itself."""
    path = asked.path
    if asked.shape not in SHAPES and asked.data.format != "pictures":
        raise MeristemError(f"data.{asked.split}: {path} is a folder; name the file in it{_held(path)}")
    file = _caption_file(path) if path.is_dir() else path
    if file.suffix.lower() not in READERS:
        raise MeristemError(f"{file}: captions are read from {', '.join(READERS)} files")
    return READERS[file.suffix.lower()](replace(asked, source=str(file)), notes)


def _caption_file(folder: Path) -> Path:
    named = [folder / f"{stem}{ending}" for stem in STEMS for ending in READERS]
    found = next((path for path in named if path.is_file()), None)
    if found is None:
        wanted = "captions.tsv (file TAB caption a line), captions.csv, captions.txt, captions.jsonl or metadata.jsonl"
        raise MeristemError(f"{folder}: no file with captions in this folder; wanted is {wanted}{_held(folder)}")
    return found


def _held(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return f"; it holds {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if names else "; it holds no files"
