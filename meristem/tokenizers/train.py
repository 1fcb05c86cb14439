"""A tokenizer from texts: an even sample of them, then the kind's own learning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from meristem.errors import MeristemError
from meristem.settings import find
from meristem.tokenizers.roles import SENTINEL
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer, sound

CHUNK = 1 << 16  # characters of a long text that are taken or left together

Progress = Callable[[int], None]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sample:
    """Texts to learn from, and how much of how much they are."""

    texts: list[str]
    taken: int
    """Bytes of UTF-8 in the sample."""
    read: int
    """Bytes of UTF-8 it was taken from."""

    def __str__(self) -> str:
        return f"{self.taken / 1e6:.2f} MB, taken evenly from {self.read / 1e6:.2f} MB of text"


def train(settings: TokenizerSettings, texts: Iterable[str], *, progress: Progress | None = None) -> Tokenizer:
    """The tokenizer the settings describe, the same for the same texts; `progress` is told the bytes read so far."""
    if settings.path is not None:
        return Tokenizer.load(settings.path, lowercase=True if settings.lowercase else None)
    taken = sample(texts, settings, progress=progress)
    if not any(text.strip() for text in taken.texts):
        raise MeristemError(f"tokenizer: there is no text to train it on ({taken}); check corpus.source")
    own = settings.model_copy(update={"size": settings.size - settings.sentinels})
    library = find("tokenizers.kinds", settings.kind)(own).learn(taken.texts)
    library.add_special_tokens([SENTINEL.format(number) for number in range(settings.sentinels)])
    tokenizer = Tokenizer(library.to_str(), f"the {settings.kind} tokenizer just trained")
    log.info("%s tokenizer of %d tokens, trained on %s", settings.kind, tokenizer.size, taken)
    return tokenizer


def sample(texts: Iterable[str], settings: TokenizerSettings, *, progress: Progress | None = None) -> Sample:
    """An even share of the texts, at least half of what is allowed, in one pass and bounded memory.

    Every n-th chunk is kept, beginning with n = 1; whenever too much is kept, every second goes and n doubles.
    """
    limit, step = int(settings.sample_mb * 1e6), 1
    kept: list[tuple[str, int]] = []
    taken = read = 0
    for number, text in enumerate(_chunks(texts)):
        size = len(text.encode())
        read += size
        if number % step == 0:
            kept.append((text, size))
            taken += size
        while taken > limit and len(kept) > 1:
            kept, step = kept[::2], step * 2
            taken = sum(size for _, size in kept)
        if progress is not None:
            progress(read)
    return Sample([text for text, _ in kept], taken, read)


def _chunks(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        whole = sound(text)
        start = 0
        while len(whole) - start > CHUNK:
            stop = max(whole.rfind(" ", start, start + CHUNK), whole.rfind("\n", start, start + CHUNK))
            stop = stop if stop > start else start + CHUNK  # no space to cut at
            yield whole[start:stop]
            start = stop
        yield whole[start:]
