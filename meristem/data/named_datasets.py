"""Records of built-in samples (builtin:NAME) and of datasets on the Hugging Face Hub, streamed through `datasets`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from meristem import samples
from meristem.config.errors import MeristemError
from meristem.data.images import builtin_image_reference
from meristem.data.records import Record, RecordReader
from meristem.data.sources import BuiltinSource, HubSource
from meristem.utils.optional_packages import require_module


class BuiltinReader(RecordReader):
    """The texts, pairs, captioned images or labelled rows of a built-in sample, numbered from 1."""

    def __init__(self, source: BuiltinSource) -> None:
        self.name = self.columns_location = source.name
        self._values = _builtin_values(source.sample)

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record]:
        """All of them, generated on the fly."""
        return (Record(value, f"{self.name}#{number}") for number, value in enumerate(self._values, 1))


def _builtin_values(sample: str) -> Iterator[Any]:
    if sample.partition("?")[0] not in samples.list_corpora():
        return samples.labelled_rows(sample)
    match samples.corpus_kind(sample):
        case "pairs":
            return ({"source": source, "target": target} for source, target in samples.paired_documents(sample))
        case "pictures":
            return (
                {"picture": builtin_image_reference(source), "caption": caption}
                for source, caption in samples.paired_documents(sample)
            )
    return samples.documents(sample)


class HubReader(RecordReader):
    """One split of a dataset, with its column types as `datasets` declares them; rows are numbered from 1."""

    def __init__(self, source: HubSource) -> None:
        self.source, self.name, self.columns_location = source, source.name, source.name
        datasets = require_module("datasets", "reading from the hub", "data")
        offline = bool(datasets.config.HF_HUB_OFFLINE)  # cached datasets cannot be streamed, only opened
        with _wrap_hub_errors(source):
            self._rows = datasets.load_dataset(source.path, source.config, split=source.split, streaming=not offline)
            self.features = self._rows.features.to_dict() if self._rows.features else {}

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record]:
        """The rows in order."""
        with _wrap_hub_errors(self.source):
            for number, row in enumerate(self._rows, 1):
                yield Record(row, f"{self.name}#{number}")


@contextmanager
def _wrap_hub_errors(hub: HubSource) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the library raises whatever its transports, formats and scripts raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise MeristemError(
            f"{hub.name}: cannot be read: {reason[0]} (split {hub.split!r}, config {hub.config!r}; "
            "hub:OWNER/NAME?config=…&split=… chooses others; builtin:pydocs needs no network)"
        ) from None
