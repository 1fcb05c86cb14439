"""Image folders with a caption file (captions.tsv, metadata.jsonl, …)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.labelled.formats import SourceSpec, jsonl, table
from meristem.labelled.rows import ReadNotes, RowStream

CAPTION_FILE_STEMS = ("captions", "metadata", "caption", "labels", "results", "index")
IMAGE_SAMPLE_TYPES = ("picture", "picture_prompt")
"""Sample types whose input is an image."""
READERS = {".jsonl": jsonl.read, ".tsv": table.read, ".csv": table.read, ".txt": table.read}


def read(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """The rows of the caption file of a folder, or of a caption file given directly."""
    path = spec.path
    if spec.sample_type not in IMAGE_SAMPLE_TYPES and spec.settings.format != "pictures":
        raise MeristemError(f"data.{spec.split}: {path} is a folder; give the file in it{_list_files(path)}")
    file = _caption_file(path) if path.is_dir() else path
    if file.suffix.lower() not in READERS:
        raise MeristemError(f"{file}: captions are read from {', '.join(READERS)} files")
    return READERS[file.suffix.lower()](replace(spec, source=str(file)), notes)


def _caption_file(folder: Path) -> Path:
    candidates = [folder / f"{stem}{ending}" for stem in CAPTION_FILE_STEMS for ending in READERS]
    caption_path = next((path for path in candidates if path.is_file()), None)
    if caption_path is None:
        expected_files = (
            "captions.tsv (file TAB caption on each line), captions.csv, captions.txt, captions.jsonl or metadata.jsonl"
        )
        raise MeristemError(f"{folder}: no caption file in this folder; expected {expected_files}{_list_files(folder)}")
    return caption_path


def _list_files(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return f"; it holds {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if names else "; it holds no files"
