"""Data sets of the hub, by name, streamed through `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from meristem.corpus.account import Account
from meristem.corpus.document import Document, Drop, cut
from meristem.corpus.pieces import Piece
from meristem.corpus.readers.columns import text_column
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sources import Hub
from meristem.settings import MeristemError


def read(piece: Piece, settings: CorpusSettings, account: Account) -> Iterator[Document | Drop]:
    """The documents of one split of a data set, by row."""
    hub = cast(Hub, piece.source)
    column: str | None = None
    for number, row in enumerate(_rows(hub), start=1):
        if column is None:
            strings = [name for name, value in row.items() if isinstance(value, str)]
            column = text_column(hub.name, list(row), strings, settings.text)
        value = row.get(column)
        if isinstance(value, str):
            yield from cut(value, f"{hub.name}#{number}")
        else:
            yield Drop("no text in the column")


def _rows(hub: Hub) -> Iterator[dict[str, Any]]:
    datasets = _datasets()
    offline = bool(datasets.config.HF_HUB_OFFLINE)  # what was downloaded before cannot be streamed, only opened
    try:
        yield from datasets.load_dataset(hub.path, hub.config, split=hub.split, streaming=not offline)
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
