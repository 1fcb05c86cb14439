"""Resolves corpus.source into files, built-in samples and Hugging Face datasets, always in the same order."""

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
from meristem.config.errors import MeristemError, did_you_mean
from meristem.corpus.file_contents import FileContents
from meristem.corpus.read.dialect_key import dialect_key
from meristem.corpus.read.file_search import displayed_name, glob_files, walk_files
from meristem.corpus.read.source_kinds import (
    COMPRESSIONS,
    FORMATS,
    READABLE_FORMATS,
    AlignedSource,
    BuiltinSource,
    FileSource,
    HubSource,
    Source,
    split_extensions,
)
from meristem.corpus.settings import CorpusSettings

HUB_NAME_PATTERN = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
READER_VERSION = 1
"""Increased when reading or cleaning gives another result for the same input, so that old datasets are not reused."""


@dataclass
class ResolvedSources:
    """The sources that the settings name, and the files that were skipped."""

    sources: list[Source] = field(default_factory=list)
    held_out: dict[str, list[Source]] = field(default_factory=dict)
    """Separate validation and test data by split, test first."""
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def all_sources(self) -> list[Source]:
        """All sources in reading order: held-out data first, so that they can be removed from the rest."""
        return [*(source for sources in self.held_out.values() for source in sources), *self.sources]


def resolve_sources(settings: CorpusSettings) -> tuple[Source, ...]:
    """All sources in the settings: in the order given, sorted within a folder or glob, without duplicates."""
    return tuple(find_sources(settings).sources)


def find_sources(settings: CorpusSettings) -> ResolvedSources:
    """As `resolve_sources`, with separate held-out data and the skipped files, counted by extension."""
    resolved = ResolvedSources()
    for source, target in zip(settings.sources, settings.targets, strict=True):
        resolved.sources += _sources_with_target(source, target, settings, "source", resolved.skipped)
    for split, sources in settings.held_out_sources.items():
        source_lists = (
            _sources_with_target(entry, _held_out_target(entry, settings), settings, split, resolved.skipped)
            for entry in sources
        )
        resolved.held_out[split] = list(dict.fromkeys(entry for source_list in source_lists for entry in source_list))
    held_out = {_source_path(entry): split for split, sources in resolved.held_out.items() for entry in sources}
    resolved.skipped.update(
        f"(read as {held_out[_source_path(entry)]} data)"
        for entry in resolved.sources
        if _source_path(entry) in held_out
    )
    resolved.sources = [entry for entry in dict.fromkeys(resolved.sources) if _source_path(entry) not in held_out]
    for entry in resolved.all_sources:
        _check_columns(entry, settings)
    _check_same_kind(resolved.all_sources, settings)
    if not resolved.sources:
        raise MeristemError(
            f"corpus.source: {', '.join(settings.sources)} is also held-out data, which leaves nothing to train on"
        )
    return resolved


def _source_path(source: Source) -> str:
    """A path that is the same for all names of one source."""
    return str(source.path.resolve()) if isinstance(source, FileSource) else source.name


def corpus_digest(settings: CorpusSettings) -> str:
    """A cache key of the documents: the same as long as no setting or file that affects them has changed."""
    resolved = find_sources(settings)
    return fingerprint(settings.cache_key_fields(), keys(resolved.sources), *held_out_keys(resolved))


def held_out_keys(resolved: ResolvedSources) -> list[object]:
    """Keys of separate held-out data, which change with them; empty if shares are held out."""
    return [{split: keys(sources) for split, sources in resolved.held_out.items()}] * bool(resolved.held_out)


def fingerprint(*parts: object) -> str:
    """A cache key of JSON data, READER_VERSION and whether ftfy is installed."""
    payload = [READER_VERSION, find_spec("ftfy") is not None, *parts]
    return hashlib.blake2b(json.dumps(payload, sort_keys=True).encode(), digest_size=16).hexdigest()


def keys(sources: Iterable[Source]) -> list[list[str | int | None]]:
    """What tells whether each source is still the one it was."""
    contents = FileContents()
    made = [_key(source, contents) for source in sources]
    contents.save()
    return made


def source_key(source: Source) -> list[str | int | None]:
    """A key that changes with the contents of a source."""
    return keys([source])[0]


def _key(source: Source, contents: FileContents) -> list[str | int | None]:
    match source:
        case FileSource():
            return _file_key(source, contents)
        case AlignedSource():
            return ["aligned", *_file_key(source.source, contents), *_file_key(source.target, contents)]
        case BuiltinSource():
            return ["builtin", source.sample, samples.digest(source.sample)]
        case HubSource():
            return ["hub", source.path, source.config, source.split]


def _file_key(file: FileSource, contents: FileContents) -> list[str | int | None]:
    known_by = contents.key(file.path)
    return ["file", *known_by, *(dialect_key(file, tuple(known_by)) if file.format == "table" else [])]


def _sources_with_target(
    source: str, target: str | None, settings: CorpusSettings, setting: str, skipped: Counter[str]
) -> list[Source]:
    """The sources of one entry, aligned with its target if that is a file."""
    aligned = None if target is None else _align_files(Path(source).expanduser(), Path(target).expanduser(), settings)
    return [aligned] if aligned else list(_parse_source(source, settings, setting, skipped))


def _held_out_target(held_out: str, settings: CorpusSettings) -> str | None:
    """The target of held-out data: the same column, or the file beside it."""
    target = settings.targets[0]
    if target is None or held_out.startswith("builtin:") or not Path(target).expanduser().is_file():
        return target
    return matching_target_file(held_out, settings.sources[0], target)


def matching_target_file(held_out: str, source: str, target: str) -> str:
    """The file that is to `held_out` what `target` is to `source`: test.de for test.en, as train.de for train.en."""
    prefix_length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(source, target, strict=False)))
    target_path = held_out.removesuffix(source[prefix_length:]) + target[prefix_length:]
    if not held_out.endswith(source[prefix_length:]) or not Path(target_path).expanduser().is_file():
        raise MeristemError(
            f"{held_out}: the run has its targets in a file beside its source ({source}, {target}), and "
            "there is none beside this one; name the files in the same way"
        )
    return target_path


def _align_files(source: Path, target: Path, settings: CorpusSettings) -> AlignedSource | None:
    """Two files to be read line by line; None if the target is a column of the source."""
    kind = FORMATS.get(split_extensions(source)[0], "text") if settings.format == "auto" else settings.format
    if not source.is_file() or kind not in ("text", "wikitext"):
        return None
    if not target.is_file():
        raise MeristemError(
            f"corpus.target: {source} has no columns, so its target must be a file with one line for "
            f"each of its lines; {describe_missing_path(target)}"
        )
    return AlignedSource(*(_line_file(path, settings.encoding or "") for path in (source, target)))


def _line_file(path: Path, encoding: str) -> FileSource:
    """A file of lines, whatever its extension: train.en, train.de."""
    extension, compression = split_extensions(path)
    return FileSource(path, extension or path.suffix, compression, path.stat().st_size, "text", encoding)


def _check_columns(source: Source, settings: CorpusSettings) -> None:
    """Check that a target or image is a column of its source, unless the target is a file beside it."""
    if settings.target is not None and source.format not in ("jsonl", "table", "parquet", "hub", "aligned"):
        raise MeristemError(
            f"{source.name}: corpus.target is a column of jsonl, csv, tsv, parquet or hub data, or a "
            "file with one line for each line of a source that is one file"
        )
    if settings.picture is not None and source.format not in ("jsonl", "table"):
        raise MeristemError(f"{source.name}: corpus.picture is a column of a jsonl, csv or tsv file")


def _check_same_kind(sources: list[Source], settings: CorpusSettings) -> None:
    """Check that all sources are of one kind: pairs, images or plain text."""
    kinds = {samples.corpus_kind(source.sample) if isinstance(source, BuiltinSource) else "text" for source in sources}
    if settings.target is None and settings.picture is None and len(kinds) > 1:
        raise MeristemError(
            f"corpus.source: {', '.join(settings.sources)} are {' and '.join(sorted(kinds))}; "
            "give each its own entry in mix"
        )


def _parse_source(source: str, settings: CorpusSettings, setting: str, skipped: Counter[str]) -> Iterator[Source]:
    kind, colon, name = source.partition(":")
    path = Path(source).expanduser()
    if colon and kind == "builtin":
        yield _parse_builtin(name, setting)
    elif colon and kind == "hub":
        yield parse_hub_name(name)
    elif path.is_dir():
        yield from _folder_files(path, settings, skipped)
    elif path.exists():
        yield _make_file(path, settings) or _unsupported_file_error(path)
    elif any(wildcard in source for wildcard in "*?["):
        yield from _glob_matches(path, settings, setting, skipped)
    elif HUB_NAME_PATTERN.fullmatch(source) and not path.parent.is_dir() and not split_extensions(path)[0]:
        yield HubSource(source)
    else:
        raise MeristemError(f"corpus.{setting}: {describe_missing_path(path)}")


def _parse_builtin(text: str, setting: str) -> BuiltinSource:
    known, name = list(samples.list_corpora()), text.partition("?")[0]
    if name in samples.list_labelled_sets():
        raise MeristemError(f"corpus.{setting}: builtin:{text} is labelled data for a task: data.train=builtin:{name}")
    if name not in known:
        raise MeristemError(f"corpus.{setting}: no sample builtin:{text}{did_you_mean(text, known)}")
    return BuiltinSource(text)


def parse_hub_name(text: str) -> HubSource:
    name, _, query = text.partition("?")
    options = dict(parse_qsl(query))
    for key in options:
        if key not in {"config", "split"}:
            raise MeristemError(f"hub:{text}: unknown option {key!r}{did_you_mean(key, ['config', 'split'])}")
    if not name:
        raise MeristemError("corpus.source: hub: needs a name, for instance hub:OWNER/NAME?config=CONFIG&split=train")
    return HubSource(name, options.get("config"), options.get("split", "train"))


def _make_file(path: Path, settings: CorpusSettings) -> FileSource | None:
    extension, compression = split_extensions(path)
    read_as = "" if settings.format == "auto" else settings.format
    if not path.is_file() or not (extension or read_as):
        return None
    extension = extension or Path(path.name.removesuffix(compression)).suffix.lower()
    return FileSource(path, extension, compression, path.stat().st_size, read_as, settings.encoding or "")


def _unsupported_file_error(path: Path) -> FileSource:
    if not path.is_file():
        raise MeristemError(f"{path}: a pipe, a device or a socket, not a file; save its output to a file first")
    extension_text = "".join(path.suffixes[-2:]) if path.suffix.lower() in COMPRESSIONS else path.suffix
    description = f"{extension_text} files" if extension_text else "a file without an extension"
    raise MeristemError(
        f"{path}: {description} cannot be read; readable are {READABLE_FORMATS}; or set the format, for instance "
        "corpus.format=text"
    )


def _folder_files(folder: Path, settings: CorpusSettings, skipped: Counter[str]) -> Iterator[FileSource]:
    skipped_here: Counter[str] = Counter()
    files = walk_files(folder, skipped_here)
    readable = list(_readable_files(files, settings, skipped_here))
    if not readable:
        listing = (
            ", ".join(f"{extension} ({count:,})" for extension, count in skipped_here.most_common(8))
            or "no files at all"
        )
        raise MeristemError(
            f"{folder}: no readable files in this folder; it contains {listing}; readable are {READABLE_FORMATS}"
        )
    skipped.update(skipped_here)
    yield from readable


def _glob_matches(pattern: Path, settings: CorpusSettings, setting: str, skipped: Counter[str]) -> Iterator[FileSource]:
    root = Path(pattern.anchor)
    files = glob_files(root, str(pattern.relative_to(root)), skipped)
    readable = list(_readable_files(files, settings, skipped))
    if not readable:
        problem = (
            f"matches only files that cannot be read; readable are {READABLE_FORMATS}" if files else "matches no file"
        )
        raise MeristemError(f"corpus.{setting}: {pattern} {problem}")
    yield from readable


def _readable_files(paths: list[Path], settings: CorpusSettings, skipped: Counter[str]) -> Iterator[FileSource]:
    for path in paths:
        file = None if path.name.startswith(".") else _make_file(path, settings)
        if file:
            yield file
        elif path.name.startswith("."):
            skipped["(hidden)"] += 1
        else:
            skipped[displayed_name(path.suffix.lower()) or "(no ending)"] += 1


def describe_missing_path(path: Path) -> str:
    """Which part of a path does not exist, and similar names."""
    existing = next(parent for parent in path.parents if parent.is_dir())
    missing_part = path.relative_to(existing).parts[0]
    siblings = [entry.name for entry in existing.iterdir() if not entry.name.startswith(".")][:1000]
    if len(siblings) <= 20 or did_you_mean(missing_part, siblings).startswith(","):
        hint = did_you_mean(missing_part, siblings) if siblings else "; that folder is empty"
    else:
        hint = f"; {existing} contains {len(siblings)} others"
    return f"no such file or folder: {path} ({missing_part!r} is not in {existing}{hint})"
