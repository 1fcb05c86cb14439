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
from meristem.errors import MeristemError, did_you_mean

FORMATS = {
    ".txt": "text", ".text": "text", ".md": "text",
    ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".csv": "table", ".tsv": "table",
    ".parquet": "parquet",
}
COMPRESSIONS = (".gz", ".zst")
READABLE = f"{' '.join(FORMATS)}, each also {' or '.join(COMPRESSIONS)}"
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
SWITCHED = ("boilerplate", "languages", "quality", "private", "near")
"""Settings that leave no trace in a corpus while they are off."""
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


@dataclass(frozen=True)
class Aligned:
    """Two files of as many lines, each line of the one belonging to the same line of the other."""

    source: File
    target: File
    format = "aligned"

    @property
    def name(self) -> str:
        """How places and messages call it."""
        return self.source.name

    @property
    def size(self) -> int:
        """Bytes of both."""
        return self.source.size + self.target.size


Source = File | Builtin | Hub | Aligned


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
    for source, target in zip(settings.sources, settings.targets, strict=True):
        aligned = None if target is None else _aligned(Path(source).expanduser(), Path(target).expanduser())
        found.sources.extend([aligned] if aligned else _sources(source, found.skipped))
    found.sources = list(dict.fromkeys(found.sources))
    for one in found.sources:
        _refuse_without_columns(one, settings)
    _refuse_mixed(found.sources, settings)
    return found


def digest(settings: CorpusSettings) -> str:
    """A key of the documents these settings give: the same as long as nothing that matters has changed."""
    return fingerprint(settings.deciding(), [key(source) for source in resolve(settings)])


def fingerprint(*parts: object) -> str:
    """A key of plain data, another one where reading or cleaning has changed."""
    whole = [VERSION, find_spec("ftfy") is not None, *parts]
    return hashlib.blake2b(json.dumps(whole, sort_keys=True).encode(), digest_size=16).hexdigest()


def key(source: Source) -> list[str | int | None]:
    """What tells whether a source is still the one it was."""
    match source:
        case File():
            return _file_key(source)
        case Aligned():
            return ["aligned", *_file_key(source.source), *_file_key(source.target)]
        case Builtin():
            return ["builtin", source.sample, samples.digest(source.sample)]
        case Hub():
            return ["hub", source.path, source.config, source.split]


def _file_key(file: File) -> list[str | int | None]:
    path = file.path.resolve()
    return ["file", str(path), file.size, path.stat().st_mtime_ns]


def _aligned(source: Path, target: Path) -> Aligned | None:
    """Two files to be read line by line, or nothing where the target is a column of the source."""
    if not source.is_file() or FORMATS.get(_ending(source)[0], "text") != "text":
        return None
    if not target.is_file():
        raise MeristemError(f"corpus.target: {source} has no columns, so that its target is a file with a line for "
                            f"each of its lines; {missing(target)}")
    return Aligned(*(_lines(path) for path in (source, target)))


def _lines(path: Path) -> File:
    """A file of lines, whatever it ends in: train.en, train.de."""
    ending, compression = _ending(path)
    return File(path, ending or path.suffix, compression, path.stat().st_size)


def _refuse_without_columns(source: Source, settings: CorpusSettings) -> None:
    """A target or a picture is a column of its source, unless the target is a file beside it."""
    if settings.target is not None and source.format not in ("jsonl", "table", "parquet", "hub", "aligned"):
        raise MeristemError(f"{source.name}: corpus.target is a column of jsonl, csv, tsv, parquet or hub data, or a "
                            "file with a line for each line of a source that is one file")
    if settings.picture is not None and source.format not in ("jsonl", "table"):
        raise MeristemError(f"{source.name}: corpus.picture is a column of a jsonl, csv or tsv file")


def _refuse_mixed(sources: list[Source], settings: CorpusSettings) -> None:
    """Pairs, pictures and plain text are different corpora."""
    kinds = {samples.kind(one.sample) if isinstance(one, Builtin) else "text" for one in sources}
    if settings.target is None and settings.picture is None and len(kinds) > 1:
        raise MeristemError(f"corpus.source: {', '.join(settings.sources)} are {' and '.join(sorted(kinds))}; "
                            "give each its own entry in mix")


def _sources(source: str, skipped: Counter[str]) -> Iterator[Source]:
    kind, colon, name = source.partition(":")
    path = Path(source).expanduser()
    if colon and kind == "builtin":
        yield _builtin(name)
    elif colon and kind == "hub":
        yield hub(name)
    elif path.is_dir():
        yield from _folder(path, skipped)
    elif path.exists():
        yield _file(path) or _refuse(path)
    elif any(mark in source for mark in "*?["):
        yield from _glob(path, skipped)
    elif HUB_NAME.fullmatch(source) and not path.parent.is_dir() and not _ending(path)[0]:
        yield Hub(source)
    else:
        raise MeristemError(f"corpus.source: {missing(path)}")


def _builtin(text: str) -> Builtin:
    known, name = list(samples.known()), text.partition("?")[0]
    if name in samples.known_sets():
        raise MeristemError(f"corpus.source: builtin:{text} is labelled data for a task: data.train=builtin:{name}")
    if name not in known:
        raise MeristemError(f"corpus.source: no sample builtin:{text}{did_you_mean(text, known)}")
    return Builtin(text)


def hub(text: str) -> Hub:
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


def missing(path: Path) -> str:
    """Which part of a path does not exist, and what may have been meant."""
    there = next(parent for parent in path.parents if parent.is_dir())
    wrong = path.relative_to(there).parts[0]
    siblings = [entry.name for entry in there.iterdir() if not entry.name.startswith(".")][:1000]
    if len(siblings) <= 20 or did_you_mean(wrong, siblings).startswith(","):
        hint = did_you_mean(wrong, siblings) if siblings else "; that folder is empty"
    else:
        hint = f"; {there} holds {len(siblings)} others"
    return f"no such file or folder: {path} ({wrong!r} is not in {there}{hint})"
