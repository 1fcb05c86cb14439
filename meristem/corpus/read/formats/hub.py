"""Reader for datasets on the Hugging Face Hub, streamed through `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from meristem.config.errors import MeristemError
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import Document, Drop
from meristem.corpus.read.formats.columns import TextColumns, find_columns
from meristem.corpus.read.read_ranges import ReadRange
from meristem.corpus.read.source_kinds import HubSource
from meristem.corpus.settings import CorpusSettings


def read(read_range: ReadRange, settings: CorpusSettings, account: CorpusAccount) -> Iterator[Document | Drop]:
    """The documents of one split of a dataset, by row."""
    hub = cast(HubSource, read_range.source)
    columns: TextColumns | None = None
    for number, row in enumerate(open_hub(hub).rows, start=1):
        if columns is None:
            strings = [name for name, value in row.items() if isinstance(value, str)]
            columns = find_columns(hub.name, list(row), strings, settings)
        values = [row.get(name) for name in columns.names]
        yield from columns.documents(values, f"{hub.name}#{number}", Path(), account)


@dataclass(frozen=True)
class HubRows:
    """A split of a dataset: its rows, and its column types as `datasets` declares them."""

    rows: Iterator[dict[str, Any]]
    features: dict[str, Any]


def open_hub(hub: HubSource) -> HubRows:
    """Open the requested split."""
    datasets = _datasets()
    offline = bool(datasets.config.HF_HUB_OFFLINE)  # cached datasets cannot be streamed, only opened
    with _wrap_hub_errors(hub):
        data = datasets.load_dataset(hub.path, hub.config, split=hub.split, streaming=not offline)
        return HubRows(_iter_rows(hub, data), data.features.to_dict() if data.features else {})


def _iter_rows(hub: HubSource, data: Any) -> Iterator[dict[str, Any]]:
    with _wrap_hub_errors(hub):
        yield from data


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


def _datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise MeristemError('reading from the hub needs datasets: pip install "meristem-lm[data]"') from None
    return datasets
