"""Tokenizer training: an even sample of the texts, then the training of the tokenizer kind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from meristem.config.errors import MeristemError
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.special_tokens import SENTINEL
from meristem.tokenizers.tokenizer import Tokenizer, replace_surrogates
from meristem.tokenizers.tokenizer_kind import TOKENIZER_KINDS

CHUNK = 1 << 16  # long texts are sampled in chunks of this many characters

ProgressCallback = Callable[[int], None]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenizerSample:
    """Texts to train on, and the sizes of sample and corpus."""

    texts: list[str]
    num_bytes: int
    """Bytes of UTF-8 in the sample."""
    total_bytes: int
    """Bytes of UTF-8 in the corpus."""

    def __str__(self) -> str:
        return f"{self.num_bytes / 1e6:.2f} MB, sampled evenly from {self.total_bytes / 1e6:.2f} MB of text"


def train_tokenizer(
    settings: TokenizerSettings, texts: Iterable[str], *, progress: ProgressCallback | None = None
) -> Tokenizer:
    """The tokenizer that the settings describe; deterministic. `progress` is called with the bytes read so far."""
    if settings.path is not None:
        return Tokenizer.load(settings.path, lowercase=True if settings.lowercase else None)
    sample = sample_texts(texts, settings, progress=progress)
    if not any(text.strip() for text in sample.texts):
        raise MeristemError(f"tokenizer: no text to train on ({sample}); check corpus.source")
    kind_settings = settings.model_copy(update={"vocab_size": settings.vocab_size - settings.sentinels})
    library = TOKENIZER_KINDS[settings.kind](kind_settings).learn(sample.texts)
    library.add_special_tokens([SENTINEL.format(number) for number in range(settings.sentinels)])
    tokenizer = Tokenizer(library.to_str(), f"the {settings.kind} tokenizer just trained")
    log.info("%s tokenizer with %d tokens, trained on %s", settings.kind, tokenizer.vocab_size, sample)
    return tokenizer


def sample_texts(
    texts: Iterable[str], settings: TokenizerSettings, *, progress: ProgressCallback | None = None
) -> TokenizerSample:
    """An even sample of the texts, at least half of `sample_mb` (or all), in one pass and bounded memory.

    Every n-th chunk is kept, starting with n = 1; when the sample is too large, every second chunk is dropped and n
    doubles.
    """
    max_bytes, step = int(settings.sample_mb * 1e6), 1
    chunks: list[tuple[str, int]] = []
    num_bytes = total_bytes = 0
    for number, text in enumerate(_chunks(texts)):
        size = len(text.encode())
        total_bytes += size
        if number % step == 0:
            chunks.append((text, size))
            num_bytes += size
        while num_bytes > max_bytes and len(chunks) > 1:
            chunks, step = chunks[::2], step * 2
            num_bytes = sum(size for _, size in chunks)
        if progress is not None:
            progress(total_bytes)
    return TokenizerSample([text for text, _ in chunks], num_bytes, total_bytes)


def _chunks(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        clean_text = replace_surrogates(text)
        start = 0
        while len(clean_text) - start > CHUNK:
            stop = max(clean_text.rfind(" ", start, start + CHUNK), clean_text.rfind("\n", start, start + CHUNK))
            stop = stop if stop > start else start + CHUNK  # no space to split at
            yield clean_text[start:stop]
            start = stop
        yield clean_text[start:]
