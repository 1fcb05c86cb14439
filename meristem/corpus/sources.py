"""From what a person names to the files, samples and hub data it stands for, always in the same order."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qsl

from meristem import samples
from meristem.corpus.settings import CorpusSettings
from meristem.settings import MeristemError, did_you_mean

FORMATS = {
    ".txt": "text", ".text": "text", ".md": "text",
    ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".csv": "table", ".tsv": "table",
    ".parquet": "parquet",
}
COMPRESSIONS = (".gz", ".zst")
READABLE = f"{' '.join(FORMATS)}, each also {' or '.join(COMPRESSIONS)}"
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
VERSION = 1
"""Raised when reading or cleaning gives another result for the same input, so that old shards are not mistaken."""


@dataclass(frozen=True)
class File:
    """A file that can be read, by what its ending says it is."""

    path: Path
    ending: str
    compression: str
    size: int

    @property
    def name(self) -> str:
        """How places and messages call it."""
        return str(self.path)

    @property
    def format(self) -> str:
        """The reader it needs."""
        return FORMATS[self.ending]


@dataclass(frozen=True)
class Builtin:
    """A sample that exists on every machine."""

    sample: str
    format = "builtin"
    size = 0

    @property
    def name(self) -> str:
        """How places and messages call it."""
        return f"builtin:{self.sample}"


@dataclass(frozen=True)
class Hub:
    """A data set reached through `datasets`."""

    path: str
    config: str | None = None
    split: str = "train"
    format = "hub"
    size = 0

    @property
    def name(self) -> str:
        """How places and messages call it."""
        return f"hub:{self.path}"


Source = File | Builtin | Hub


@dataclass
class Found:
    """What the settings name, and what was passed over on the way."""

    sources: list[Source] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def resolve(settings: CorpusSettings) -> tuple[Source, ...]:
    """Everything the settings name: in the order given, sorted within a folder or glob, each once."""
    return tuple(survey(settings).sources)


def survey(settings: CorpusSettings) -> Found:
    """As `resolve`, with the files that were skipped counted by their endings."""
    found = Found()
    for source in settings.sources:
        found.sources.extend(_sources(source, found.skipped))
    found.sources = list(dict.fromkeys(found.sources))
    return found


def digest(settings: CorpusSettings) -> str:
    """A key of the documents these settings give: the same as long as nothing that matters has changed."""
    keys: list[list[str | int | None]] = []
    for source in resolve(settings):
        match source:
            case File():
                path = source.path.resolve()
                keys.append(["file", str(path), source.size, path.stat().st_mtime_ns])
            case Builtin():
                keys.append(["builtin", source.sample, samples.digest(source.sample)])
            case Hub():
                keys.append(["hub", source.path, source.config, source.split])
    plain = settings.model_dump(mode="json", exclude={"source", "processes"})
    whole = [VERSION, find_spec("ftfy") is not None, plain, keys]
    return hashlib.blake2b(json.dumps(whole, sort_keys=True).encode(), digest_size=16).hexdigest()


def _sources(source: str, skipped: Counter[str]) -> Iterator[Source]:
    kind, colon, name = source.partition(":")
    path = Path(source).expanduser()
    if colon and kind == "builtin":
        yield _builtin(name)
    elif colon and kind == "hub":
        yield _hub(name)
    elif path.is_dir():
        yield from _folder(path, skipped)
    elif path.exists():
        yield _file(path) or _refuse(path)
    elif any(mark in source for mark in "*?["):
        yield from _glob(path, skipped)
    elif HUB_NAME.fullmatch(source) and not path.parent.is_dir() and not _ending(path)[0]:
        yield Hub(source)
    else:
        raise MeristemError(f"corpus.source: {_missing(path)}")


def _builtin(text: str) -> Builtin:
    known = list(samples.known())
    if text.partition("?")[0] not in known:
        raise MeristemError(f"corpus.source: no sample builtin:{text}{did_you_mean(text, known)}")
    return Builtin(text)


def _hub(text: str) -> Hub:
    name, _, query = text.partition("?")
    options = dict(parse_qsl(query))
    for key in options:
        if key not in {"config", "split"}:
            raise MeristemError(f"hub:{text}: unknown option {key!r}{did_you_mean(key, ['config', 'split'])}")
    if not name:
        raise MeristemError("corpus.source: hub: wants a name, for instance hub:OWNER/NAME?config=CONFIG&split=train")
    return Hub(name, options.get("config"), options.get("split", "train"))


def _ending(path: Path) -> tuple[str, str]:
    """The ending that tells the format, and the one that tells the compression; empty when unknown or none."""
    endings = [suffix.lower() for suffix in path.suffixes]
    compression = endings.pop() if endings and endings[-1] in COMPRESSIONS else ""
    known = endings[-1] if endings and endings[-1] in FORMATS else ""
    return known, compression


def _file(path: Path) -> File | None:
    ending, compression = _ending(path)
    return File(path, ending, compression, path.stat().st_size) if ending and path.is_file() else None


def _refuse(path: Path) -> File:
    shown = "".join(path.suffixes[-2:]) if path.suffix.lower() in COMPRESSIONS else path.suffix
    what = f"files ending in {shown}" if shown else "a file without an ending"
    raise MeristemError(f"{path}: {what} cannot be read; readable are {READABLE}")


def _folder(folder: Path, skipped: Counter[str]) -> Iterator[File]:
    files = sorted(Path(root, name) for root, folders, names in os.walk(folder) if _prune(folders) for name in names)
    passed: Counter[str] = Counter()
    readable = list(_readable(files, passed))
    if not readable:
        seen = ", ".join(f"{ending} ({count:,})" for ending, count in passed.most_common(8)) or "no files at all"
        raise MeristemError(f"{folder}: no text in this folder; it holds {seen}; readable are {READABLE}")
    skipped.update(passed)
    yield from readable


def _prune(folders: list[str]) -> bool:
    """Keep `os.walk` out of hidden folders: it goes where this list, changed in place, lets it."""
    folders[:] = sorted(name for name in folders if not name.startswith("."))
    return True


def _glob(pattern: Path, skipped: Counter[str]) -> Iterator[File]:
    root = Path(pattern.anchor)
    files = sorted(path for path in root.glob(str(pattern.relative_to(root))) if path.is_file())
    readable = list(_readable(files, skipped))
    if not readable:
        what = f"matches only files that cannot be read; readable are {READABLE}" if files else "matches no file"
        raise MeristemError(f"corpus.source: {pattern} {what}")
    yield from readable


def _readable(paths: list[Path], skipped: Counter[str]) -> Iterator[File]:
    for path in paths:
        found = None if path.name.startswith(".") else _file(path)
        if found:
            yield found
        elif path.name.startswith("."):
            skipped["(hidden)"] += 1
        else:
            skipped[path.suffix.lower() or "(no ending)"] += 1


def _missing(path: Path) -> str:
    """Which part of a path does not exist, and what may have been meant."""
    there = next(parent for parent in path.parents if parent.is_dir())
    wrong = path.relative_to(there).parts[0]
    siblings = [entry.name for entry in there.iterdir() if not entry.name.startswith(".")][:1000]
    if len(siblings) <= 20 or did_you_mean(wrong, siblings).startswith(","):
        hint = did_you_mean(wrong, siblings) if siblings else "; that folder is empty"
    else:
        hint = f"; {there} holds {len(siblings)} others"
    return f"no such file or folder: {path} ({wrong!r} is not in {there}{hint})"
