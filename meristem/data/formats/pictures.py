"""Image folders with a caption file (captions.tsv, metadata.jsonl, …)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.data.formats.jsonl import JsonlFormat
from meristem.data.formats.table import TableFormat
from meristem.data.read_counts import ReadCounts
from meristem.data.records import BadRecord, FileFormat, ReadOptions, Record
from meristem.data.sources import FileSource

CAPTION_FILE_STEMS = ("captions", "metadata", "caption", "labels", "results", "index")
CAPTION_FORMATS: dict[str, type[FileFormat]] = {
    ".jsonl": JsonlFormat,
    ".tsv": TableFormat,
    ".csv": TableFormat,
    ".txt": TableFormat,
}


class PicturesFormat(FileFormat):
    """The captions of a folder's images, or a caption file given directly."""

    def __init__(self, file: FileSource, options: ReadOptions, counts: ReadCounts) -> None:
        super().__init__(file, options, counts)
        suffix = file.path.suffix.lower()
        if suffix not in CAPTION_FORMATS:
            raise MeristemError(f"{file.path}: captions are read from {', '.join(CAPTION_FORMATS)} files")
        self._captions = CAPTION_FORMATS[suffix](file, options, counts)
        self.columns, self.text_columns = self._captions.columns, self._captions.text_columns
        self.columns_location = self._captions.columns_location

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The rows of the caption file."""
        return self._captions.records(columns)


def find_caption_file(folder: Path) -> Path:
    """The file with the captions of a folder's images."""
    candidates = [folder / f"{stem}{ending}" for stem in CAPTION_FILE_STEMS for ending in CAPTION_FORMATS]
    caption_path = next((path for path in candidates if path.is_file()), None)
    if caption_path is None:
        expected_files = (
            "captions.tsv (file TAB caption on each line), captions.csv, captions.txt, captions.jsonl or metadata.jsonl"
        )
        raise MeristemError(f"{folder}: no caption file in this folder; expected {expected_files}{list_files(folder)}")
    return caption_path


def list_files(folder: Path) -> str:
    """The first files of a folder, for messages."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return f"; it holds {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if names else "; it holds no files"
