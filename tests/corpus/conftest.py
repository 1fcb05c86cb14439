from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import Document
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings

Read = Callable[..., tuple[list[Document], CorpusAccount]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def read_corpus() -> Read:
    """Read a source to its end: its documents and its checked account."""

    def run(source: Any, **settings: Any) -> tuple[list[Document], CorpusAccount]:
        source = str(source) if isinstance(source, Path) else source
        corpus_reader = CorpusReader(CorpusSettings(source=source, **{"processes": 1, **settings}))
        documents = list(corpus_reader)
        corpus_reader.account.check_totals()
        assert corpus_reader.account.kept == len(documents)
        assert corpus_reader.account.characters == sum(len(document.text) for document in documents)
        return documents, corpus_reader.account

    return run
