"""Reader for built-in samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from meristem import samples
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import Document, Drop, cut_document
from meristem.corpus.paired_text import IMAGE_SEPARATOR, PAIR_SEPARATOR, join_pair
from meristem.corpus.read.images import builtin_image_reference
from meristem.corpus.read.read_ranges import ReadRange
from meristem.corpus.read.source_kinds import BuiltinSource
from meristem.corpus.settings import CorpusSettings


def read(read_range: ReadRange, settings: CorpusSettings, account: CorpusAccount) -> Iterator[Document | Drop]:
    """The documents of a sample, in order."""
    builtin = cast(BuiltinSource, read_range.source)
    kind = samples.corpus_kind(builtin.sample)
    if kind == "text":
        for number, text in enumerate(samples.documents(builtin.sample), start=1):
            yield from cut_document(text, f"{builtin.name}#{number}")
        return
    for number, (source, target) in enumerate(samples.paired_documents(builtin.sample), start=1):
        place = f"{builtin.name}#{number}"
        yield (
            join_pair(source, target, PAIR_SEPARATOR, place)
            if kind == "pairs"
            else join_pair(builtin_image_reference(source), target, IMAGE_SEPARATOR, place)
        )
