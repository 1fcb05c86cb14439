"""Drawing canaries, planting them among the documents of the training split, and the run's record of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

import numpy as np

from meristem.config.errors import MeristemError
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.canaries.settings import CanarySettings
from meristem.corpus.canaries.templates import resolve_templates
from meristem.corpus.document import Document
from meristem.corpus.paired_text import PAIR_SEPARATOR
from meristem.utils import untrusted_files
from meristem.utils.randomness import generator

CANARY_FILE = "canaries.json"
"""The record of the canaries in a run folder."""
SPOOL_CHARS = 32 << 20
"""Characters of waiting documents kept in memory; more are spooled to disk."""


@dataclass(frozen=True, kw_only=True)
class Canary:
    """A planted text."""

    text: str
    prefix: str
    """The text before its last placeholder; what follows is the secret."""
    format: str
    """Its template."""
    repeats: int
    """How often it was planted."""
    space_size: int
    """The number of different texts that the template makes."""
    sources: tuple[str, ...] = ()
    """The sources of the run that it was planted into, so often into each."""

    @property
    def secret(self) -> str:
        """The text from its last placeholder on."""
        return self.text[len(self.prefix) :]

    def document_text(self, separator: str) -> str:
        """Its text as a document; in a corpus of pairs the prefix is the source and the secret the target."""
        if separator != PAIR_SEPARATOR:
            return self.text
        return f"{self.prefix.strip()}{separator}{self.secret.strip()}"


def draw_canaries(settings: CanarySettings) -> list[Canary]:
    """All canaries of these settings, without two of the same text."""
    templates, drawn = settings.templates, set[str]()
    canaries = []
    for level, repeats in enumerate(settings.repeats):
        for number in range(settings.per_repeat):
            template = templates[number % len(templates)]
            rng = generator(settings.seed, "canary", level, number)
            drawn_text = template.draw(rng)
            while drawn_text.text in drawn:
                drawn_text = template.draw(rng)
            drawn.add(drawn_text.text)
            canaries.append(
                Canary(
                    text=drawn_text.text,
                    prefix=drawn_text.prefix,
                    format=template.format,
                    repeats=repeats,
                    space_size=template.space_size,
                )
            )
    return canaries


def plant_canaries(
    documents: Iterable[Document], settings: CanarySettings, separator: str, account: CorpusAccount
) -> Iterator[Document]:
    """The documents, with every copy of every canary at a random place among those of the training split.

    The number of documents must be known for that, so they wait in a temporary file.
    """
    with SpooledTemporaryFile(max_size=SPOOL_CHARS, mode="w+", encoding="utf-8") as spool:
        num_train = 0
        for document in documents:
            spool.write(untrusted_files.to_json([document.text, document.location, document.split, document.language]))
            spool.write("\n")
            num_train += document.split == "train"
        canaries = draw_canaries(settings)
        copies = np.repeat(np.arange(len(canaries)), [canary.repeats for canary in canaries])
        rng = generator(settings.seed, "plant canaries", 0, 0)
        rng.shuffle(copies)
        places = np.sort(rng.integers(0, num_train + 1, len(copies)))
        account.planted += len(copies)
        next_copy = num_passed = 0
        for document in _read_spooled(spool):
            while next_copy < len(copies) and places[next_copy] <= num_passed:
                yield _canary_document(canaries[copies[next_copy]], separator)
                next_copy += 1
            yield document
            num_passed += document.split == "train"
        yield from (_canary_document(canaries[index], separator) for index in copies[next_copy:])


def _canary_document(canary: Canary, separator: str) -> Document:
    return Document(canary.document_text(separator), "(canary)", "train", side_separator=separator)


def _read_spooled(spool: IO[str]) -> Iterator[Document]:
    spool.seek(0)
    for line in spool:
        text, location, split, language = untrusted_files.parse_json_line(line)
        yield Document(text, location, split, language=language)


def canary_record(settings_by_source: Mapping[str, CanarySettings]) -> str:
    """The content of canaries.json: every canary with the sources it was planted into."""
    by_key: dict[tuple[str, int], Canary] = {}
    for source, settings in settings_by_source.items():
        for canary in draw_canaries(settings):
            earlier = by_key.get((canary.text, canary.repeats), canary)
            by_key[canary.text, canary.repeats] = replace(earlier, sources=(*earlier.sources, source))
    return untrusted_files.to_json({"canaries": [asdict(canary) for canary in by_key.values()]}, indent=1) + "\n"


def read_canaries(path: Path) -> list[Canary]:
    """The canaries in a record."""
    record = untrusted_files.read_json_object(path)
    try:
        canaries = [_parse_canary(item) for item in record["canaries"]]
        if not canaries:
            raise ValueError("it lists no canary")
    except KeyError as error:
        raise MeristemError(f"{path}: not a record of canaries: {error} is missing") from None
    except (TypeError, ValueError) as error:
        raise MeristemError(f"{path}: not a record of canaries: {error}") from None
    return canaries


def _parse_canary(item: object) -> Canary:
    """A canary of a record; raises KeyError, TypeError or ValueError if it is none."""
    if not isinstance(item, dict):
        raise TypeError("expected a list of objects")
    text, prefix, template = (item[name] for name in ("text", "prefix", "format"))
    repeats, sources = item["repeats"], item["sources"]
    if not all(isinstance(value, str) for value in (text, prefix, template, *sources)):
        raise TypeError("text, prefix, format and sources are texts")
    if not text.startswith(prefix) or len(text) == len(prefix):
        raise ValueError(f"{prefix!r:.60} is not the beginning of {text!r:.60}")
    if not isinstance(repeats, int) or repeats < 1:
        raise ValueError(f"repeats is {repeats!r:.60}, expected a number of at least 1")
    (parsed,) = resolve_templates([template])
    return Canary(
        text=text,
        prefix=prefix,
        format=template,
        repeats=repeats,
        space_size=parsed.space_size,
        sources=tuple(sources),
    )
