"""Resolves corpus.source into files, built-in samples and Hugging Face datasets, always in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from meristem import samples
from meristem.config.errors import MeristemError, did_you_mean
from meristem.corpus.settings import CorpusSettings
from meristem.data.file_search import displayed_name, walk_files
from meristem.data.formats.text import TextFormat
from meristem.data.records import FILE_FORMATS
from meristem.data.sources import (
    COMPRESSIONS,
    BuiltinSource,
    FileSource,
    HubSource,
    ParallelSource,
    Source,
    describe_missing_path,
    format_class,
    formats_by_suffix,
    readable_suffixes,
    resolve_source,
    split_extensions,
)


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


def _align_files(source: Path, target: Path, settings: CorpusSettings) -> ParallelSource | None:
    """Two files to be read line by line; None if the target is a column of the source."""
    if not source.is_file() or not _is_plain_text(source, settings):
        return None
    if not target.is_file():
        raise MeristemError(
            f"corpus.target: {source} has no columns, so its target must be a file with one line for "
            f"each of its lines; {describe_missing_path(target)}"
        )
    encoding = settings.encoding or ""
    return ParallelSource(*(FileSource.from_path(path, "text", encoding) for path in (source, target)))


def _is_plain_text(source: Path, settings: CorpusSettings) -> bool:
    """Whether a file has lines rather than columns: train.en is one too."""
    by_suffix = formats_by_suffix().get(split_extensions(source)[0], "text")
    return issubclass(format_class(by_suffix if settings.format == "auto" else settings.format), TextFormat)


def _has_columns(source: Source) -> bool:
    """Whether the records of a source have columns."""
    if isinstance(source, FileSource):
        return source.format in FILE_FORMATS and format_class(source.format).has_columns
    return not isinstance(source, BuiltinSource)


def _check_columns(source: Source, settings: CorpusSettings) -> None:
    """Check that a target or image is a column of its source, unless the target is a file beside it."""
    if settings.target is not None and not _has_columns(source):
        raise MeristemError(
            f"{source.name}: corpus.target is a column of jsonl, csv, tsv, parquet or hub data, or a "
            "file with one line for each line of a source that is one file"
        )
    if settings.image is not None and source.format not in ("jsonl", "table"):
        raise MeristemError(f"{source.name}: corpus.image is a column of a jsonl, csv or tsv file")


def _check_same_kind(sources: list[Source], settings: CorpusSettings) -> None:
    """Check that all sources are of one kind: pairs, images or plain text."""
    kinds = {samples.corpus_kind(source.sample) if isinstance(source, BuiltinSource) else "text" for source in sources}
    if settings.target is None and settings.image is None and len(kinds) > 1:
        raise MeristemError(
            f"corpus.source: {', '.join(settings.sources)} are {' and '.join(sorted(kinds))}; "
            "give each its own entry in mix"
        )


def _parse_source(entry: str, settings: CorpusSettings, setting: str, skipped: Counter[str]) -> Iterator[Source]:
    source_or_paths = resolve_source(entry, f"corpus.{setting}", skipped)
    if isinstance(source_or_paths, BuiltinSource):
        _check_builtin(source_or_paths, setting)
        yield source_or_paths
    elif isinstance(source_or_paths, HubSource):
        yield source_or_paths
    elif any(wildcard in entry for wildcard in "*?[") and not Path(entry).expanduser().exists():
        readable = list(_readable_files(source_or_paths, settings, skipped))
        if not readable:
            raise MeristemError(
                f"corpus.{setting}: {entry} matches only files that cannot be read; readable are {readable_suffixes()}"
            )
        yield from readable
    elif source_or_paths[0].is_dir():
        yield from _folder_files(source_or_paths[0], settings, skipped)
    else:
        for path in source_or_paths:
            yield _make_file(path, settings) or _unsupported_file_error(path)


def _check_builtin(source: BuiltinSource, setting: str) -> None:
    known, name = list(samples.list_corpora()), source.sample.partition("?")[0]
    if name in samples.list_labelled_sets():
        raise MeristemError(f"corpus.{setting}: {source.name} is labelled data for a task: data.train=builtin:{name}")
    if name not in known:
        raise MeristemError(f"corpus.{setting}: no sample {source.name}{did_you_mean(source.sample, known)}")


def _make_file(path: Path, settings: CorpusSettings) -> FileSource | None:
    """The file, if there is a format for it."""
    read_as = "" if settings.format == "auto" else settings.format
    if not path.is_file() or not (read_as or split_extensions(path)[0] in formats_by_suffix()):
        return None
    return FileSource.from_path(path, read_as, settings.encoding or "")


def _unsupported_file_error(path: Path) -> FileSource:
    if not path.is_file():
        return FileSource.from_path(path)  # raises what is wrong with it
    extension_text = "".join(path.suffixes[-2:]) if path.suffix.lower() in COMPRESSIONS else path.suffix
    description = f"{extension_text} files" if extension_text else "a file without an extension"
    raise MeristemError(
        f"{path}: {description} cannot be read; readable are {readable_suffixes()}; or set the format, for instance "
        "corpus.format=text"
    )


def _folder_files(folder: Path, settings: CorpusSettings, skipped: Counter[str]) -> Iterator[FileSource]:
    skipped_here: Counter[str] = Counter()
    files = walk_files(folder, skipped_here)
    readable = list(_readable_files(files, settings, skipped_here, in_folder=True))
    if not readable:
        listing = (
            ", ".join(f"{extension} ({count:,})" for extension, count in skipped_here.most_common(8))
            or "no files at all"
        )
        raise MeristemError(
            f"{folder}: no readable files in this folder; it contains {listing}; readable are {readable_suffixes()}"
        )
    skipped.update(skipped_here)
    yield from readable


def _readable_files(
    paths: list[Path], settings: CorpusSettings, skipped: Counter[str], *, in_folder: bool = False
) -> Iterator[FileSource]:
    for path in paths:
        file = None if path.name.startswith(".") else _make_file(path, settings)
        if file and not (in_folder and not file.format_override and format_class(file.format).only_named):
            yield file
        elif path.name.startswith("."):
            skipped["(hidden)"] += 1
        else:
            skipped[displayed_name(path.suffix.lower()) or "(no ending)"] += 1
