"""Loading of labelled data sets: reads the splits, holds out validation data, reports leaks and contradictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.interfaces.sample import Sample
from meristem.interfaces.task_signature import InputField
from meristem.labelled.bad_rows import BadRows
from meristem.labelled.columns import ColumnResolver
from meristem.labelled.holdout import draw_subset, split_holdout
from meristem.labelled.overlap import find_contradictions, find_leaks
from meristem.labelled.row_streams import SourceSpec, check_source, iter_row_streams
from meristem.labelled.rows import RawRow, ReadNotes, RowError, RowStream, SkipRow
from meristem.labelled.sample_type import SAMPLE_TYPES, SampleType
from meristem.labelled.settings import DataSettings

SPLITS = ("train", "validation", "test")
COLUMN_SAMPLE_ROWS = 100
"""Rows read to determine the columns of a file without header or schema."""


@dataclass(kw_only=True)
class DatasetSplits:
    """Samples by split, and notices about problems met while reading."""

    samples: dict[str, list[Sample]]
    notices: list[str] = field(default_factory=list)
    gold_columns: dict[str, str] = field(default_factory=dict)
    """Setting (label, answers, intent) → the column that the golds of all splits were read from."""


def load_splits(settings: DataSettings, sample_type: str, fields: Sequence[InputField] = ()) -> DatasetSplits:
    """The train split, and the validation and test splits if there are any; `fields` have columns of their own."""
    if settings.train is None:
        raise MeristemError(
            "data.train: missing; set it to a file of labelled samples, or to builtin:microworld-sentiment"
        )
    sample_class = SAMPLE_TYPES[sample_type]
    notes = ReadNotes()
    sources = {name: source for name in SPLITS if (source := getattr(settings, name)) is not None}
    samples = {
        name: _load_split(source, settings, sample_type, name, notes, fields=fields) for name, source in sources.items()
    }
    sample_class.finalize(list(samples.values()), notes)
    dedup_key = _memoize(sample_class.dedup_key)
    if "validation" not in samples and settings.held_out and len(samples["train"]) > 1:
        samples["train"], holdout = split_holdout(
            samples["train"], settings.held_out, settings.seed, dedup_key, stratify=sample_class.gold_is_label
        )
        samples |= {"validation": holdout} if holdout else {}
    if settings.limit is not None and len(samples["train"]) > settings.limit:
        samples["train"] = draw_subset(
            samples["train"], settings.limit, settings.seed, dedup_key, stratify=sample_class.gold_is_label
        )
    notices = notes.sentences()
    notices += find_contradictions(samples["train"], dedup_key) if sample_class.single_gold else []
    notices += find_leaks(samples, dedup_key, single_gold=sample_class.single_gold)
    samples["train"] = [example for sample in samples["train"] for example in sample_class.training_samples(sample)]
    ordered = {name: samples[name] for name in SPLITS if name in samples}
    single_columns = {setting: names.pop() for setting, names in notes.gold_columns.items() if len(names) == 1}
    columns = {name: column for name, column in single_columns.items() if column is not None and name != "target"}
    return DatasetSplits(samples=ordered, notices=notices, gold_columns=columns)


def check_sources(settings: DataSettings) -> None:
    """Raise if a file, folder or built-in data set does not exist, without reading any."""
    for name in SPLITS:
        source = getattr(settings, name)
        for source_name in (source,) if isinstance(source, str) else source or ():
            check_source(SourceSpec(source_name, settings, "prompt", require_gold=False, split=name))


def load_samples(
    source: str | tuple[str, ...],
    settings: DataSettings,
    sample_type: str,
    fields: Sequence[InputField] = (),
    *,
    require_gold: bool = True,
    notices: list[str] | None = None,
) -> list[Sample]:
    """The samples of one or several sources; golds may be missing unless `require_gold`. Extends `notices` in place."""
    sample_class = SAMPLE_TYPES[sample_type]
    notes = ReadNotes()
    samples = _load_split(source, settings, sample_type, "test", notes, fields=fields, require_gold=require_gold)
    sample_class.finalize([samples], notes)
    if notices is not None:
        notices.extend(notes.sentences())
    return samples


def stream_samples(
    source: str, settings: DataSettings, sample_type: str, fields: Sequence[InputField] = ()
) -> Iterator[Sample | RowError]:
    """Samples to predict on, streamed from a file; an invalid row yields its RowError."""
    sample_class = SAMPLE_TYPES[sample_type]
    notes = ReadNotes()
    spec = SourceSpec(source, settings, sample_type, require_gold=False, split="test")
    for row_stream in iter_row_streams(spec, notes):
        samples = _iter_samples(
            row_stream, settings, sample_class, notes, fields=fields, require_gold=False, keep_rows=True
        )
        for outcome in samples:
            yield outcome if isinstance(outcome, Sample | RowError) else RowError(f"{outcome[1]}: {outcome[0]}")


def _load_split(
    source: str | tuple[str, ...],
    settings: DataSettings,
    sample_type: str,
    split: str,
    notes: ReadNotes,
    *,
    fields: Sequence[InputField],
    require_gold: bool = True,
) -> list[Sample]:
    """All samples of the sources; invalid rows raise an error that lists the first, or are skipped (data.skip_bad)."""
    samples: list[Sample] = []
    bad_rows = BadRows()
    dropped = ReadNotes()
    sources = (source,) if isinstance(source, str) else source
    sample_class = SAMPLE_TYPES[sample_type]
    for source_name in sources:
        target = _parallel_target(source_name, settings, split, single_source=len(sources) == 1)
        spec = SourceSpec(source_name, settings, sample_type, require_gold, target, split)
        for outcome in chain.from_iterable(
            _iter_samples(row_stream, settings, sample_class, notes, fields=fields, require_gold=require_gold)
            for row_stream in iter_row_streams(spec, notes)
        ):
            if isinstance(outcome, Sample):
                samples.append(outcome)
            elif isinstance(outcome, RowError):
                bad_rows.add(outcome)
            else:
                dropped.add(f"dropped from {split}, {outcome[0]}", outcome[1])
    if bad_rows.count and not (settings.skip_bad and samples):
        raise MeristemError(bad_rows.error_message(f"data.{split}", bad_rows.count + len(samples)))
    if not samples:
        reason = "; ".join(dropped.sentences()) or "the file is empty"
        raise MeristemError(f"data.{split}: no samples in {', '.join(sources)}: {reason}")
    notes.messages += [*dropped.sentences(), *bad_rows.skip_messages(split)]
    return samples


RowOutcome = Sample | RowError | tuple[str, str]
"""A sample, the error of an invalid row, or (reason, location) of a skipped row."""


def _iter_samples(
    row_stream: RowStream,
    settings: DataSettings,
    sample_class: type[SampleType],
    notes: ReadNotes,
    *,
    fields: Sequence[InputField],
    require_gold: bool,
    keep_rows: bool = False,
) -> Iterator[RowOutcome]:
    """The samples of one file, after its columns are resolved; with `keep_rows` each sample carries its row."""
    first_rows = list(islice(row_stream.rows, COLUMN_SAMPLE_ROWS))
    valid_rows = tuple(row for row in first_rows if isinstance(row, RawRow))
    names = row_stream.columns or tuple(dict.fromkeys(name for row in valid_rows for name in row.values))
    if not names:
        yield from (row for row in first_rows if isinstance(row, RowError))
        return
    column_settings = settings.model_copy(update=dict.fromkeys(row_stream.consumed_settings))
    sample_type = sample_class(
        ColumnResolver(names, row_stream.source_name, column_settings, valid_rows),
        require_gold=require_gold,
        notes=notes,
    )
    for setting, column in sample_type.gold_columns.items():
        has_name = setting not in row_stream.consumed_settings and not sample_type.columns.has_numbered_names
        notes.gold_columns.setdefault(setting, set()).add(column if has_name else None)
    for row in chain(first_rows, row_stream.rows):
        if isinstance(row, RowError):
            yield row
            continue
        try:
            samples = sample_type.add_fields(sample_type.parse_row(row), fields, row)
            yield from (replace(sample, row=row.values) for sample in samples) if keep_rows else samples
        except RowError as error:
            error.row = row.values
            yield error
        except SkipRow as skip:
            yield skip.reason, f"{row.location} {skip.detail}" if skip.detail else row.location


def _parallel_target(source: str, settings: DataSettings, split: str, *, single_source: bool) -> str | None:
    """The target file of parallel text: the one that is set, or the source's sibling with training's file ending."""
    targets = {"train": settings.target, "validation": settings.validation_target, "test": settings.test_target}
    target_file = targets[split]
    ending = Path(target_file or settings.target or "").suffix
    if not ending or (single_source and target_file is not None):
        return target_file
    sibling = Path(source).expanduser().with_suffix(ending)
    return str(sibling) if sibling.is_file() and sibling != Path(source).expanduser() else None


def _memoize(dedup_key: Callable[[Sample], str]) -> Callable[[Sample], str]:
    """`dedup_key`, computed once for each sample."""
    keys: dict[int, str] = {}

    def cached_key(sample: Sample) -> str:
        if id(sample) not in keys:
            keys[id(sample)] = dedup_key(sample)
        return keys[id(sample)]

    return cached_key
