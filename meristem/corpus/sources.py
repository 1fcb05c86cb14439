"""From what a person names to the files, samples and hub data it stands for, always in the same order."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from urllib.parse import parse_qsl

from meristem import samples
from meristem.corpus.file_contents import FileContents
from meristem.corpus.file_search import displayed_name, glob_files, walk_files
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_kinds import (
    COMPRESSIONS,
    FORMATS,
    READABLE,
    Aligned,
    Builtin,
    File,
    Hub,
    Source,
    ending_of,
)
from meristem.corpus.table_keys import dialect_key
from meristem.errors import MeristemError, did_you_mean

HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
SWITCHED = ("boilerplate", "languages", "quality", "private", "near")
"""Settings that leave no trace in a corpus while they are off."""
VERSION = 1
"""Raised when reading or cleaning gives another result for the same input, so that old shards are not mistaken."""


@dataclass
class Found:
    """What the settings name, and what was passed over on the way."""

    sources: list[Source] = field(default_factory=list)
    held_out: dict[str, list[Source]] = field(default_factory=dict)
    """Validation and test data of their own, by split, test first."""
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def everything(self) -> list[Source]:
        """All that is read, in order: held-out data first, so that they can be taken out of the rest."""
        return [*(one for sources in self.held_out.values() for one in sources), *self.sources]


def resolve(settings: CorpusSettings) -> tuple[Source, ...]:
    """Everything the settings name: in the order given, sorted within a folder or glob, each once."""
    return tuple(survey(settings).sources)


def survey(settings: CorpusSettings) -> Found:
    """As `resolve`, with held-out data of their own, and the files that were skipped counted by their endings."""
    found = Found()
    for source, target in zip(settings.sources, settings.targets, strict=True):
        found.sources += _paired(source, target, settings, "source", found.skipped)
    for split, sources in settings.own_splits.items():
        each = (_paired(one, _target_beside(one, settings), settings, split, found.skipped) for one in sources)
        found.held_out[split] = list(dict.fromkeys(one for several in each for one in several))
    held_out = {_place(one): split for split, sources in found.held_out.items() for one in sources}
    found.skipped.update(f"(read as {held_out[_place(one)]} data)" for one in found.sources if _place(one) in held_out)
    found.sources = [one for one in dict.fromkeys(found.sources) if _place(one) not in held_out]
    for one in found.everything:
        _refuse_without_columns(one, settings)
    _refuse_mixed(found.everything, settings)
    if not found.sources:
        raise MeristemError(f"corpus.source: {', '.join(settings.sources)} is held-out data too, which leaves nothing "
                            "to train on")
    return found


def _place(source: Source) -> str:
    """What two names of one source share."""
    return str(source.path.resolve()) if isinstance(source, File) else source.name


def digest(settings: CorpusSettings) -> str:
    """A key of the documents these settings give: the same as long as nothing that matters has changed."""
    found = survey(settings)
    return fingerprint(settings.deciding(), keys(found.sources), *held_out_keys(found))


def held_out_keys(found: Found) -> list[object]:
    """What tells whether held-out data are still those they were; nothing where shares are held out."""
    return [{split: keys(sources) for split, sources in found.held_out.items()}] * bool(found.held_out)


def fingerprint(*parts: object) -> str:
    """A key of plain data, another one where reading or cleaning has changed."""
    whole = [VERSION, find_spec("ftfy") is not None, *parts]
    return hashlib.blake2b(json.dumps(whole, sort_keys=True).encode(), digest_size=16).hexdigest()


def keys(sources: Iterable[Source]) -> list[list[str | int | None]]:
    """What tells whether each source is still the one it was."""
    contents = FileContents()
    made = [_key(source, contents) for source in sources]
    contents.save()
    return made


def key(source: Source) -> list[str | int | None]:
    """What tells whether a source is still the one it was."""
    return keys([source])[0]


def _key(source: Source, contents: FileContents) -> list[str | int | None]:
    match source:
        case File():
            return _file_key(source, contents)
        case Aligned():
            return ["aligned", *_file_key(source.source, contents), *_file_key(source.target, contents)]
        case Builtin():
            return ["builtin", source.sample, samples.digest(source.sample)]
        case Hub():
            return ["hub", source.path, source.config, source.split]


def _file_key(file: File, contents: FileContents) -> list[str | int | None]:
    known_by = contents.key(file.path)
    return ["file", *known_by, *(dialect_key(file, tuple(known_by)) if file.format == "table" else [])]


def _paired(
    source: str, target: str | None, settings: CorpusSettings, setting: str, skipped: Counter[str]
) -> list[Source]:
    """The sources of one name, aligned with a target file where that is what the target is."""
    aligned = None if target is None else _aligned(Path(source).expanduser(), Path(target).expanduser(), settings)
    return [aligned] if aligned else list(_sources(source, settings, setting, skipped))


def _target_beside(data: str, settings: CorpusSettings) -> str | None:
    """The target of held-out data: the same column, or the file that goes with it."""
    target = settings.targets[0]
    if target is None or data.startswith("builtin:") or not Path(target).expanduser().is_file():
        return target
    return target_beside(data, settings.sources[0], target)


def target_beside(data: str, source: str, target: str) -> str:
    """The file that is to `data` what `target` is to `source`: test.de to test.en, as train.de to train.en."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(source, target, strict=False)))
    found = data.removesuffix(source[same:]) + target[same:]
    if not data.endswith(source[same:]) or not Path(found).expanduser().is_file():
        raise MeristemError(f"{data}: the run has its targets in a file beside its source ({source}, {target}), and "
                            "there is none beside this one; name both files alike")
    return found


def _aligned(source: Path, target: Path, settings: CorpusSettings) -> Aligned | None:
    """Two files to be read line by line, or nothing where the target is a column of the source."""
    kind = FORMATS.get(ending_of(source)[0], "text") if settings.format == "auto" else settings.format
    if not source.is_file() or kind not in ("text", "wikitext"):
        return None
    if not target.is_file():
        raise MeristemError(f"corpus.target: {source} has no columns, so that its target is a file with a line for "
                            f"each of its lines; {missing(target)}")
    return Aligned(*(_lines(path, settings.encoding or "") for path in (source, target)))


def _lines(path: Path, encoding: str) -> File:
    """A file of lines, whatever it ends in: train.en, train.de."""
    ending, compression = ending_of(path)
    return File(path, ending or path.suffix, compression, path.stat().st_size, "text", encoding)


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


def _sources(source: str, settings: CorpusSettings, setting: str, skipped: Counter[str]) -> Iterator[Source]:
    kind, colon, name = source.partition(":")
    path = Path(source).expanduser()
    if colon and kind == "builtin":
        yield _builtin(name, setting)
    elif colon and kind == "hub":
        yield hub(name)
    elif path.is_dir():
        yield from _folder(path, settings, skipped)
    elif path.exists():
        yield _file(path, settings) or _refuse(path)
    elif any(mark in source for mark in "*?["):
        yield from _glob(path, settings, setting, skipped)
    elif HUB_NAME.fullmatch(source) and not path.parent.is_dir() and not ending_of(path)[0]:
        yield Hub(source)
    else:
        raise MeristemError(f"corpus.{setting}: {missing(path)}")


def _builtin(text: str, setting: str) -> Builtin:
    known, name = list(samples.known()), text.partition("?")[0]
    if name in samples.known_sets():
        raise MeristemError(f"corpus.{setting}: builtin:{text} is labelled data for a task: data.train=builtin:{name}")
    if name not in known:
        raise MeristemError(f"corpus.{setting}: no sample builtin:{text}{did_you_mean(text, known)}")
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


def _file(path: Path, settings: CorpusSettings) -> File | None:
    ending, compression = ending_of(path)
    read_as = "" if settings.format == "auto" else settings.format
    if not path.is_file() or not (ending or read_as):
        return None
    ending = ending or Path(path.name.removesuffix(compression)).suffix.lower()
    return File(path, ending, compression, path.stat().st_size, read_as, settings.encoding or "")


def _refuse(path: Path) -> File:
    if not path.is_file():
        raise MeristemError(f"{path}: a pipe, a device or a socket, not a file; save what it gives to a file first")
    shown = "".join(path.suffixes[-2:]) if path.suffix.lower() in COMPRESSIONS else path.suffix
    what = f"files ending in {shown}" if shown else "a file without an ending"
    raise MeristemError(f"{path}: {what} cannot be read; readable are {READABLE}; or say what it is, for instance "
                        "corpus.format=text")


def _folder(folder: Path, settings: CorpusSettings, skipped: Counter[str]) -> Iterator[File]:
    passed: Counter[str] = Counter()
    files = walk_files(folder, passed)
    readable = list(_readable(files, settings, passed))
    if not readable:
        seen = ", ".join(f"{ending} ({count:,})" for ending, count in passed.most_common(8)) or "no files at all"
        raise MeristemError(f"{folder}: no text in this folder; it holds {seen}; readable are {READABLE}")
    skipped.update(passed)
    yield from readable


def _glob(pattern: Path, settings: CorpusSettings, setting: str, skipped: Counter[str]) -> Iterator[File]:
    root = Path(pattern.anchor)
    files = glob_files(root, str(pattern.relative_to(root)), skipped)
    readable = list(_readable(files, settings, skipped))
    if not readable:
        what = f"matches only files that cannot be read; readable are {READABLE}" if files else "matches no file"
        raise MeristemError(f"corpus.{setting}: {pattern} {what}")
    yield from readable


def _readable(paths: list[Path], settings: CorpusSettings, skipped: Counter[str]) -> Iterator[File]:
    for path in paths:
        found = None if path.name.startswith(".") else _file(path, settings)
        if found:
            yield found
        elif path.name.startswith("."):
            skipped["(hidden)"] += 1
        else:
            skipped[displayed_name(path.suffix.lower()) or "(no ending)"] += 1


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
