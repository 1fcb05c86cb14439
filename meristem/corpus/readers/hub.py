"""Data sets of the hub, by name, streamed through `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from meristem.corpus.account import Account
from meristem.corpus.document import Document, Drop
from meristem.corpus.pieces import Piece
from meristem.corpus.readers.columns import Columns, columns_of
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_kinds import Hub
from meristem.errors import MeristemError


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """The documents of one split of a data set, by row."""
    hub = cast(Hub, piece.source)
    columns: Columns | None = None
    for number, row in enumerate(opened(hub).rows, start=1):
        if columns is None:
            strings = [name for name, value in row.items() if isinstance(value, str)]
            columns = columns_of(hub.name, list(row), strings, settings)
        values = [row.get(name) for name in columns.names]
        yield from columns.documents(values, f"{hub.name}#{number}", Path(), account)


@dataclass(frozen=True)
class Opened:
    """A split of a data set: its rows, and what is known of its columns, as `datasets` writes that down."""

    rows: Iterator[dict[str, Any]]
    features: dict[str, Any]


def opened(hub: Hub) -> Opened:
    """The split that is asked for."""
    datasets = _datasets()
    offline = bool(datasets.config.HF_HUB_OFFLINE)  # what was downloaded before cannot be streamed, only opened
    with _told(hub):
        data = datasets.load_dataset(hub.path, hub.config, split=hub.split, streaming=not offline)
        return Opened(_rows(hub, data), data.features.to_dict() if data.features else {})


def _rows(hub: Hub, data: Any) -> Iterator[dict[str, Any]]:
    with _told(hub):
        yield from data


@contextmanager
def _told(hub: Hub) -> Iterator[None]:
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
        raise MeristemError('reading from the hub needs datasets: pip install "meristem[data]"') from None
    return datasets
